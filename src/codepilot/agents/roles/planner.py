"""Planner: the cause, and the change that will remove it."""

from pathlib import Path

from codepilot.agents.protocol import Desk
from codepilot.agents.roles import sections
from codepilot.agents.roles.role import Role, Sections
from codepilot.core.events import State
from codepilot.core.plan import Plan


def _inputs(desk: Desk) -> Sections:
    return {
        "Constraints": sections.constraints(desk),
        "Repository": sections.written(desk.run.repo_map),
        "Failing tests": sections.failing_tests(desk),
        "Failures so far": sections.failures(desk),
        "Changes that did not hold, and what came of them": sections.red_cycles(desk),
        "Last reflection": sections.written(desk.run.reflection),
    }


PLANNER = Role(
    state=State.PLAN,
    name="Planner",
    purpose="You find the cause of the problem and plan the change.",
    output=Plan,
    temperature=0.3,
    max_tokens=2048,
    template=Path(__file__).with_suffix(".md"),
    inputs=_inputs,
)
