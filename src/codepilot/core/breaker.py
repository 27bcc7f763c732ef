"""The circuit breaker: stop a call that keeps failing in the same way, across all steps of a run.

It halts only the plan node that makes the call; if the plan has no other node, it ends the run.
"""

from collections.abc import Sequence

from codepilot.core.contract import Contract
from codepilot.core.events import NodeChanged, SkillCall, TurnFinished
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.plan import Plan

SAME_CALL_LIMIT = 5
REMEMBERED = 100
UNUSABLE = frozenset({"126", "127"})
"""Exit codes of programs that could not be started."""


class FailedCall(Contract):
    """A failed call and the number of turns in which it failed. `within` limits repetitions to a step and tree."""

    skill: str
    arguments: str
    exit: str
    within: str = ""
    times: int = 1


def count_failed(past: Sequence[FailedCall], turn: TurnFinished, step_id: str | None) -> tuple[FailedCall, ...]:
    """The failed calls after a turn, the latest last. A call counts once a turn."""
    known = {_key(call): call for call in past}
    for failed in _failed_in(turn, step_id):
        before = known.pop(_key(failed), None)
        known[_key(failed)] = failed.model_copy(update={"times": before.times + 1}) if before else failed
    return tuple(known.values())[-REMEMBERED:]


def tripped(
    calls: Sequence[FailedCall], turn: TurnFinished | None = None, step_id: str | None = None
) -> Failure | None:
    """The failure for a call that was repeated too often; with `turn`, only for calls of that turn."""
    named = None if turn is None else {_key(call) for call in _failed_in(turn, step_id)}
    for call in reversed(calls):
        if call.times >= SAME_CALL_LIMIT and (named is None or _key(call) in named):
            return Failure(
                kind=FailureKind.REPEATED_FAILURE,
                message=f"The same call failed {call.times} times in the same way: {call.skill}({call.arguments}) "
                f"gave {_exit_text(call.exit)} each time.",
                details={"skill": call.skill, "arguments": call.arguments, "exit": call.exit, "times": call.times},
            )
    return None


def halts_a_part(plan: Plan | None, failure: Failure) -> bool:
    """True if the failure stops only its plan node and the nodes that depend on it."""
    return failure.kind is FailureKind.REPEATED_FAILURE and plan is not None and len(plan.nodes) > 1


def halted(plan: Plan, failed: Sequence[NodeChanged]) -> Failure | None:
    """One failure for all halted nodes of a plan, once the others are done; None if none was halted."""
    causes = [(changed.node, changed.failure) for changed in failed if changed.failure is not None]
    if not causes:
        return None
    titles = {node.id: f"{node.id} ({node.title})" if node.title else node.id for node in plan.nodes}
    blocked = list(dict.fromkeys(node for changed in failed for node in changed.blocked))
    reasons = " ".join(f"{titles[node]}: {failure.message}" for node, failure in causes)
    waiting = f" Not begun without that: {', '.join(titles[node] for node in blocked)}." if blocked else ""
    return Failure(
        kind=FailureKind.REPEATED_FAILURE,
        message=f"A part of the plan was halted at {reasons}{waiting}",
        details={**causes[0][1].details, "halted": [node for node, _ in causes], "blocked": [*blocked]},
    )


def _failed_in(turn: TurnFinished, step_id: str | None) -> list[FailedCall]:
    found = (_failed(call, f"{step_id}@{turn.tree}") for call in turn.calls)
    return list({_key(call): call for call in found if call is not None}.values())


def _failed(call: SkillCall, here: str) -> FailedCall | None:
    """The failed call. A program that ran and failed is repeated only in the same step with unchanged files."""
    if not call.exit or call.status == "policy_violation":
        return None
    answered = call.status == "success" and call.exit not in UNUSABLE
    return FailedCall(skill=call.skill, arguments=call.arguments, exit=call.exit, within=here if answered else "")


def _key(call: FailedCall) -> tuple[str, ...]:
    return call.skill, call.arguments, call.exit, call.within


def _exit_text(exit_: str) -> str:
    return f"exit code {exit_}" if exit_.lstrip("-").isdigit() else f"a {exit_}"
