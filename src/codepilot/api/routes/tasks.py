"""Tasks: submit one, read one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.concurrency import run_in_threadpool

from codepilot.api.access import Operator, Viewer
from codepilot.api.etags import TaggedRoute
from codepilot.api.pagination import summaries
from codepilot.api.problems import Refused, not_found, too_many
from codepilot.api.service import Service, service_of
from codepilot.api.shapes import Submitted, TaskOut
from codepilot.core.access import Principal
from codepilot.core.task import TaskSpec
from codepilot.store import RunFilter
from codepilot.telemetry import redact_json

router = APIRouter(prefix="/v1", tags=["tasks"], route_class=TaggedRoute)

_EXAMPLE = {
    "type": "BUGFIX",
    "repoUrl": "https://github.com/apache/commons-lang",
    "repoRef": "commons-lang-3.12.0",
    "prompt": "strip() does not fail when the input is null",
    "constraints": ["keep the public API"],
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A task: seed names (`type repoUrl repoRef prompt constraints`) or a whole task contract.",
        "content": {
            "application/json": {"schema": {"type": "object", "additionalProperties": True}, "example": _EXAMPLE}
        },
    }
}
_SLOW_SEC = 5.0

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="A second request with this key and the same body returns the first one's run.",
    ),
]


@router.post("/tasks", status_code=201, openapi_extra=_BODY)
async def submit(
    request: Request, response: Response, who: Operator, idempotency_key: IdempotencyKey = None
) -> Submitted:
    """Submit a task: a run of it is queued."""
    service = service_of(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "A task is sent as application/json.")
    try:
        document = (await request.body()).decode()
    except UnicodeDecodeError as error:
        raise Refused(422, "The task document is not UTF-8.") from error
    found = await run_in_threadpool(submit_document, service, who, document, idempotency_key)
    response.headers["Location"] = f"/v1/runs/{found.run_id}"
    return found


def submit_document(service: Service, who: Principal, document: str, key: str | None = None) -> Submitted:
    """Queue a run of the task that a document describes, for a user."""
    if service.draining.is_set():
        raise too_many("The service is shutting down.", _SLOW_SEC, status=503)
    run = service.pilot.submit_for(who, document, key)
    return Submitted(task_id=run.task.task_id, run_id=run.run_id)


@router.get("/tasks/{task_id}")
def task(request: Request, who: Viewer, task_id: str) -> TaskOut:
    """A task, and its runs."""
    service = service_of(request)
    rows = service.pilot.page(RunFilter(task_id=task_id), 200)
    if not rows:
        raise not_found(f"task {task_id!r}", "POST /v1/tasks answers with the task's id.")
    spec: TaskSpec = service.pilot.run(rows[0].run_id).task
    return TaskOut(
        task_id=spec.task_id,
        type=spec.kind,
        prompt=service.redact(spec.goal.natural),
        repo_url=spec.repo,
        repo_ref=spec.ref,
        constraints=spec.constraints,
        contract=redact_json(spec.model_dump(mode="json", by_alias=True), service.redact),
        runs=summaries(service, rows),
    )
