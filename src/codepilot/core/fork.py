"""A new run that begins as another one did, up to a point."""

from __future__ import annotations

from collections.abc import Sequence

from codepilot.core.decide import decide_resume
from codepilot.core.events import WAITING, Event, EventDraft, EventType, RunForked
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import replay


def fork(events: Sequence[Event], at: int, run_id: str) -> list[EventDraft]:
    """The first events of run `run_id`: those of another run up to `at`, and where they are from."""
    taken = [event for event in events if event.seq <= at]
    if not 2 <= at <= len(events):
        raise _refusal(f"There is no event {at} to begin from: the run has {len(events)}.")
    past = replay(taken)
    if past.terminal or past.cancel_requested or past.step_id is None:
        raise _refusal(f"Nothing is left to do after event {at}: the run had ended, or was being ended.")
    old, new = past.run_id.removeprefix("r-"), run_id.removeprefix("r-")
    drafts = [
        EventDraft(
            type=event.type,
            data=event.data,
            step_id=event.step_id.replace(old, new) if event.step_id else None,
            attempt=event.attempt,
            artifacts=event.artifacts,
        )
        for event in taken
    ]
    step_id = past.step_id.replace(old, new)
    said = RunForked(run_id=past.run_id, seq=at)
    drafts.append(EventDraft(type=EventType.RUN_FORKED, data=said, step_id=step_id, attempt=past.attempt))
    waits = past.state in WAITING or past.pause_requested
    return [*drafts, *(draft.model_copy(update={"step_id": step_id}) for draft in decide_resume(past) if waits)]


def _refusal(message: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC, message, next_action="`codepilot replay RUN` tells the events by their numbers."
    )
