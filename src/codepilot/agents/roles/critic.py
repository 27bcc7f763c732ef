"""The critic: a second look at risky plans and changes. Its guidance is in `critic.md`."""

from __future__ import annotations

from pathlib import Path

from codepilot.agents.protocol import StepContext
from codepilot.agents.roles import sections
from codepilot.agents.roles.role import Names, Role, Sections
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import State
from codepilot.core.plan import Critique


def _inputs(context: StepContext) -> Sections:
    return {"Constraints": sections.constraints(context), "Repository": sections.repository(context)}


def _check(made: Contract, names: Names) -> list[str]:
    """Nobody could act on an objection without a reason."""
    if isinstance(made, Critique) and made.verdict != "APPROVE" and not any(map(str.strip, made.reasons)):
        return ["reasons: say what must be different, or approve"]
    return []


def _unreadable(why: str) -> JsonObject:
    """An unreadable reply counts as no approval."""
    return {"verdict": "REQUEST_CHANGES", "reasons": [f"the critic gave no verdict that can be read: {why}"]}


CRITIC = Role(
    name="Critic",
    purpose="You look for harm in risky work before it is carried out or accepted.",
    output=Critique,
    temperature=0.2,
    max_tokens=2048,
    template=Path(__file__).with_name("critic.md"),
    inputs=_inputs,
    state=State.PLAN,
    given=("risks",),
    check=_check,
    unreadable=_unreadable,
)
