"""What runs achieved in numbers, and what the policy allows."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import Field

from codepilot.api.access import Viewer
from codepilot.api.etags import TaggedRoute
from codepilot.api.service import service_of
from codepilot.api.shapes import Moment
from codepilot.core.contract import Contract, JsonObject
from codepilot.engine.policy_view import Explanation, PolicySetting
from codepilot.telemetry import Analytics, redact_json

router = APIRouter(prefix="/v1", tags=["figures"], route_class=TaggedRoute)

Subject = Annotated[list[str], Query(min_length=1, max_length=100, description="The words of a command, or one name.")]


class PolicyOut(Contract):
    """The policy for tasks that come without a checkout on the server."""

    settings: tuple[PolicySetting, ...]


class MemoryOut(Contract):
    """What a run recorded for later runs: a failure and its fix, or a task and its solution."""

    memory_id: str
    run_id: str | None = Field(description="Null if a person added it.")
    at: Moment
    repo_url: str
    language: str
    memory: JsonObject


class MemoryList(Contract):
    memories: tuple[MemoryOut, ...]


@router.get("/memory")
def memory(
    request: Request,
    who: Viewer,
    kind: Literal["failure", "pattern", "quirk"] = "failure",
    repo: Annotated[str | None, Query(max_length=2000, description="Only of this repository.")] = None,
    language: Annotated[str | None, Query(max_length=50)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> MemoryList:
    """What runs recorded for later ones to learn from, newest first."""
    service = service_of(request)
    rows = service.pilot.memory(kind, repo=repo, language=language, limit=limit)
    shown = (
        MemoryOut(
            memory_id=row.memory_id,
            run_id=row.run_id if row.memory_id != row.run_id else None,
            at=row.at,
            repo_url=row.repo,
            language=row.language,
            memory=redact_json(row.memory.model_dump(mode="json", by_alias=True), service.redact),
        )
        for row in rows
    )
    return MemoryList(memories=tuple(shown))


@router.get("/analytics")
def analytics(request: Request, who: Viewer, newest: Annotated[int, Query(ge=1, le=1000)] = 200) -> Analytics:
    """What the newest runs achieved, took and cost."""
    return service_of(request).pilot.analytics(newest)


@router.get("/policy")
def policy(request: Request, who: Viewer) -> PolicyOut:
    """The policy, each value with its source."""
    return PolicyOut(settings=tuple(service_of(request).pilot.policy(None)))


@router.get("/policy/explain")
def explain(
    request: Request, who: Viewer, subject: Subject, kind: Literal["command", "tool", "path", "host"] = "command"
) -> Explanation:
    """What the policy decides about an action, why, and what would change that."""
    return service_of(request).pilot.policy_explain(subject, None, kind=kind)
