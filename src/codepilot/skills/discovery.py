"""Skills that installed packages add, through the entry point group `codepilot.skills`.

An entry point names a function that takes the registry and registers the package's skills in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from pydantic import JsonValue

from codepilot.core.contract import JsonObject
from codepilot.core.events import SkillCall
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.skills.basic import basic_skills
from codepilot.skills.registry import Registry, Skill

GROUP = "codepilot.skills"


def all_skills() -> Registry:
    """The basic skills and those of every installed package."""
    return discovered_skills(basic_skills())


def discovered_skills(registry: Registry) -> Registry:
    """`registry`, with what installed packages add to it. One that cannot be taken in is a typed failure naming it."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: (_package(point), point.name)):
        try:
            add = point.load()
            if isinstance(add, Skill):
                registry.add(add)
            else:
                add(registry)
        except CodePilotError:
            raise
        except Exception as error:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The package {_package(point)} adds skills ({point.name} = {point.value}) that cannot be used: "
                f"{type(error).__name__}: {error}",
                next_action=f"Update or uninstall {_package(point)}.",
                package=_package(point),
            ) from error
    return registry


def answer_calls(capability: Capability) -> Callable[[str, JsonObject], JsonValue]:
    """What an executor's `answer` is: calls of LOCAL skills by code inside, held to a task's capability."""
    return lambda name, arguments: _installed().answer(capability)(name, arguments)


def count_calls(calls: Sequence[SkillCall]) -> None:
    """What an executor's `count` is: metrics of the calls that its kernels tell of."""
    if calls:
        _installed().count(calls)


@cache
def _installed() -> Registry:
    """Looked for when first needed, so that a broken package harms only those who use skills."""
    return all_skills()


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "(unknown)"
