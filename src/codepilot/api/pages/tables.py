"""Workers, locks and the audit: pages that are one table each."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from codepilot.api.access import Viewer
from codepilot.api.pages.render import frame_of
from codepilot.api.service import service_of
from codepilot.core.events import State
from codepilot.core.failures import FailureKind
from codepilot.core.run import Run
from codepilot.engine import CodePilot
from codepilot.store import RunFilter
from codepilot.telemetry import now_us
from codepilot.views.board import short_repo
from codepilot.views.dashboard import Cell, Table, render_table
from codepilot.views.text import ago, counted

router = APIRouter(include_in_schema=False)

PAGE = 100
_TONES = {"once": "good", "always": "good", "allow": "good", "denied": "bad", "deny": "bad", "ask": "wait"}


@router.get("/workers")
def workers(request: Request, who: Viewer) -> Response:
    """The workers that live, and what each of them works on."""
    pilot = service_of(request).pilot
    living, now = pilot.workers(), now_us()
    held = {step.worker: step for step in pilot.steps_at_work()}
    rows = []
    for one in living:
        step = held.get(one.worker)
        rows.append(
            [
                Cell(one.worker, code=True),
                Cell(f"{one.host or 'unknown'}, process {one.pid}" if one.pid else "unknown"),
                Cell("takes queued runs" if one.takes_queued else "works on one run", "live" if step else "soft"),
                Cell(step.run_id, link=f"/runs/{step.run_id}") if step else Cell("nothing"),
                Cell(str(step.state).lower() if step else ""),
                Cell(ago(one.beat_at, now), number=True),
            ]
        )
    table = Table(
        "Workers",
        f"{counted(len(living), 'worker')}, {len(held)} at work",
        ("Worker", "Where", "Does", "Run", "Step", "Heartbeat"),
        rows,
        ("No worker is running", "Queued runs wait until one comes: `codepilot worker`."),
        follow=True,
    )
    return HTMLResponse(render_table(frame_of(request, who, "Workers"), table))


@router.get("/locks")
def locks(request: Request, who: Viewer) -> Response:
    """Which run may change the files of which contract lock, and which runs wait for it."""
    pilot = service_of(request).pilot
    held, now = pilot.locks(), now_us()
    holders = pilot.views([one.run_id for one in held])
    waiting = _waiting_for_locks(pilot)
    rows = [
        [
            Cell(one.name, code=True),
            Cell(
                ", ".join(holders[one.run_id].task.locks.get(one.name, ())) if one.run_id in holders else "", code=True
            ),
            Cell(one.run_id, link=f"/runs/{one.run_id}"),
            _waiters(waiting.get((one.run_id, one.name), [])),
            Cell(short_repo(holders[one.run_id].task.repo) if one.run_id in holders else one.repo[:16], code=True),
            Cell(ago(one.taken_at, now), number=True),
        ]
        for one in held
    ]
    table = Table(
        "Locks",
        f"{counted(len(held), 'lock')} held",
        ("Lock", "Files", "Held by", "Waits", "Repository", "Since"),
        rows,
        ("No lock is held", "Name files that one run at a time may change under [locks] in codepilot.toml."),
        follow=True,
    )
    return HTMLResponse(render_table(frame_of(request, who, "Locks"), table))


def _waiting_for_locks(pilot: CodePilot) -> dict[tuple[str, str], list[str]]:
    """The runs that wait for a lock, by its holder and its name."""
    rows = pilot.page(RunFilter(states=(State.BLOCKED,)), PAGE)
    found: dict[tuple[str, str], list[str]] = {}
    for run in pilot.views([row.run_id for row in rows]).values():
        if run.failure is not None and run.failure.kind is FailureKind.LOCK_HELD:
            names = run.failure.details.get("locks")
            for name in names if isinstance(names, list | tuple) else ():
                found.setdefault((str(run.failure.details.get("holder")), str(name)), []).append(run.run_id)
    return found


def _files(holder: Run | None, name: str) -> str:
    return "" if holder is None else ", ".join(holder.task.locks.get(name, ()))


def _waiters(runs: list[str]) -> Cell:
    if len(runs) == 1:
        return Cell(runs[0], link=f"/runs/{runs[0]}")
    return Cell(counted(len(runs), "run"), link="/runs?q=state:blocked") if runs else Cell("nobody")


@router.get("/audit")
def audit(request: Request, who: Viewer, skip: Annotated[int, Query(ge=0, le=100_000)] = 0) -> Response:
    """Who asked for, decided and did what, newest first."""
    entries = list(reversed(service_of(request).pilot.audit()))
    shown = entries[skip : skip + PAGE]
    rows = [
        [
            Cell(one.at[:19].replace("T", " "), number=True),
            Cell(one.by),
            Cell(one.what),
            Cell(one.decision, _TONES.get(one.decision, "soft")),
            Cell(one.operation),
            Cell(one.subject, code=True),
            Cell(one.reason or one.rule),
            Cell(one.run_id, link=f"/runs/{one.run_id}") if one.run_id else Cell(""),
        ]
        for one in shown
    ]
    table = Table(
        "Audit",
        f"{counted(len(entries), 'entry').replace('entrys', 'entries')} of the newest runs",
        ("When (UTC)", "Who", "What", "Decision", "Operation", "Subject", "Why", "Run"),
        rows,
        ("Nothing was asked or decided yet", "Requests, answers and decisions of the policy appear here."),
        f"/audit?skip={skip + PAGE}" if len(entries) > skip + PAGE else "",
    )
    return HTMLResponse(render_table(frame_of(request, who, "Audit"), table))
