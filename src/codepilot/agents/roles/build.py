"""The roles of a build: the planner, the coder, the tester and the reflector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from codepilot.agents.protocol import StepContext
from codepilot.agents.roles import sections
from codepilot.agents.roles.builtin import (
    IMPLEMENTER,
    PLANNER,
    REFLECTOR,
    TEST_WRITER,
    TestsWritten,
    planner_check,
    shows,
)
from codepilot.agents.roles.role import Names, Role
from codepilot.agents.transcript import bounded
from codepilot.core.artifacts import Reflection, TestResult
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import EditsFound, PatchProposed, State
from codepilot.core.plan import Plan
from codepilot.core.task import Capability

LEAST_PARTS, MOST_PARTS = 2, 5
FILES = (
    "create_file",
    "read_file",
    "list_files",
    "delete_file",
    "edit_file",
    "write_file",
    "search_code",
)
MAX_MESSAGE = 1_500
MAX_ERRORS = 8
CONVENTIONS: Mapping[str, str] = {
    "python": "Python. Modules and packages lie at the top, tests in tests/test_*.py; `python -m pytest` at the top"
    " runs them. The standard library, pytest and hypothesis are there; other packages must be approved."
    " Give requirements.txt (empty if the standard library is enough) and README.md.",
    "node": 'Node.js. package.json has the script `"test": "node --test"`, tests are *.test.js or in test/ and use'
    " node:test and node:assert. Node's own modules are there, and fast-check if it is installed; other packages must"
    " be approved. Give package.json and README.md.",
    "java": "Java with Maven. pom.xml uses what the local repository has, tests are JUnit in src/test/java. Give"
    " pom.xml and README.md.",
}
PROPERTIES: Mapping[str, str] = {
    "python": "property-based tests with hypothesis (`from hypothesis import given, strategies as st`)",
    "node": "property-based tests with fast-check if it is installed, else loops over generated inputs",
    "java": "tests over many generated inputs",
}


def language(context: StepContext) -> str:
    return CONVENTIONS[context.run.task.language or "python"]


def properties(context: StepContext) -> str:
    return f"Beside examples: edge cases, errors, and {PROPERTIES[context.run.task.language or 'python']}."


def files(context: StepContext) -> str:
    """The files that the program has so far."""
    run = context.run
    made = run.proposal.patch.touched_files if run.proposal else ()
    return "\n".join(made[:200])


def feedback(context: StepContext) -> str:
    """What came of every iteration so far: what failed, and what was thought of it."""
    parts: list[str] = []
    number = 0
    for event in context.earlier:
        match event.data:
            case PatchProposed():
                number += 1
            case TestResult() as result if not result.passed:
                lines = [f"## Iteration {number}: {result.summary.passed} passed"]
                lines += [
                    f"- {one.test}: {one.error_type}: {bounded(one.message, MAX_MESSAGE)}"
                    for one in result.errors[:MAX_ERRORS]
                ]
                parts.append("\n".join(lines))
            case Reflection() as thought:
                parts.append(f"Cause: {thought.root_cause}\nNext: {thought.fix_hypothesis} ({thought.confidence})")
            case _:
                pass
    return bounded("\n".join(parts), sections.MAX_SECTION)


def edits(context: StepContext) -> str:
    """What a person changed in the program's directory: it stands."""
    found = [event.data for event in context.earlier if isinstance(event.data, EditsFound)]
    if not found:
        return ""
    last = found[-1]
    listed = ", ".join(dict.fromkeys(path for one in found for path in one.files))
    return f"A person edited {listed}. Respect it: change it only for a reason that you give.\n{last.diff}"


def _plan_of(value: JsonObject) -> JsonObject:
    """A plan with `subtasks` and `dependencies` as nodes."""
    subtasks = value.get("subtasks")
    if not isinstance(subtasks, list) or "nodes" in value:
        return value
    given = value.get("dependencies")
    dependencies: Mapping[str, Any] = given if isinstance(given, dict) else {}
    nodes: list[JsonValue] = []
    for number, subtask in enumerate(subtasks, 1):
        name = f"subtask_{number}"
        fields: JsonObject = dict(subtask) if isinstance(subtask, dict) else {"title": str(subtask)}
        nodes.append({"id": name, "depends_on": dependencies.get(name, []), **fields})
    kept = {name: item for name, item in value.items() if name not in ("subtasks", "dependencies")}
    return {**kept, "nodes": nodes}


def _check_plan(made: Contract, names: Names) -> list[str]:
    """A build has two to five parts that say what is to be made."""
    wrong = planner_check(made, names)
    if not isinstance(made, Plan):
        return wrong
    if not LEAST_PARTS <= len(made.nodes) <= MOST_PARTS:
        wrong.append(f"nodes: a build has {LEAST_PARTS} to {MOST_PARTS} parts, not {len(made.nodes)}")
    wrong += [
        f"node {node.id}: give it a title that says what is made" for node in made.nodes if not node.title.strip()
    ]
    return wrong


def _guidance(name: str) -> Path:
    return Path(__file__).with_name(f"build_{name}.md")


BUILD_PLANNER: Role = replace(
    PLANNER,
    purpose="You divide a program that is to be made into parts.",
    template=_guidance("planner"),
    inputs=shows(
        {
            "Language": language,
            "Constraints": sections.constraints,
            "Files so far": files,
            "Edited by a person": edits,
            "Similar tasks before": sections.memories,
            "Feedback so far": feedback,
        }
    ),
    outline_tokens=0,
    context_tokens=0,
    skills=FILES,
    check=_check_plan,
    reads=_plan_of,
)

CODER: Role = replace(
    IMPLEMENTER,
    name="Coder",
    purpose="You write a program, file by file.",
    template=_guidance("coder"),
    inputs=shows(
        {
            "Language": language,
            "Constraints": sections.constraints,
            "Plan": sections.plan,
            "Files so far": files,
            "Edited by a person": edits,
            "Result of the last iteration": sections.last_result,
            "Feedback so far": feedback,
            "The review asked for": sections.objections,
        }
    ),
    context_tokens=0,
    capability=Capability.WRITE_WITH_DIFF,
    given=("diff", "touched_files", "alternatives", "searched", "suspect"),
    skills=FILES,
)

TESTER: Role = replace(
    TEST_WRITER,
    name="Tester",
    purpose="You write the tests of a new program.",
    output=TestsWritten,
    template=_guidance("tester"),
    inputs=shows(
        {
            "Language": language,
            "What tests there are": properties,
            "Constraints": sections.constraints,
            "Plan": sections.plan,
            "What must hold": sections.criteria,
            "Edited by a person": edits,
            "Feedback so far": feedback,
        }
    ),
    capability=Capability.WRITE_WITH_DIFF,
    skills=FILES,
)

BUILD_REFLECTOR: Role = replace(
    REFLECTOR,
    purpose="You find out why the tests of a new program fail.",
    template=_guidance("reflector"),
    inputs=shows(
        {
            "Language": language,
            "Plan": sections.plan,
            "Files so far": files,
            "Result of the last iteration": sections.last_result,
            "Feedback so far": feedback,
            "Similar failures before": sections.memories,
        }
    ),
    capability=Capability.READ_ONLY,
    skills=FILES,
)

BUILD_ROLES: Mapping[State, Role] = {role.state: role for role in (BUILD_PLANNER, CODER, BUILD_REFLECTOR)}
BUILD_PARTS: tuple[Role, ...] = (CODER, TESTER)
"""The roles that may have a part of a build's plan."""
