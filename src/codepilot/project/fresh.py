"""How to test a program that does not exist yet: its runner and environment follow from its language alone.

Python programs are tested by pytest and Hypothesis in an environment of CodePilot's own, which is copied from what is
installed with CodePilot, so that it is there without a network.
"""

from __future__ import annotations

import compileall
import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.project_settings import ProjectSettings
from codepilot.core.task import Language
from codepilot.project.build import Checkout, Needs, installation, missing, search_path, shown
from codepilot.project.detect import environment_of, mounts_of
from codepilot.project.interpreter import find_interpreter
from codepilot.project.jvm import Maven
from codepilot.project.npm import modules_of
from codepilot.project.run import with_command
from codepilot.project.suite import Interpreter, Project

DISTRIBUTIONS = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "hypothesis", "sortedcontainers")
"""What tests of a Python program may import in addition to its own requirements."""
PLUGINS_LEFT_OUT = ("hypothesis",)
"""Distributions whose entry points stay behind: a plugin of theirs adds a second to every start of pytest."""
_DONE = "complete"
STORAGE, KEPT = "HYPOTHESIS_STORAGE_DIRECTORY", "hypothesis"
"""The variable that tells Hypothesis where its tables are, and their directory in the environment."""


def fresh_project(
    language: Language,
    root: Path,
    inside: str,
    environ: Mapping[str, str],
    envs: Path,
    settings: ProjectSettings,
    python: str | None = None,
) -> Project:
    """How to test the program in the directory `root`, which the sandbox shows at `inside`."""
    checkout = Checkout(root.absolute(), inside, environ)
    if language == "python":
        return _python(checkout, python or str(own_environment(envs)), settings)
    own = find_interpreter(checkout.repository, python=None, configured=None, environ=_without_environment(environ))
    if language == "node":
        program = checkout.program("node")
        if program is None:
            raise missing("Node.js programs are tested by `node --test`, and there is no `node` here.", "Install it.")
        top = checkout.repository
        modules = [(str(one), str(Path(inside, one.relative_to(top)))) for one in modules_of(checkout)]
        needs = Needs(
            driver=("codepilot_npm.py",),
            mounts=(*shown(checkout, *installation(program)), *modules),
            env={"PATH": search_path(program), "CI": "true", "npm_config_offline": "true"},
            remedy=f"Run `npm install` in {root}.",
        )
    else:
        needs = Maven().needs(checkout)
    base = {"PYTHONDONTWRITEBYTECODE": "1", "NO_COLOR": "1"}
    project = Project(
        runner="npm" if language == "node" else "maven",
        interpreter=own,
        root=inside,
        mounts=tuple(dict.fromkeys((*mounts_of(own), *needs.mounts))),
        env={**base, **needs.env, **settings.env},
        driver=needs.driver,
        remedy=needs.remedy,
    )
    return with_command(project)


def _python(checkout: Checkout, python: str, settings: ProjectSettings) -> Project:
    interpreter = find_interpreter(
        checkout.repository, python=python, configured=None, environ=_without_environment(checkout.environ)
    )
    if not interpreter.has_pytest:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The tests of a build need pytest, and {interpreter.executable} does not have it.",
            next_action=f"Run `{interpreter.executable} -m pip install pytest hypothesis`, or leave --python out.",
        )
    project = Project(
        runner="pytest",
        interpreter=interpreter,
        root=checkout.top,
        mounts=mounts_of(interpreter),
        env={**environment_of(interpreter, checkout), **_calm(interpreter), **settings.env},
    )
    return with_command(project)


def _calm(interpreter: Interpreter) -> dict[str, str]:
    """Variables under which Hypothesis draws the same examples each time, and finds its tables."""
    kept = Path(interpreter.prefix) / KEPT
    return {"CI": "true", **({STORAGE: str(kept)} if kept.is_dir() else {})}


def _without_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """An active environment is not the new program's."""
    return {name: value for name, value in environ.items() if name != "VIRTUAL_ENV"}


def own_environment(envs: Path) -> Path:
    """A virtual environment with pytest and Hypothesis, made on first use and shared by all builds."""
    found = [_distribution(name) for name in DISTRIBUTIONS]
    facts = [sys.version, *(f"{one.metadata['Name']} {one.version}" for one in found)]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    place = envs / f"build-{digest[:16]}"
    if (place / _DONE).is_file():
        return place
    envs.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="build-", dir=envs))
    try:
        venv.EnvBuilder(with_pip=False, symlinks=True).create(made)
        site = next(made.glob("lib/*/site-packages"))
        for one in found:
            _copy(one, site)
        compileall.compile_dir(site, quiet=2)  # the sandbox sees it read-only: each start would compile again
        _warm_up(made)
        (made / _DONE).write_text("\n".join(facts), encoding="utf-8")
        made.rename(place)
    except OSError:
        if not (place / _DONE).is_file():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return place


def _warm_up(made: Path) -> None:
    """Let Hypothesis compute its table of characters once, which every run of tests would compute again."""
    environ = {STORAGE: str(made / KEPT), "PYTHONDONTWRITEBYTECODE": "1"}
    code = "from hypothesis.internal.charmap import charmap; charmap()"
    python = str(made / "bin" / "python")
    subprocess.run([python, "-c", code], env=environ, check=False, capture_output=True, timeout=60)


def _distribution(name: str) -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"{name} is not installed with CodePilot, and the tests of a build need it.",
            next_action="Install it there, or name a Python that has pytest and hypothesis with --python.",
        ) from None


def _copy(distribution: importlib.metadata.Distribution, site: Path) -> None:
    """Copy a distribution's modules, compiled ones too, and its metadata unless its plugin is to be left out."""
    for file in distribution.files or ():
        top = file.parts[0]
        if top in ("..", "/"):
            continue
        if top.endswith(".dist-info") and distribution.metadata["Name"] in PLUGINS_LEFT_OUT:
            continue
        target = site.joinpath(*file.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        if Path(str(file.locate())).is_file():  # compiled files are listed even where they were removed
            shutil.copy2(str(file.locate()), target)
