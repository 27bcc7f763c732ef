"""Reflector: why the last change failed, and what to try."""

from pathlib import Path

from pydantic import JsonValue

from codepilot.agents.protocol import Desk
from codepilot.agents.roles import sections
from codepilot.agents.roles.role import Role, Sections
from codepilot.core.artifacts import Reflection
from codepilot.core.contract import JsonObject
from codepilot.core.events import State
from codepilot.core.task import Capability


def _inputs(desk: Desk) -> Sections:
    return {
        "Plan": sections.plan(desk),
        "Failing tests before": sections.failing_tests(desk),
        "The change": sections.proposal(desk),
        "Its result": sections.last_result(desk),
        "Similar failures before": sections.memories(desk),
        "Failures so far": sections.failures(desk),
    }


def _filled(desk: Desk) -> JsonObject:
    """Where the failures are recorded that it was shown."""
    similar: list[JsonValue] = [
        {"run_id": one.run_id, "seq": one.seq, "similarity": one.similarity} for one in desk.recalled
    ]
    return {"similar_failures": similar} if similar else {}


REFLECTOR = Role(
    name="Reflector",
    purpose="You find out why the last change failed.",
    output=Reflection,
    temperature=0.2,
    max_tokens=2048,
    template=Path(__file__).with_suffix(".md"),
    inputs=_inputs,
    state=State.REFLECT,
    capability=Capability.WRITE_AND_RUN_TESTS,
    recalls="failure",
    given=("similar_failures",),
    filled=_filled,
)
