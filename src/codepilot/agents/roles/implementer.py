"""Implementer: changes the workspace. The platform computes the patch from it."""

from pathlib import Path

from codepilot.agents.protocol import Desk
from codepilot.agents.roles import sections
from codepilot.agents.roles.role import Role, Sections
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.contract import JsonObject
from codepilot.core.events import State
from codepilot.core.task import Capability


def _inputs(desk: Desk) -> Sections:
    return {
        "Constraints": sections.constraints(desk),
        "Repository": sections.written(desk.run.repo_map),
        "Plan": sections.plan(desk),
        "Areas": sections.areas(desk),
        "Failing tests": sections.failing_tests(desk),
        "Changes that did not hold": sections.attempts(desk),
        "Result of the last change": sections.last_result(desk),
        "Failures so far": sections.failures(desk),
        "Reflection on it": sections.written(desk.run.reflection),
        "The review asked for": sections.objections(desk),
    }


def _filled(desk: Desk) -> JsonObject:
    return {"diff": "", "touched_files": []}


IMPLEMENTER = Role(
    name="Implementer",
    purpose="You change the code so that the failing tests pass and nothing else breaks.",
    output=PatchCandidate,
    temperature=0.2,
    max_tokens=4096,
    template=Path(__file__).with_suffix(".md"),
    inputs=_inputs,
    state=State.IMPLEMENT,
    context_tokens=6000,
    capability=Capability.FULL_SHELL,
    given=("diff", "touched_files", "alternatives", "regression_test"),
    filled=_filled,
)
