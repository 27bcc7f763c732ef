"""Reviewer: judgement on top of the platform's own checks, which it cannot overrule."""

from pathlib import Path

from codepilot.agents.protocol import Desk
from codepilot.agents.roles import sections
from codepilot.agents.roles.role import Names, Role, Sections
from codepilot.core.artifacts import Review
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import State
from codepilot.skills import score_patch_quality


def _inputs(desk: Desk) -> Sections:
    return {
        "Constraints": sections.constraints(desk),
        "Plan": sections.plan(desk),
        "The change": sections.proposal(desk),
        "Its tests": sections.last_result(desk),
    }


def _filled(desk: Desk) -> JsonObject:
    quality = score_patch_quality(desk.run.proposal.patch.diff if desk.run.proposal else "")
    return {"patch_loc": quality.added + quality.removed}


def _check(made: Contract, names: Names) -> list[str]:
    """Nobody could act on a refusal without a reason."""
    if isinstance(made, Review) and made.verdict == "REQUEST_CHANGES" and not any(map(str.strip, made.reasons)):
        return ["reasons: say what must be different, or approve"]
    return []


def _unreadable(why: str) -> JsonObject:
    """What cannot be read is no approval."""
    return {"verdict": "REQUEST_CHANGES", "reasons": [f"the reviewer gave no verdict that can be read: {why}"]}


REVIEWER = Role(
    name="Reviewer",
    purpose="You approve a change, or say what must be different.",
    output=Review,
    temperature=0.2,
    max_tokens=2048,
    template=Path(__file__).with_suffix(".md"),
    inputs=_inputs,
    state=State.REVIEW,
    given=("patch_loc", "policy_checks"),
    filled=_filled,
    check=_check,
    unreadable=_unreadable,
)
