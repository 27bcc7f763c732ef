"""The circuit breaker: a call that fails again and again in the same way, in whichever steps it did, leads nowhere.

It halts the part of the plan that makes it, and that only; where there is no other part it ends the run.
"""

from collections.abc import Sequence

from codepilot.core.contract import Contract
from codepilot.core.events import NodeChanged, SkillCall, TurnFinished
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.plan import Plan

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


def halts_a_part(plan: Plan | None, failure: Failure) -> bool:
    """Whether what failed at a node leaves the others to be walked: only those that wait for it are given up."""
    return failure.kind is FailureKind.REPEATED_FAILURE and plan is not None and len(plan.nodes) > 1


def halted(plan: Plan, failed: Sequence[NodeChanged]) -> Failure | None:
    """The one error that tells of every part of a plan that was halted, once all others are walked."""
    causes = [(changed.node, changed.failure) for changed in failed if changed.failure is not None]
    if not causes:
        return None
    titles = {node.id: f"{node.id} ({node.title})" if node.title else node.id for node in plan.nodes}
    blocked = list(dict.fromkeys(node for changed in failed for node in changed.blocked))
    told = " ".join(f"{titles[node]}: {failure.message}" for node, failure in causes)
    waiting = f" Not begun without that: {', '.join(titles[node] for node in blocked)}." if blocked else ""
    return Failure(
        kind=FailureKind.REPEATED_FAILURE,
        message=f"A part of the plan was halted at {told}{waiting}",
        details={**causes[0][1].details, "halted": [node for node, _ in causes], "blocked": [*blocked]},
    )


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
