"""Log lines for transitions between the states of a run."""

from __future__ import annotations

import logging

from codepilot.core.contract import JsonObject
from codepilot.core.events import Event, RunBlocked, RunFinished, RunPaused, State, StepQueued
from codepilot.core.run import Run

_log = logging.getLogger(__name__)


def log_transition(before: Run, run: Run, event: Event) -> None:
    """Log the event if it moves the run to another state. `before` is the run when its open step began."""
    state = _state_after(event)
    if state is None or state is run.state:
        return
    since = run.step_open_since or before.updated_at
    fields: JsonObject = {
        "taskId": run.task.task_id,
        "iteration": run.spent.iterations,
        "fromState": run.state,
        "toState": state,
        "durationSeconds": round(max(0, event.at - since) / 1e6, 3),
        "tokensUsed": run.spent.tokens - before.spent.tokens,
    }
    extra = {
        "run_id": run.run_id,
        "step_id": event.step_id,
        "role": run.state,
        "attempt": event.attempt,
        "event": "state_transition",
        "fields": fields,
    }
    _log.info("%s %s -> %s", run.run_id, run.state, state, extra=extra)


def _state_after(event: Event) -> State | None:
    match event.data:
        case StepQueued(state=state) | RunFinished(state=state):
            return state
        case RunBlocked():
            return State.BLOCKED
        case RunPaused():
            return State.PAUSED
    return None
