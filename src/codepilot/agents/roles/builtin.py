"""The built-in roles: what each sees, gives back and how its model is asked. The guidance of each is in a .md file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path

from pydantic import JsonValue

from codepilot.agents.protocol import StepContext
from codepilot.agents.roles import sections
from codepilot.agents.roles.role import Names, Role, Sections
from codepilot.core.areas import misnamed
from codepilot.core.artifacts import PatchCandidate, Reflection, RepoMap, Review
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import State
from codepilot.core.plan import Plan
from codepilot.core.task import Capability
from codepilot.skills import score_patch_quality


def shows(parts: Mapping[str, Callable[[StepContext], str]]) -> Callable[[StepContext], Sections]:
    """Prompt sections by title."""
    return lambda context: {title: section(context) for title, section in parts.items()}


REPO_MAPPER = Role(
    name="RepoMapper",
    purpose="You find out how a repository builds and tests itself and where its parts lie.",
    output=RepoMap,
    temperature=0.2,
    max_tokens=2048,
    template=Path(__file__).with_name("repo_mapper.md"),
    inputs=shows(
        {
            "Project": sections.project,
            "Known about this repository": sections.quirks,
            "Failing tests": sections.red_tests,
            "Failures so far": sections.failures,
            "The map so far": sections.repository,
        }
    ),
    state=State.MAP_REPO,
    quirks=True,
    outline_tokens=2000,
)


def planner_check(made: Contract, names: Names) -> list[str]:
    """Reject nodes and areas that cannot be carried out."""
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
    template=Path(__file__).with_name("planner.md"),
    inputs=shows(
        {
            "Constraints": sections.constraints,
            "Repository": sections.repository,
            "Known about this repository": sections.quirks,
            "Failing tests": sections.failing_tests,
            "Similar tasks before": sections.memories,
            "Failures so far": sections.failures,
            "Changes that did not hold, and what came of them": sections.red_cycles,
            "Last reflection": sections.reflection,
            "Parts that are done and stay": sections.parts_that_stay,
        }
    ),
    state=State.PLAN,
    outline_tokens=1500,
    context_tokens=6000,
    recalls="pattern",
    quirks=True,
    given=("critique",),
    check=planner_check,
)


IMPLEMENTER = Role(
    name="Implementer",
    purpose="You change the code so that the failing tests pass and nothing else breaks.",
    output=PatchCandidate,
    temperature=0.2,
    max_tokens=4096,
    template=Path(__file__).with_name("implementer.md"),
    inputs=shows(
        {
            "Constraints": sections.constraints,
            "Repository": sections.repository,
            "Known about this repository": sections.quirks,
            "Plan": sections.plan,
            "Areas": sections.areas,
            "Failing tests": sections.failing_tests,
            "Changes that did not hold": sections.attempts,
            "Result of the last change": sections.last_result,
            "Failures so far": sections.failures,
            "Reflection on it": sections.reflection,
            "The review asked for": sections.objections,
        }
    ),
    state=State.IMPLEMENT,
    quirks=True,
    context_tokens=6000,
    capability=Capability.FULL_SHELL,
    given=("diff", "touched_files", "alternatives", "searched"),
    filled=lambda context: {"diff": "", "touched_files": []},
)


class TestsWritten(Contract):
    """The added tests, and what each would have caught."""

    __test__ = False

    tests: tuple[str, ...]
    rationale: str


TEST_WRITER = Role(
    name="TestWriter",
    purpose="You write regression tests for a change that another has made.",
    output=TestsWritten,
    temperature=0.3,
    max_tokens=4096,
    template=Path(__file__).with_name("test_writer.md"),
    inputs=shows(
        {
            "Constraints": sections.constraints,
            "Known about this repository": sections.quirks,
            "Where tests are": sections.test_places,
            "What must hold": sections.criteria,
            "Failing tests before": sections.failing_tests,
        }
    ),
    capability=Capability.WRITE_AND_RUN_TESTS,
    quirks=True,
)


def _reflector_filled(context: StepContext) -> JsonObject:
    """References to the similar failures in the prompt."""
    similar: list[JsonValue] = [
        {"run_id": one.run_id, "seq": one.seq, "similarity": one.similarity}
        for one in context.recalled
        if one.memory.kind == "failure"
    ]
    return {"similar_failures": similar} if similar else {}


REFLECTOR = Role(
    name="Reflector",
    purpose="You find out why the last change failed.",
    output=Reflection,
    temperature=0.2,
    max_tokens=2048,
    template=Path(__file__).with_name("reflector.md"),
    inputs=shows(
        {
            "Plan": sections.plan,
            "Failing tests before": sections.failing_tests,
            "The change": sections.proposal,
            "Its result": sections.last_result,
            "Known about this repository": sections.quirks,
            "Similar failures before": sections.memories,
            "Failures so far": sections.failures,
        }
    ),
    state=State.REFLECT,
    capability=Capability.WRITE_AND_RUN_TESTS,
    recalls="failure",
    quirks=True,
    given=("similar_failures",),
    filled=_reflector_filled,
)


def _reviewer_filled(context: StepContext) -> JsonObject:
    quality = score_patch_quality(context.run.proposal.patch.diff if context.run.proposal else "")
    return {"patch_loc": quality.added + quality.removed}


def _reviewer_check(made: Contract, names: Names) -> list[str]:
    """Nobody could act on a refusal without a reason."""
    if isinstance(made, Review) and made.verdict == "REQUEST_CHANGES" and not any(map(str.strip, made.reasons)):
        return ["reasons: say what must be different, or approve"]
    return []


def _reviewer_unreadable(why: str) -> JsonObject:
    """An unreadable reply counts as no approval."""
    return {"verdict": "REQUEST_CHANGES", "reasons": [f"the reviewer gave no verdict that can be read: {why}"]}


REVIEWER = Role(
    name="Reviewer",
    purpose="You approve a change, or say what must be different.",
    output=Review,
    temperature=0.2,
    max_tokens=2048,
    template=Path(__file__).with_name("reviewer.md"),
    inputs=shows(
        {
            "Constraints": sections.constraints,
            "Plan": sections.plan,
            "The change": sections.proposal,
            "Its tests": sections.last_result,
        }
    ),
    state=State.REVIEW,
    given=("patch_loc", "policy_checks"),
    filled=_reviewer_filled,
    check=_reviewer_check,
    unreadable=_reviewer_unreadable,
)


ROLES: Mapping[State, Role] = {role.state: role for role in (REPO_MAPPER, PLANNER, IMPLEMENTER, REFLECTOR, REVIEWER)}
"""The role for each state."""

PARTS: tuple[Role, ...] = (IMPLEMENTER, TEST_WRITER)
"""The roles that may have a node of a plan; installed packages add to these."""

GROUP = "codepilot.roles"
"""The entry point group of installed roles. An entry point names a `Role` that plays a part of IMPLEMENT."""

_log = logging.getLogger(__name__)


def all_parts() -> tuple[Role, ...]:
    """The roles that may have a node of a plan: the built-in ones and those of every installed package."""
    found = list(PARTS)
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            found.append(_usable(point.load(), found))
        except Exception as error:  # noqa: BLE001  (it is anybody's code)
            _log.warning("The role %s = %s cannot be used: %s", point.name, point.value, error)
    return tuple(found)


def _usable(role: object, known: list[Role]) -> Role:
    if not isinstance(role, Role):
        raise TypeError(f"it is a {type(role).__name__}, not a Role")
    if not role.name.strip() or not role.name.isprintable():
        raise ValueError(f"its name is {role.name!r}")
    if role.state is not State.IMPLEMENT:
        raise ValueError(f"it plays {role.state}; installed roles play parts of {State.IMPLEMENT}")
    if role.name in [other.name for other in known]:
        raise ValueError(f"there is a role {role.name} already")
    role.template.read_text(encoding="utf-8")
    role.schema()
    return role
