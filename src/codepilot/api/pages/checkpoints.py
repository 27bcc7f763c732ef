"""The checkpoints of an interactive run: the timeline, one of them, two compared; messages and rollbacks."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from codepilot.api.access import Fields, Operator, Viewer
from codepilot.api.pages.notices import Notice, see_noticed
from codepilot.api.pages.render import render
from codepilot.api.problems import Refused
from codepilot.api.service import service_of
from codepilot.core.checkpoint import MessageSent, RolledBack
from codepilot.core.events import EventType
from codepilot.core.run import Run
from codepilot.engine.interactive.requests import Asked, Listed
from codepilot.views.diff import file_diffs

router = APIRouter(include_in_schema=False)

Named = Annotated[str, Query(max_length=100)]
WAIT_SEC = 5.0
"""How long a form waits for the run's worker."""
_EVENTS = " ".join(kind.value for kind in EventType)
_TONES = {"valid": "good", "invalid": "bad", "skipped": "warn"}


@router.get("/runs/{run_id}/checkpoints")
def checkpoints(request: Request, who: Viewer, run_id: str, notice: Notice) -> Response:
    """The chain, newest first."""
    pilot = service_of(request).pilot
    run = pilot.run(run_id)
    listed = pilot.checkpoints(run.run_id)
    return render(
        request,
        who,
        "checkpoints",
        run=run,
        title=_title(run),
        rows=[_row(one) for one in reversed(listed)],
        mode=run.task.execution_mode,
        notice=notice,
        events=_EVENTS,
    )


@router.get("/runs/{run_id}/checkpoints/compare")
def compare(
    request: Request,
    who: Viewer,
    run_id: str,
    before: Annotated[str, Query(alias="from", max_length=100)] = "start",
    after: Annotated[str, Query(alias="to", max_length=100)] = "last",
) -> Response:
    pilot = service_of(request).pilot
    run = pilot.run(run_id)
    patch = pilot.compare_checkpoints(run.run_id, before, after).decode("utf-8", "replace")
    heading = f"From {before} to {after}"
    return render(request, who, "checkpoint", run=run, title=heading, files=file_diffs(patch), row=None, total=False)


@router.get("/runs/{run_id}/checkpoints/{checkpoint}")
def checkpoint(request: Request, who: Viewer, run_id: str, checkpoint: str, total: bool = False) -> Response:
    """What one checkpoint found, and its change."""
    pilot = service_of(request).pilot
    run = pilot.run(run_id)
    patch = pilot.checkpoint_diff(run.run_id, checkpoint, total=total).decode("utf-8", "replace")
    row = next(
        (_row(one) for one in pilot.checkpoints(run.run_id) if one.checkpoint.checkpoint_id.startswith(checkpoint)),
        None,
    )
    title = f"Checkpoint {checkpoint}"
    return render(request, who, "checkpoint", run=run, title=title, files=file_diffs(patch), row=row, total=total)


@router.post("/runs/{run_id}/message")
def message(request: Request, who: Operator, run_id: str, fields: Fields) -> Response:
    pilot = service_of(request).pilot
    text, later = fields.get("text", "").strip()[:20_000], fields.get("when") == "turn"
    if not text:
        raise Refused(422, "The message is empty.", "Write what the agent should know.")
    wait = 0.0 if later else WAIT_SEC
    asked = pilot.message(run_id, text, when="turn" if later else "now", by=who.name, wait_sec=wait)
    place = "live" if fields.get("back") == "live" else "checkpoints"
    return _back(request, asked, "The message is recorded; the agent gets it while it works.", place)


@router.post("/runs/{run_id}/checkpoint")
def take(request: Request, who: Operator, run_id: str, fields: Fields) -> Response:
    asked = service_of(request).pilot.checkpoint(run_id, by=who.name, wait_sec=WAIT_SEC)
    return _back(request, asked, "The checkpoint is made as soon as the run's worker sees the request.")


@router.post("/runs/{run_id}/rollback")
def rollback(request: Request, who: Operator, run_id: str, fields: Fields) -> Response:
    pilot = service_of(request).pilot
    files = tuple(line.strip() for line in fields.get("files", "").splitlines() if line.strip())
    asked = pilot.rollback(
        run_id,
        fields.get("checkpoint") or None,
        files,
        smart=fields.get("smart") == "yes",
        by=who.name,
        wait_sec=WAIT_SEC,
    )
    return _back(request, asked, "The rollback is recorded; it happens as soon as the run's worker sees it.")


def _back(request: Request, asked: Asked, later: str, place: str = "checkpoints") -> Response:
    match asked.done:
        case None if asked.run.terminal:
            notice = "The run has ended before its worker saw it: it is not carried out."
        case None:
            notice = later
        case RolledBack(failure=None) as done:
            notice = f"Files were put back to {done.checkpoint_id or 'the beginning'}; before it: {done.before}."
        case RolledBack(failure=failure) if failure is not None:
            notice = f"Nothing was put back: {failure.message}"
        case MessageSent(delivered=delivered):
            refused = "The run has ended; no agent got it." if asked.run.terminal else "The agent takes no messages."
            notice = "The agent has the message." if delivered else refused
        case _:
            notice = "Done."
    return see_noticed(request, f"/runs/{asked.run.run_id}/{place}", notice)


def _row(one: Listed) -> dict[str, object]:
    """A checkpoint for a person."""
    point = one.checkpoint
    return {
        "at": one.at,
        "id": point.checkpoint_id,
        "trigger": point.trigger,
        "tone": _TONES[point.status],
        "status": point.status,
        "severity": point.severity or "",
        "changed": point.files_changed_count,
        "total": point.files_changed_total,
        "files": point.files_changed[:20],
        "violations": point.violations,
        "violations_left_out": point.violations_left_out,
        "action": "" if point.action_taken == "none" else point.action_taken,
        "promoted": one.promoted,
        "rolled_back": one.rolled_back,
        "sampled": point.left_out,
        "frozen": f"{point.frozen_us / 1000:.0f} ms",
        "answer": "" if one.answer is None else one.answer.response or ("" if one.answer.acknowledged else "no answer"),
    }


def _title(run: Run) -> str:
    return run.task.goal.natural.strip().partition("\n")[0][:160]
