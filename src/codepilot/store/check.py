"""The proof that a run's stored views are what its log tells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from codepilot.core.contract import canonical_json
from codepilot.core.events import Event
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run, replay
from codepilot.store.projection import fold_steps, run_columns
from codepilot.store.rows import OPEN, StepRow, StepStatus


def check_run(
    log: Sequence[Event],
    small: Mapping[str, Any],
    stored: tuple[int, str | None],
    current: Run,
    steps: Sequence[StepRow],
) -> None:
    """Raise INTERNAL with the difference unless log, view (None: of another version), row and steps agree."""
    run_id = log[0].run_id
    for place, event in enumerate(log, start=1):
        if event.seq != place:
            raise _broken(run_id, f"the log has a gap: event {place} is missing (found {event.seq})")
    view_seq, view = stored
    if not 1 <= view_seq <= len(log):
        raise _broken(run_id, f"its view stands at event {view_seq}, the log ends at {len(log)}")
    if view is not None:
        _same(run_id, "stored view", json.loads(view), _tale(replay(log[:view_seq])))
    told = replay(log)
    _same(run_id, "run as loaded", _tale(current), _tale(told))
    expected = run_columns(told)
    _same(run_id, "row", {name: small[name] for name in expected}, expected)
    found: dict[tuple[str | None, int], StepStatus] = {
        (step.step_id, step.attempt): StepStatus.PENDING if step.status in OPEN else step.status for step in steps
    }
    _same(run_id, "steps", _named(found), _named(fold_steps(log)))


def _tale(run: Run) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(canonical_json(run))
    return told


def _named(statuses: Mapping[tuple[str | None, int], StepStatus]) -> dict[str, str]:
    return {f"{step} attempt {attempt}": status.value for (step, attempt), status in statuses.items()}


def _same(run_id: str, what: str, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    names = sorted(found.keys() | expected.keys())
    wrong = [name for name in names if found.get(name) != expected.get(name)]
    if wrong:
        told = "; ".join(f"{name} is {found.get(name)!r}, the log tells {expected.get(name)!r}" for name in wrong[:5])
        raise _broken(run_id, f"its {what} differs from its log: {told}")


def _broken(run_id: str, why: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INTERNAL,
        f"Run {run_id} is inconsistent: {why}.",
        next_action="Report it with a copy of the database; the log itself is kept.",
        run_id=run_id,
    )
