"""The circuit breaker: a call that fails again and again in the same way ends the run, in whichever steps it did."""

from __future__ import annotations

from collections.abc import Sequence

from codepilot.core.contract import Contract
from codepilot.core.events import SkillCall, TurnFinished
from codepilot.core.failures import Failure, FailureKind

SAME_CALL_LIMIT = 5
REMEMBERED = 100
UNUSABLE = frozenset({"126", "127"})
"""Exits of programs that could not be run at all."""


class FailedCall(Contract):
    """A call that failed, and in how many turns. `within` bounds what is taken for a repetition; empty is the run."""

    skill: str
    arguments: str
    exit: str
    within: str = ""
    times: int = 1


def count_failed(past: Sequence[FailedCall], turn: TurnFinished, step_id: str | None) -> tuple[FailedCall, ...]:
    """The failed calls after a turn, the latest last. However often an action makes a call, it counts once."""
    known = {_key(call): call for call in past}
    for failed in _failed_in(turn, step_id):
        before = known.pop(_key(failed), None)
        known[_key(failed)] = failed.model_copy(update={"times": before.times + 1}) if before else failed
    return tuple(known.values())[-REMEMBERED:]


def tripped(
    calls: Sequence[FailedCall], turn: TurnFinished | None = None, step_id: str | None = None
) -> Failure | None:
    """The failure that says what was repeated too often: at any time, or in this turn."""
    named = None if turn is None else {_key(call) for call in _failed_in(turn, step_id)}
    for call in reversed(calls):
        if call.times >= SAME_CALL_LIMIT and (named is None or _key(call) in named):
            return Failure(
                kind=FailureKind.REPEATED_FAILURE,
                message=f"The same call failed {call.times} times in the same way: {call.skill}({call.arguments}) "
                f"gave {_told(call.exit)} each time.",
                details={"skill": call.skill, "arguments": call.arguments, "exit": call.exit, "times": call.times},
            )
    return None


def _failed_in(turn: TurnFinished, step_id: str | None) -> list[FailedCall]:
    found = (_failed(call, f"{step_id}@{turn.tree}") for call in turn.calls)
    return list({_key(call): call for call in found if call is not None}.values())


def _failed(call: SkillCall, here: str) -> FailedCall | None:
    """A program that ran and said no has answered: only to ask again within one step, of the same files, is a loop."""
    if not call.exit or call.status == "policy_violation":
        return None
    answered = call.status == "success" and call.exit not in UNUSABLE
    return FailedCall(skill=call.skill, arguments=call.arguments, exit=call.exit, within=here if answered else "")


def _key(call: FailedCall) -> tuple[str, ...]:
    return call.skill, call.arguments, call.exit, call.within


def _told(exit_: str) -> str:
    return f"exit code {exit_}" if exit_.lstrip("-").isdigit() else f"a {exit_}"
