"""What makes a task or a change risky enough for a second look: rules as data. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codepilot.core.globs import covers
from codepilot.core.plan import Plan
from codepilot.core.task import Capability, InteractionMode, TaskSpec

if TYPE_CHECKING:
    from collections.abc import Callable

SENSITIVE = (
    ".github/**",
    ".gitlab-ci.yml",
    "Jenkinsfile",
    "Dockerfile*",
    "docker-compose*",
    "**/migrations/**",
    "*.sql",
    "*.tf",
    "{deploy,helm,infra,k8s,terraform}/**",
)
"""Paths of infrastructure and data migrations, in addition to the policy's `protected_areas`."""
LARGE_SHARE = 0.5
"""A change above this share of `patch_lines` is large."""
MANY_PARTS = 6


@dataclass(frozen=True)
class Looked:
    """What the rules look at: the task, and its plan or its change."""

    task: TaskSpec
    plan: Plan | None = None
    paths: Sequence[str] = ()
    lines: int = 0


@dataclass(frozen=True)
class Rule:
    name: str
    why: Callable[[Looked], str]
    """Why the rule applies; empty if it does not."""


def _sensitive(seen: Looked) -> str:
    """A change touches a sensitive path, or a plan that allows one names it."""
    allowed = seen.plan.allowed_areas if seen.plan is not None else ()
    names = [*seen.paths, *(area.rstrip("/*") for area in allowed)]
    areas = (*SENSITIVE, *seen.task.policy.protected_areas)
    found = [name for name in dict.fromkeys(names) if name and any(_is_in(area, name) for area in areas)]
    return f"it touches {', '.join(found[:5])}" if found else ""


def _is_in(area: str, name: str) -> bool:
    return covers(area, name) or covers(area, f"{name}/x")


def _large(seen: Looked) -> str:
    limit = seen.task.budget.patch_lines
    return f"it changes {seen.lines} lines of at most {limit}" if seen.lines > LARGE_SHARE * limit else ""


RULES: tuple[Rule, ...] = (
    Rule(
        "full_shell",
        lambda seen: "it may use a shell" if seen.task.risk_profile.capability is Capability.FULL_SHELL else "",
    ),
    Rule(
        "ask_every_step",
        lambda seen: (
            "a person watches every step"
            if seen.task.risk_profile.interaction.mode is InteractionMode.ASK_EVERY_STEP
            else ""
        ),
    ),
    Rule("sensitive_paths", _sensitive),
    Rule("large_patch", _large),
    Rule(
        "many_parts",
        lambda seen: (
            f"it has {len(seen.plan.nodes)} parts"
            if seen.plan is not None and len(seen.plan.nodes) >= MANY_PARTS
            else ""
        ),
    ),
)


def risks(seen: Looked) -> tuple[str, ...]:
    """Why a critic looks at the plan or the change first; empty if nothing about it is risky."""
    return tuple(f"{rule.name}: {why}" for rule in RULES if (why := rule.why(seen)))
