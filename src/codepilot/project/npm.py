"""Packages with a `test` script: run as npm would, with `node_modules` shown read-only on top of the workspace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.project.boundary import is_within, read_head
from codepilot.project.build import Checkout, Needs, installation, missing, search_path, shown
from codepilot.project.plugin import codepilot_scripts as scripts
from codepilot.project.suite import RunnerName

FOLDERS = ("node_modules", "*/node_modules", "*/*/node_modules")
MAX_FOLDERS = 100
INSTALLS = (
    ("package-lock.json", "npm ci"),
    ("npm-shrinkwrap.json", "npm ci"),
    ("pnpm-lock.yaml", "pnpm install --frozen-lockfile"),
    ("yarn.lock", "yarn install --frozen-lockfile"),
)


class Npm:
    name: RunnerName = "npm"

    def found(self, root: Path) -> bool:
        return scripts.has_tests(_package(root).get("scripts", {}))

    def needs(self, checkout: Checkout) -> Needs:
        program = checkout.program("node")
        if program is None:
            raise missing("The project's tests run on Node.js, and there is no `node` on this machine.", "Install it.")
        package = _package(checkout.root)
        table = package.get("scripts", {})
        if scripts.read(table) is None:
            raise CodePilotError(
                FailureKind.NO_TEST_RUNNER,
                f"The package's test script ({str(table.get('test', ''))[:100]!r}) runs nothing whose results can be "
                f"read: node --test, {', '.join(scripts.FRAMEWORKS)}.",
                next_action="Let `npm test` run one of these, last in its script.",
            )
        around = [checkout.root, checkout.repository]
        install = next((how for lock, how in INSTALLS if any((one / lock).is_file() for one in around)), "npm install")
        where = "a clone of your own, and name that" if checkout.boundary.is_clone else "the checkout"
        remedy = f"Run `{install}` in {where}{', or `codepilot prepare`' if install.startswith('npm') else ''}."
        modules = list(modules_of(checkout))
        inside = [(str(one), str(Path(checkout.top, one.relative_to(checkout.repository)))) for one in modules]
        inside = inside or prepared_modules(checkout.prepared, checkout.top)
        if (package.get("dependencies") or package.get("devDependencies")) and not inside:
            raise missing("The package's dependencies are not installed: there is no node_modules.", remedy)
        return Needs(
            driver=("codepilot_npm.py",),
            mounts=(*shown(checkout, *installation(program)), *inside),
            env={"PATH": search_path(program), "CI": "true", "npm_config_offline": "true"},
            remedy=remedy,
        )


def _package(root: Path) -> dict[str, Any]:
    try:
        package = json.loads(read_head(root / "package.json", within=root) or "{}")
    except (ValueError, RecursionError):
        return {}
    named = isinstance(package, dict) and isinstance(package.get("scripts", {}), dict)
    return package if named else {}


def prepared_modules(prepared: Path | None, top: str) -> list[tuple[str, str]]:
    """The `node_modules` of a prepared environment, and where the repository at `top` has them."""
    found = [] if prepared is None else [one for pattern in FOLDERS for one in sorted(prepared.glob(pattern))]
    own = [one for one in found if "node_modules" not in one.relative_to(prepared or one).parts[:-1]]
    return [(str(one), str(Path(top, one.relative_to(prepared or one)))) for one in own[:MAX_FOLDERS]]


def modules_of(checkout: Checkout) -> Iterator[Path]:
    """The installed packages of the project, those within and around it; none that leads out of the repository.

    A workspace of npm has its packages in a member's directory and in those around it.
    """
    root, members = checkout.repository, checkout.root
    around = [one / "node_modules" for one in members.parents if one == root or root in one.parents]
    found = [one for pattern in FOLDERS for one in sorted(members.glob(pattern))[:MAX_FOLDERS]]
    for folder in (*found, *around):
        nested = "node_modules" in folder.relative_to(root).parts[:-1]
        if not nested and folder.is_dir() and is_within(folder.resolve(), root.resolve()):
            yield folder
