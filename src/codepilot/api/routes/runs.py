"""Runs: the list, one run, its timeline, report and diff."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from codepilot.api.access import Viewer
from codepilot.api.etags import TaggedRoute
from codepilot.api.pagination import cursor_after, place_of, summaries
from codepilot.api.patches import only_path
from codepilot.api.present import run_out
from codepilot.api.problems import not_found
from codepilot.api.service import service_of
from codepilot.api.shapes import RunOut, RunPage
from codepilot.core.contract import JsonObject
from codepilot.core.events import State
from codepilot.store import RunFilter
from codepilot.telemetry import Costs, Feedback, report_json

router = APIRouter(prefix="/v1", tags=["runs"], route_class=TaggedRoute)

_PATCH: dict[str, Any] = {"responses": {"200": {"content": {"text/x-diff": {"schema": {"type": "string"}}}}}}


@router.get("/runs")
def runs(
    request: Request,
    who: Viewer,
    state: Annotated[list[State] | None, Query(description="Only runs in these states.")] = None,
    verdict: Literal["confirmed", "plausible"] | None = None,
    repo: Annotated[str, Query(max_length=2000, description="Only runs of this repository.")] = "",
    goal: Annotated[str, Query(max_length=200, description="Only runs whose goal contains this text.")] = "",
    cursor: Annotated[
        str | None, Query(max_length=300, pattern=r"^[\w-]+$", description="`nextCursor` of the page before.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> RunPage:
    """The runs, newest first."""
    service = service_of(request)
    wanted = RunFilter(
        states=tuple(state or ()),
        verdict=verdict or "",
        repo=repo,
        goal=goal,
        before=None if cursor is None else place_of(cursor),
    )
    rows = service.pilot.page(wanted, limit + 1)
    following = cursor_after(rows[limit - 1]) if len(rows) > limit else None
    return RunPage(runs=summaries(service, rows[:limit]), next_cursor=following)


@router.get("/runs/{run_id}")
def run(request: Request, who: Viewer, run_id: str) -> RunOut:
    """A run: how it stands, what it waits for, its budget and its steps."""
    service = service_of(request)
    found = service.pilot.run(run_id)
    return run_out(
        found,
        service.pilot.activities(found.run_id).get(found.run_id),
        service.pilot.steps(found.run_id),
        [row for row, _ in service.pilot.artifacts(found.run_id)],
        service.pilot.workers(),
        service.redact,
    )


@router.get("/runs/{run_id}/report")
def report(request: Request, who: Viewer, run_id: str) -> JsonObject:
    """The document that `codepilot show --json` prints."""
    service = service_of(request)
    return report_json(service.pilot.report(run_id), service.redact)


@router.get("/runs/{run_id}/feedback")
def feedback(request: Request, who: Viewer, run_id: str) -> Feedback:
    """The outcome in short, for a person or a model: what changed with the review's decisions, and what failed."""
    return service_of(request).pilot.feedback(run_id)


@router.get("/runs/{run_id}/timeline")
def timeline(request: Request, who: Viewer, run_id: str) -> JsonObject:
    """How long each step took, and how it ended."""
    return service_of(request).pilot.timeline(run_id)


@router.get("/runs/{run_id}/diff", openapi_extra=_PATCH)
def diff(
    request: Request,
    who: Viewer,
    run_id: str,
    path: Annotated[str | None, Query(max_length=4096, description="Only the change of this file.")] = None,
) -> Response:
    """The change as a patch for `git apply`; empty if the run has none."""
    patch = service_of(request).pilot.diff(run_id)
    if path is not None:
        part = only_path(patch, path)
        if part is None:
            raise not_found(f"change of {path!r} in this run", "GET the diff without `path` for all files.")
        patch = part
    return Response(patch, media_type="text/x-diff; charset=utf-8")


@router.get("/runs/{run_id}/cost")
def cost(request: Request, who: Viewer, run_id: str) -> Costs:
    """What the run and the runs that work on parts of its plan used: the whole tree of agents, as it is now."""
    return service_of(request).pilot.costs(run_id)
