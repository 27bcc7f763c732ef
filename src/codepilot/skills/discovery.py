"""Finds skills: the basic ones, and those of packages that use the entry point group `codepilot.skills`.

An entry point names a function that takes the registry and registers the package's skills in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from pydantic import JsonValue

from codepilot.core.contract import JsonObject
from codepilot.core.events import SkillCall
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.task import Capability
from codepilot.project import report, runner_command
from codepilot.skills import inside, local, program_files, repository, running, searching, suites
from codepilot.skills.manifest import SkillPolicy, Target
from codepilot.skills.registry import Answering, Registry, Skill

GROUP = "codepilot.skills"

_log = logging.getLogger(__name__)

READS = SkillPolicy()
WRITES = SkillPolicy(filesystem_write=True, needs=Capability.WRITE_WITH_DIFF)
RUNS = SkillPolicy(filesystem_write=True, needs=Capability.WRITE_AND_RUN_TESTS)
LOOKS = SkillPolicy(target=Target.LOCAL, timeout_sec=10.0)


def basic_skills() -> Registry:
    """A registry with the basic skills, to which higher rooms and packages may add theirs."""
    registry = Registry()
    policies: tuple[tuple[SkillPolicy, tuple[Callable[..., object], ...]], ...] = (
        (READS, (inside.read_file, inside.list_files, searching.search_code)),
        (READS, (repository.git_status, repository.git_diff)),
        (WRITES, (inside.write_file, inside.create_file, inside.edit_file, inside.apply_patch, repository.git_reset)),
        (RUNS, (running.run_command, suites.run_tests)),
        (LOOKS, (local.parse_surefire_xml, local.score_patch_quality, local.check_policy)),
    )
    for policy, functions in policies:
        for function in functions:
            ships = (runner_command, report) if function is suites.run_tests else ()
            registry.skill(policy, ships=ships)(function)
    return registry


def program_skills() -> Registry:
    """The file functions of builds. Nothing here runs a program: what is generated is scanned before that."""
    registry = Registry()
    reads, writes = READS, WRITES
    for function in (program_files.read_file, program_files.list_files, searching.search_code):
        registry.skill(reads)(function)
    for change in (program_files.create_file, program_files.delete_file, inside.edit_file, inside.write_file):
        registry.skill(writes)(change)
    return registry


@cache
def inside_prelude(capability: Capability = Capability.WRITE_AND_RUN_TESTS) -> str:
    """The prelude of a fresh kernel: the basic skills."""
    return basic_skills().prelude(capability)


def all_skills() -> Registry:
    """The basic skills and those of every installed package."""
    return discovered_skills(basic_skills())


def discovered_skills(registry: Registry) -> Registry:
    """`registry` with the skills of installed packages. A package that fails is left out whole and logged."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: (_package(point), point.name)):
        try:
            registry.extend(_adding(point))
        except (Exception, SystemExit) as error:  # noqa: BLE001  (it is anybody's code)
            failure = Failure(
                kind=FailureKind.INVALID_SPEC,
                message=f"The package {_package(point)} adds skills ({point.name} = {point.value}) that cannot be "
                f"used: {type(error).__name__}: {error}",
                next_action=f"Update or uninstall {_package(point)}.",
                details={"package": _package(point)},
            )
            registry.left_out.append(failure)
            _log.warning("%s %s", failure.message, failure.next_action)
    return registry


def _adding(point: EntryPoint) -> Callable[[Registry], None]:
    """A function that registers what an entry point provides."""
    found = point.load()
    if isinstance(found, Skill):
        return lambda registry: registry.add(found)
    add: Callable[[Registry], None] = found
    return add


def answer_calls(capability: Capability, network: bool = False) -> Answering:
    """An executor's `answer`: runs LOCAL skills for code in the sandbox, within a task's capability and network."""

    def answer(name: str, arguments: JsonObject, asker: str = "") -> JsonValue:
        there = _installed() if network else _installed().offline()
        return there.answer(capability)(name, arguments, asker)

    return answer


def count_calls(calls: Sequence[SkillCall]) -> None:
    """An executor's `count`: metrics of the calls that its kernels report."""
    if calls:
        _installed().count(calls)


@cache
def _installed() -> Registry:
    """Loaded on first use, because finding packages takes time."""
    return all_skills()


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "(unknown)"
