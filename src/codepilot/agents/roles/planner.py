"""Planner: the cause, and the change that will remove it."""

from pathlib import Path

from codepilot.agents.protocol import Desk
from codepilot.agents.roles import sections
from codepilot.agents.roles.role import Names, Role, Sections
from codepilot.core.areas import misnamed
from codepilot.core.contract import Contract
from codepilot.core.events import State
from codepilot.core.plan import Plan


def _inputs(desk: Desk) -> Sections:
    return {
        "Constraints": sections.constraints(desk),
        "Repository": sections.written(desk.run.repo_map),
        "Failing tests": sections.failing_tests(desk),
        "Similar tasks before": sections.memories(desk),
        "Failures so far": sections.failures(desk),
        "Changes that did not hold, and what came of them": sections.red_cycles(desk),
        "Last reflection": sections.written(desk.run.reflection),
    }


def _check(made: Contract, names: Names) -> list[str]:
    """What nobody could carry out is told at once, not when it is walked."""
    wrong = []
    for node in made.nodes if isinstance(made, Plan) else ():
        if node.kind == "tool" and node.tool not in names.skills:
            wrong.append(
                f"node {node.id}: there is no tool {node.tool!r}; use one of {', '.join(sorted(names.skills))}"
            )
        if node.kind == "agent" and node.role and node.role not in names.roles:
            wrong.append(f"node {node.id}: there is no role {node.role!r}; use one of {', '.join(sorted(names.roles))}")
    for area in (*made.allowed_areas, *made.forbidden_areas) if isinstance(made, Plan) else ():
        if misnamed(area):
            wrong.append(f"{area!r}: areas are relative to the root of the repository, without `..`")
    if isinstance(made, Plan) and made.nodes and all(node.kind == "tool" for node in made.nodes):
        wrong.append("nodes: at least one must be of kind agent")
    return wrong


PLANNER = Role(
    name="Planner",
    purpose="You find the cause of the problem and plan the change.",
    output=Plan,
    temperature=0.3,
    max_tokens=2048,
    template=Path(__file__).with_suffix(".md"),
    inputs=_inputs,
    state=State.PLAN,
    outline_tokens=1500,
    context_tokens=6000,
    recalls="pattern",
    check=_check,
)
