"""Requests to a run from outside its worker: pause, cancel, resume. Each is an event; none waits."""

from __future__ import annotations

from codepilot.core.decide import decide_cancel, decide_resume
from codepilot.core.events import EventDraft, EventType, Requested
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.engine.close import close_run
from codepilot.engine.house import House
from codepilot.store import StepStatus


def request_pause(house: House, run_id: str) -> None:
    """Ask the worker to stop at the next safe point."""
    _request(house, run_id, EventType.PAUSE_REQUESTED)


def cancel(house: House, run_id: str) -> Run:
    """End a run. If a worker holds it, the worker ends it within a second; else it ends here."""
    _request(house, run_id, EventType.CANCEL_REQUESTED)
    house.store.reclaim(run_id, wait=True)
    if not _held(house, run_id):
        house.store.control(run_id, decide_cancel)
        close_run(house.store.load(run_id), house)
    return house.store.load(run_id)


def resume(house: House, run_id: str) -> Run:
    """Reopen a run that waits or has spent its budget; one whose worker died needs nothing but a worker."""
    run = house.store.load(run_id)
    house.store.reclaim(run_id, wait=True)
    if _held(house, run_id):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Run {run_id} is being worked on by another process.",
            next_action=f"Follow it with `codepilot logs {run_id} --follow`.",
        )
    house.store.control(run_id, decide_resume)
    return house.store.load(run_id) if not run.terminal or run.resume_state else run


def _request(house: House, run_id: str, kind: EventType) -> None:
    def decide(run: Run) -> list[EventDraft]:
        if run.terminal:
            return []
        return [EventDraft(type=kind, data=Requested(), step_id=run.step_id, attempt=run.attempt)]

    house.store.control(run_id, decide)


def _held(house: House, run_id: str) -> bool:
    """Whether a living worker has a step of the run in hand."""
    return any(step.status is StepStatus.RUNNING for step in house.store.steps(run_id))
