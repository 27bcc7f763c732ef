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
        install = next((how for lock, how in INSTALLS if (checkout.root / lock).is_file()), "npm install")
        where = "a clone of your own, and name that" if checkout.boundary.is_clone else "the checkout"
        remedy = f"Run `{install}` in {where}."
        modules = list(_modules(checkout.root))
        if (package.get("dependencies") or package.get("devDependencies")) and not modules:
            raise missing("The package's dependencies are not installed: there is no node_modules.", remedy)
        inside = [(str(one), str(Path(checkout.inside, one.relative_to(checkout.root)))) for one in modules]
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


def _modules(root: Path) -> Iterator[Path]:
    """The installed packages of the checkout and of those within it; none that leads out of it."""
    found = [one for pattern in FOLDERS for one in sorted(root.glob(pattern))[:MAX_FOLDERS]]
    for folder in found:
        nested = "node_modules" in folder.relative_to(root).parts[:-1]
        if not nested and folder.is_dir() and is_within(folder.resolve(), root.resolve()):
            yield folder
