"""The change of a run: reading it, taking some of it, applying it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from codepilot.agents import agent_spec
from codepilot.api.access import Admin, Fields, Operator, Viewer
from codepilot.api.pages.notices import Notice, see_noticed
from codepilot.api.pages.render import render
from codepilot.api.service import service_of
from codepilot.core.access import Scope
from codepilot.core.events import EventType, State
from codepilot.core.review import HunksReviewed
from codepilot.core.run import Run
from codepilot.core.task import TaskKind
from codepilot.engine import CodePilot
from codepilot.views.diff import directories, file_diffs

router = APIRouter(include_in_schema=False)


@router.get("/runs/{run_id}/diff")
def diff(
    request: Request,
    who: Viewer,
    run_id: str,
    notice: Notice,
    view: Literal["unified", "split"] = "unified",
    path: Annotated[str | None, Query(max_length=4096)] = None,
) -> Response:
    """The whole change, or one file of it."""
    service = service_of(request)
    run = service.pilot.run(run_id)
    patch = service.pilot.diff(run.run_id).decode("utf-8", "replace") if run.proposal else ""
    done = run.state is State.DONE and run.verdict is not None
    files = file_diffs(patch, path)
    return render(
        request,
        who,
        "diff",
        run=run,
        title=run.task.goal.natural.strip().partition("\n")[0][:160],
        files=files,
        directories=directories(files),
        split=view == "split",
        reviewable=done and who.scope.allows(Scope.OPERATOR),
        appliable=done
        and run.applied is None
        and who.scope.allows(Scope.ADMIN)
        and run.base is not None
        and run.base.checkout is not None,
        teachable=done and _teachable(run),
        reviews=_reviews(service.pilot, run.run_id) if done else (),
        notice=notice,
    )


@router.get("/runs/{run_id}/patch.diff")
def patch(request: Request, who: Viewer, run_id: str) -> Response:
    pilot = service_of(request).pilot
    found = pilot.find(run_id)
    headers = {"Content-Disposition": f'attachment; filename="{found}.diff"'}
    return Response(pilot.diff(found), media_type="text/x-diff; charset=utf-8", headers=headers)


@router.post("/runs/{run_id}/apply")
def apply(request: Request, who: Admin, run_id: str, fields: Fields) -> Response:
    pilot = service_of(request).pilot
    done = pilot.apply(run_id, accept_plausible=fields.get("accept_plausible") == "yes", by=who.name)
    notice = f"The change was written into {done.checkout}."
    return see_noticed(request, f"/runs/{pilot.find(run_id)}/diff", notice)


@router.post("/runs/{run_id}/review")
def review(request: Request, who: Operator, run_id: str, fields: Fields) -> Response:
    """Take the accepted hunks; what remains is proved by a run of its own, which is shown."""
    pilot = service_of(request).pilot
    found, chosen = pilot.find(run_id), decisions(fields)
    if not chosen.reasons:
        notice = "Nothing was rejected: the proof of the whole change stands."
        return see_noticed(request, f"/runs/{found}/diff", notice)
    again = fields.get("do") == "again"
    reviewed = pilot.review_for(
        who,
        found,
        accept=chosen.accept,
        reject=tuple(chosen.reasons),
        reason=chosen.reasons,
        rest="accepted",
        again=again,
    )
    begun = reviewed.again if again and reviewed.again else reviewed.judging
    if begun is None:
        return see_noticed(request, f"/runs/{found}/diff", reviewed.refusal or "Nothing is left to prove.")
    notice = "The agent works on what you rejected." if again else "What remains is being proved."
    return see_noticed(request, f"/runs/{begun.run.run_id}", notice)


@dataclass(frozen=True)
class Decisions:
    """What a form says about the parts of a change."""

    accept: tuple[str, ...]
    reasons: Mapping[str, str]
    """The rejected parts, each with its reason."""


def decisions(fields: Mapping[str, str]) -> Decisions:
    """What is accepted and rejected. A decision on a whole file comes before those on its hunks. Pure."""
    values = {kind: _named(fields, kind) for kind in ("file", "hunk", "comment", "line")}
    whole = {path: value for path, value in values["file"].items() if value in ("accept", "reject")}
    single = {
        key: value for key, value in values["hunk"].items() if key not in whole and key.rpartition(":")[0] not in whole
    }
    chosen = {**whole, **single}
    lines: dict[str, list[str]] = {}
    for name, text in values["line"].items():
        number, _, key = name.partition(":")
        if text.strip():
            lines.setdefault(key, []).append(f"line {number}: {text.strip()}")
    general = fields.get("reason", "").strip()
    reasons = {
        key: "\n".join(filter(None, [values["comment"].get(key, "").strip(), *_lines_of(lines, key)])) or general
        for key, value in chosen.items()
        if value == "reject"
    }
    return Decisions(tuple(key for key, value in chosen.items() if value == "accept"), reasons)


def _named(fields: Mapping[str, str], kind: str) -> dict[str, str]:
    prefix = f"{kind}:"
    return {name.removeprefix(prefix): value for name, value in fields.items() if name.startswith(prefix)}


def _lines_of(lines: Mapping[str, list[str]], key: str) -> list[str]:
    """The comments on lines of a hunk, or of all hunks of a file."""
    return [text for one, texts in lines.items() if one == key or one.rpartition(":")[0] == key for text in texts]


def _teachable(run: Run) -> bool:
    """True if an agent with a model made the change: it can work on what is rejected."""
    return run.task.kind is not TaskKind.PROVE and agent_spec(run.task.agent).needs_model


def _reviews(pilot: CodePilot, run_id: str) -> list[dict[str, object]]:
    """The reviews of a run, the newest first."""
    found = [event.data for event in pilot.events(run_id) if event.type is EventType.HUNKS_REVIEWED]
    return [
        {
            "by": one.by,
            "accepted": len(one.of("accepted")),
            "rejected": one.of("rejected"),
            "judged_by": one.judged_by,
            "again": one.again,
        }
        for one in reversed(found)
        if isinstance(one, HunksReviewed)
    ]
