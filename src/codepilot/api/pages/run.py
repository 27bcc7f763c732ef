"""One run: its page, its log, and the buttons that control it."""

from __future__ import annotations

from itertools import islice
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response

from codepilot.api.access import Fields, Operator, Viewer
from codepilot.api.pages.asked import open_requests
from codepilot.api.pages.notices import Notice, see_noticed
from codepilot.api.pages.render import render
from codepilot.api.present import artifact_id
from codepilot.api.routes.artifacts import READABLE
from codepilot.api.service import Service, service_of
from codepilot.core.access import Scope
from codepilot.core.artifacts import TestResult
from codepilot.core.events import Event, EventType, StepQueued, TurnFinished
from codepilot.core.interactive import ModeSwitch
from codepilot.core.run import Run
from codepilot.engine.change.apply import makes_program
from codepilot.engine.change.landing_queue import can_land
from codepilot.store import Activity, RunFilter
from codepilot.telemetry import describe, now_us
from codepilot.views.board import card_of, short_repo
from codepilot.views.budget import budget_bars, next_for
from codepilot.views.dashboard import Line
from codepilot.views.diff import file_diffs
from codepilot.views.run import outcome_of, run_page
from codepilot.views.text import ago

router = APIRouter(include_in_schema=False)

NEWEST_LINES = 60
MOST_ARTIFACTS = 60
MOST_LINES = 20_000
MOST_ROWS = 400
"""Rows of the change on the page of a run, which is asked for again with each event; the review has all of them."""
MOST_OUTPUT = 4_000


@router.get("/runs/{run_id}")
def run(request: Request, who: Viewer, run_id: str, notice: Notice) -> Response:
    service = service_of(request)
    found = service.pilot.run(run_id)
    events = service.events.of(found.run_id)
    activity = service.pilot.activities(found.run_id).get(found.run_id)
    tree = service.pilot.costs(found.run_id)
    return render(
        request,
        who,
        "run",
        page=run_page(found, events, service.redact, MOST_ROWS, _answer(service, found), activity, links=True),
        at_work=activity is Activity.WORKING,
        last_event=ago(found.updated_at, now_us()),
        dashboard=True,
        output=_output(events),
        program=makes_program(found) and found.proposal is not None,
        run=found,
        asks=open_requests(service, found),
        bars=budget_bars(found, tree),
        tree=tree,
        following=next_for(found, activity),
        lines=lines_of(events, NEWEST_LINES),
        artifacts=_artifacts(service, found.run_id),
        others=_others(service, found),
        alike=_alike(found),
        review=found.verdict is not None and found.applied is None,
        landable=who.scope.allows(Scope.ADMIN) and can_land(found),
        notice=notice,
        events=_EVENTS,
    )


@router.get("/runs/{run_id}/log")
def log(request: Request, who: Viewer, run_id: str) -> Response:
    service = service_of(request)
    found = service.pilot.run(run_id)
    lines = lines_of(service.events.of(found.run_id))
    return render(request, who, "log", run=found, title=_title(found), lines=lines, events=_EVENTS)


@router.post("/runs/{run_id}/{action}")
def control(request: Request, who: Operator, run_id: str, action: str, fields: Fields) -> Response:
    """Pause, resume, cancel or fork a run, then show it."""
    pilot = service_of(request).pilot
    found = pilot.find(run_id)
    match action:
        case "pause":
            pilot.pause(found, by=who.name)
            notice = "The run pauses at its next safe point."
        case "resume":
            alone = fields.get("mode") == "deterministic"
            mode = ModeSwitch(execution_mode="deterministic" if alone else None)
            pilot.resume(found, by=who.name, mode=mode)
            notice = "The run goes on as soon as a worker is free."
        case "cancel":
            pilot.cancel(found, by=who.name)
            notice = "The run is being cancelled."
        case "fork":
            at = fields.get("at", "")
            found = pilot.fork(found, int(at) if at.isdecimal() and len(at) < 19 else None, by=who.name).run_id
            notice = "This run begins with the other one's events."
        case _:
            return Response(status_code=404)
    return see_noticed(request, f"/runs/{found}", notice)


def lines_of(events: list[Event], most: int = MOST_LINES) -> list[Line]:
    """The newest lines of the log, for a person."""
    states, state = [], "INIT"
    for event in events:
        if isinstance(event.data, StepQueued):
            state = event.data.state.value
        states.append(state)
    described = (
        (event, state, describe(event)) for event, state in zip(reversed(events), reversed(states), strict=True)
    )
    lines = (Line(event.at, state, text) for event, state, text in described if text)
    return list(islice(lines, most))[::-1]


def _answer(service: Service, run: Run) -> str:
    if "answer" not in run.documents:
        return ""
    return service.pilot.document(run.run_id, "answer").decode("utf-8", "replace")


def _output(events: list[Event]) -> str:
    """The end of what the last command or action printed."""
    for event in reversed(events):
        if isinstance(event.data, TestResult):
            return event.data.log_tail[-MOST_OUTPUT:]
        if isinstance(event.data, TurnFinished) and isinstance(text := event.data.observation.get("stdout"), str):
            return text[-MOST_OUTPUT:]
    return ""


def _artifacts(service: Service, run_id: str) -> list[dict[str, str]]:
    """The newest artifacts, each with where it can be read and downloaded."""
    found = {artifact_id(row): row for row, _ in service.pilot.artifacts(run_id)}
    place = f"/v1/runs/{run_id}"
    return [
        {
            "name": str(row.ref.type),
            "of": row.state or "",
            "id": row.ref.sha256[:8],
            "read": f"{place}/logs/{name}" if row.ref.type in READABLE else "",
            "link": f"{place}/artifacts/{name}",
            "size": _size(row.ref),
        }
        for name, row in list(found.items())[-MOST_ARTIFACTS:]
    ]


def _alike(run: Run) -> str:
    """The form for a new task, filled in like this one."""
    task = run.task
    repo = task.repo if short_repo(task.repo) else ""  # the service's own directory is not named
    values = {"repo": repo, "ref": task.ref or "", "goal": task.goal.natural, "agent": task.agent}
    lists = {"tests": task.tests, "accept": task.accept, "constraints": task.constraints}
    values |= {name: "\n".join(lines) for name, lines in lists.items()}
    given = {name: text[:1_000] for name, text in values.items() if text}
    return f"/new?{urlencode({'kind': task.kind.value, **given})}"


def _size(ref: object) -> str:
    size = float(getattr(ref, "size_bytes", 0))
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _others(service: Service, run: Run) -> list[object]:
    rows = service.pilot.page(RunFilter(task_id=run.task.task_id), 10)
    views, now = service.pilot.views([row.run_id for row in rows if row.run_id != run.run_id]), now_us()
    return [card_of(one, None, now) for one in views.values()]


def _title(run: Run) -> str:
    return run.task.goal.natural.strip().partition("\n")[0][:160]


@router.get("/compare")
def compare(request: Request, who: Viewer, a: str, b: str) -> Response:
    """Two runs side by side: how they ended, what they cost and what they changed."""
    service = service_of(request)
    found = [service.pilot.run(one) for one in (a, b)]
    sides = [
        {
            "run": one,
            "title": _title(one),
            "card": card_of(one, None, now_us()),
            "files": file_diffs(service.pilot.diff(one.run_id).decode("utf-8", "replace")) if one.proposal else [],
        }
        for one in found
    ]
    facts = [_facts(one) for one in found]
    rows = [(name, facts[0][name], facts[1][name]) for name in facts[0]]
    return render(request, who, "compare", sides=sides, rows=rows)


def _facts(run: Run) -> dict[str, str]:
    from codepilot.views.text import duration, money

    after = run.proof.after if run.proof else run.test_result.summary if run.test_result else None
    return {
        "Result": outcome_of(run).word,
        "Confidence": f"{run.confidence:.2f}" if run.verdict else "none",
        "Agent": run.task.agent,
        "Model": run.task.model or "none",
        "Tests after": f"{after.passed} pass, {len(after.failed) + len(after.errors)} fail" if after else "not run",
        "Iterations": str(run.spent.iterations),
        "Time": duration(run.spent.wall_us / 1e6),
        "Tokens": f"{run.spent.tokens:,}",
        "Cost": money(run.spent.known_cost_usd),
    }


_EVENTS = " ".join(kind.value for kind in EventType)
"""The names of events, which a stream carries."""
