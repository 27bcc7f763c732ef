"""Packages that a person allowed an agent to install: a sandbox that reaches registries alone installs them.

The project's own environment stays as it is. What was installed is mounted next to it for code of the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from codepilot.agents.approvals import NOT_INSTALLED
from codepilot.core.events import DependencyDegraded, EnvironmentPrepared, EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.base import fetch_base, local_checkout, open_objects
from codepilot.project import Project
from codepilot.project.npm import prepared_modules
from codepilot.project.recipe import MODULES, PACKAGES, Recipe, npm_recipe, own_version, python_recipe
from codepilot.skills import EVERYTHING

if TYPE_CHECKING:
    from codepilot.engine.work import Work

PACKAGE = "package"
"""The failure detail that names what could not be installed."""
_NPM_PACKAGE = re.compile(r"(@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*(@[A-Za-z0-9.^~<>=*-]+)?")
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?([=<>!~]=?=?[A-Za-z0-9.*+!_-]+,?)*")


def install_allowed(work: Work, project: Project, subject: str) -> None:
    """Install what a person allowed, unless the run has it; raise if it cannot be installed."""
    from codepilot.engine.environment.prepare import install

    recipe = _npm_recipe(work, project, subject) if project.runner == "npm" else _recipe(work, project, subject)
    if all(one.key != recipe.key for one in work.run.environments):
        prepared = install(work.runtime, work.executor, work.base, recipe)
        work.record(EventType.ENVIRONMENT_PREPARED, prepared)


def install_granted(work: Work, project: Project) -> None:
    """Install what a person allowed while the step waited: programs of agents that start now find it."""
    asked = [one for one in work.run.approvals if one.request.operation == "install" and one.decided is not None]
    allowed = {one.request.details for one in asked if one.decided and one.decided.decision != "denied"}
    if not allowed:
        return
    events = work.store.events(work.run.run_id)
    failed = (event.data for event in events if isinstance(event.data, DependencyDegraded))
    for subject in sorted(allowed - {str(one.failure.details.get(PACKAGE)) for one in failed}):
        try:
            install_allowed(work, project, subject)
        except CodePilotError as error:
            if error.kind not in NOT_INSTALLED:
                raise
            failure = error.failure.model_copy(update={"details": {**error.failure.details, PACKAGE: subject}})
            consequence = f"{subject} is not there"
            degraded = DependencyDegraded(dependency="packages", consequence=consequence, failure=failure)
            work.record(EventType.DEPENDENCY_DEGRADED, degraded)


def with_environments(project: Project, prepared: Sequence[EnvironmentPrepared]) -> Project:
    """The project with the packages that were installed for the run, after its own."""
    if project.runner == "npm":
        return _with_modules(project, prepared)
    sites = [site for one in prepared for site in _sites(Path(one.path)) if site not in project.interpreter.sites]
    if not sites or not project.is_python:
        return project
    paths = [*filter(None, (project.env.get("PYTHONPATH", ""),)), *sites]
    return replace(
        project,
        interpreter=replace(project.interpreter, sites=(*project.interpreter.sites, *sites)),
        mounts=(*project.mounts, *((site, site) for site in sites)),
        env={**project.env, "PYTHONPATH": ":".join(paths)},
    )


def _with_modules(project: Project, prepared: Sequence[EnvironmentPrepared]) -> Project:
    """The package with the `node_modules` that were installed last: they hold those before."""
    if not prepared:
        return project
    placed = prepared_modules(Path(prepared[-1].path) / MODULES, project.root)
    there = {target for _, target in placed}
    kept = (one for one in project.mounts if one[1] not in there)
    return replace(project, mounts=(*kept, *placed))


def _sites(environment: Path) -> list[str]:
    packages = environment / PACKAGES
    found = [packages] if packages.is_dir() else sorted(environment.glob("lib/python*/site-packages"))
    return [str(one) for one in found]


def _npm_recipe(work: Work, project: Project, subject: str) -> Recipe:
    words = () if subject == EVERYTHING else tuple(subject.split())
    if wrong := [word for word in words if not _NPM_PACKAGE.fullmatch(word)]:
        raise _no_package(wrong, "fast-check or lodash@4")
    before = (name for one in work.run.environments for name in one.packages)
    with closing(open_objects(work.home, work.base.repo_id)) as objects:
        fetch_base(work.runtime, work.base, objects)
        root = local_checkout(work.home, work.base, objects)
        recipe = npm_recipe(root, project.folder, tuple(dict.fromkeys((*before, *words))))
    if recipe is None:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            "The package declares no dependencies that npm could install.",
            next_action=project.remedy,
        )
    return recipe


def _no_package(words: Sequence[str], such_as: str) -> CodePilotError:
    named = " ".join(words) or "nothing"
    message = f"{named!r} is not the name of a package in a registry, such as {such_as}."
    return CodePilotError(FailureKind.TOOL_INVALID_ARGS, message)


def _recipe(work: Work, project: Project, subject: str) -> Recipe:
    if not project.is_python:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"A run installs packages of Python and npm only, and this is a {project.language} project.",
            next_action=project.remedy or "Install them yourself, and start again.",
        )
    version = ".".join(map(str, project.interpreter.version[:2]))
    if subject == EVERYTHING:
        with closing(open_objects(work.home, work.base.repo_id)) as objects:
            fetch_base(work.runtime, work.base, objects)
            recipe = python_recipe(local_checkout(work.home, work.base, objects), project.folder)
        if recipe is None:
            raise CodePilotError(
                FailureKind.ENVIRONMENT_MISSING,
                "The project declares no dependencies that could be installed.",
                next_action="Name the packages that you need.",
            )
        return recipe if version == own_version() else replace(recipe, python=version, whole=False)
    wrong = [word for word in subject.split() if not _REQUIREMENT.fullmatch(word)]
    if wrong or not subject.strip():
        raise _no_package(wrong, "requests or attrs>=24")
    return Recipe(requirements=tuple(sorted(subject.split())), python=version, whole=False)
