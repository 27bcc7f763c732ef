"""A person's review of a change, hunk by hunk."""

from __future__ import annotations

from typing import Literal

from codepilot.core.contract import Contract

HunkChoice = Literal["accepted", "rejected", "left"]


class HunkDecision(Contract):
    """What a person decided on one piece of a change. `left` is undecided: it is left out without a reason."""

    hunk: str
    """`FILE`, `FILE:HUNK` or `FILE:HUNK.PART`."""
    decision: HunkChoice
    reason: str = ""


class HunksReviewed(Contract):
    """A person took a part of the change of this run, which itself stays as it is."""

    by: str = "user"
    decisions: tuple[HunkDecision, ...]
    tree: str | None = None
    """The base with what was accepted; None if nothing was."""
    judged_by: str | None = None
    """The run that judges what remains; None if nothing or everything remains."""
    again: str | None = None
    """The run that works on the rejected hunks again, if that was asked for."""

    def of(self, decision: HunkChoice) -> tuple[HunkDecision, ...]:
        return tuple(one for one in self.decisions if one.decision == decision)
