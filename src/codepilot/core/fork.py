"""Fork: a new run that copies the events of another one up to a point."""

from __future__ import annotations

from collections.abc import Sequence

from codepilot.core.contract import Contract
from codepilot.core.decide import decide_resume
from codepilot.core.events import WAITING, Event, EventDraft, EventType, RunForked, WorkspaceCreated
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import NOTIFIED, Run, replay

_HALFWAY = frozenset({EventType.STEP_SUCCEEDED, EventType.STEP_SKIPPED, EventType.STEP_FAILED, EventType.BUDGET_WARNED})
"""Events that are recorded together with their consequences."""
_REQUESTS = frozenset({EventType.PAUSE_REQUESTED, EventType.CANCEL_REQUESTED}) | NOTIFIED
"""Requests to the old run and notifications about it, which do not apply to the new one."""
_HANDED_OVER = frozenset({EventType.COMMIT_RECORDED, EventType.BUNDLE_WRITTEN, EventType.LANDING_QUEUED})


def taken_over(events: Sequence[Event], at: int) -> list[Event]:
    """The events that a fork at `at` copies: whole decisions, without requests, commits and bundles."""
    if not 1 <= at <= len(events):
        raise _refusal(f"There is no event {at} to begin from: the run has {len(events)}.")
    if replay(events[:at]).terminal:
        last = max(event.seq for event in events[:at] if event.type is EventType.RUN_FINISHED) - 1
        raise _refusal(
            f"Nothing is left to do after event {at}: the run had ended. Event {last} is the last to fork at."
        )
    end = at
    while end < len(events) and (events[end - 1].type in _HALFWAY or _waits_for_step(events[:end], events[end])):
        end += 1
    taken = list(events[:end])
    if taken[-1].type is EventType.RUN_FINISHED:
        taken.pop()
        while taken[-1].type in _HALFWAY:
            taken.pop()
    over = next((place for place, event in enumerate(taken) if event.type in _HANDED_OVER), len(taken))
    return [event for event in taken[:over] if event.type not in _REQUESTS]


def fork(taken: Sequence[Event], run_id: str, by: str = "user") -> list[EventDraft]:
    """The first events of run `run_id`: the copied ones, then `run_forked` with their origin."""
    past = replay(taken)
    old, new = (f"s-{one.removeprefix('r-')}-" for one in (past.run_id, run_id))
    drafts = [
        EventDraft(
            type=event.type,
            data=_renamed(event.data, past.run_id, run_id),
            step_id=event.step_id.replace(old, new, 1) if event.step_id else None,
            attempt=event.attempt,
            artifacts=event.artifacts,
        )
        for event in taken
    ]
    forked = RunForked(run_id=past.run_id, seq=taken[-1].seq, by=by)
    follows = [EventDraft(type=EventType.RUN_FORKED, data=forked), *_woken(past)]
    step_id = (past.step_id or "").replace(old, new, 1)
    return [*drafts, *(one.model_copy(update={"step_id": step_id, "attempt": past.attempt}) for one in follows)]


def _waits_for_step(taken: Sequence[Event], following: Event) -> bool:
    """True if a step is queued next: at the beginning, or when an ended run is reopened."""
    begun = any(event.type is EventType.STEP_QUEUED for event in taken)
    reopened = taken[-1].type is EventType.RUN_RESUMED and following.type is EventType.STEP_QUEUED
    return not begun or reopened


def _woken(past: Run) -> list[EventDraft]:
    return decide_resume(past) if past.state in WAITING else []


def _renamed(data: Contract, old: str, new: str) -> Contract:
    """Name the workspace after the new run."""
    if isinstance(data, WorkspaceCreated):
        return WorkspaceCreated(workspace=data.workspace.replace(old, new), path=data.path.replace(old, new))
    return data


def _refusal(message: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        message,
        next_action="`codepilot show RUN --events` lists the events by their numbers.",
    )
