"""Interactive runs: checkpoints, their differences, messages to the agent and rollbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from codepilot.api.access import Operator, Viewer
from codepilot.api.etags import etagged
from codepilot.api.service import Service, service_of
from codepilot.api.shapes import BodyIn, Moment
from codepilot.core.artifacts import ArtifactRef
from codepilot.core.checkpoint import CheckpointViolation, Status, Trigger
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.interactive import Strategy, ViolationSeverity
from codepilot.telemetry import redact_json

if TYPE_CHECKING:
    from codepilot.engine.interactive.requests import Asked, Listed

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["checkpoints"])

MOST_PATHS = 1_000
MOST_WAIT_SEC = 60.0
Words = Annotated[str, Field(min_length=1, max_length=20_000)]
PathIn = Annotated[str, Field(min_length=1, max_length=4_096)]
Wait = Annotated[
    float, Query(ge=0, le=MOST_WAIT_SEC, description="Seconds to wait until the run's worker has carried it out.")
]
_PATCH: dict[str, Any] = {"responses": {"200": {"content": {"text/x-diff": {"schema": {"type": "string"}}}}}}


class CheckpointOut(Contract):
    """The exact tree at one moment, what changed since the checkpoint before, and whether it is valid."""

    checkpoint_id: str
    previous: str | None
    at: Moment
    trigger: Trigger
    tree: str
    snapshot: str
    files_changed: tuple[str, ...]
    files_left_out: int = Field(description="How many changed paths more there are, which `changes` names.")
    files_changed_total: int
    diff: ArtifactRef | None
    diff_total: ArtifactRef | None
    changes: ArtifactRef | None = Field(description="Every file change with its time, as JSON lines.")
    status: Status
    violations: tuple[CheckpointViolation, ...]
    violations_left_out: int
    severity: ViolationSeverity | None
    action_taken: Literal["none", "reverted", "discarded"]
    strategy: Strategy
    checked: int
    cached: int
    left_out: int
    frozen_us: int
    duration_us: int
    validation_us: int
    request_id: str
    promoted: bool = Field(description="True if it became the run's tree.")
    rolled_back: int = Field(description="How often files were put back to it.")
    acknowledged: bool | None = Field(description="Null if the agent got no message about a violation.")
    response: str = Field(description="What the agent answered.")


class CheckpointList(Contract):
    """The chain of a run, oldest first."""

    checkpoints: tuple[CheckpointOut, ...]


class MessageIn(BodyIn):
    """`turn` delivers the message at the end of the agent's turn."""

    text: Words
    when: Literal["now", "turn"] = "now"


class RollbackIn(BodyIn):
    """Without `checkpoint`: the last valid one before the present state. `smart` takes the files that break a rule."""

    checkpoint: Annotated[str, Field(max_length=100)] | None = None
    files: Annotated[tuple[PathIn, ...], Field(max_length=MOST_PATHS)] = ()
    smart: bool = False


class AskedOut(Contract):
    """A request to the agent's session. `result` is the event that carried it out; null while it waits."""

    run_id: str
    request_id: str
    status: str
    result: JsonObject | None


def checkpoint_out(listed: Listed) -> CheckpointOut:
    answer = listed.answer
    return CheckpointOut.model_validate(
        {
            **dict(listed.checkpoint),
            "at": listed.at,
            "promoted": listed.promoted,
            "rolled_back": listed.rolled_back,
            "acknowledged": None if answer is None else answer.acknowledged,
            "response": "" if answer is None else answer.response,
        }
    )


def asked_out(service: Service, asked: Asked) -> AskedOut:
    result = None if asked.done is None else asked.done.model_dump(mode="json", by_alias=True)
    return AskedOut(
        run_id=asked.run.run_id,
        request_id=asked.request_id,
        status="WAITING" if result is None else "DONE",
        result=None if result is None else redact_json(result, service.redact),
    )


@router.get("/checkpoints")
def checkpoints(request: Request, who: Viewer, run_id: str) -> CheckpointList:
    """The checkpoints of an interactive run, oldest first."""
    return CheckpointList(checkpoints=tuple(map(checkpoint_out, service_of(request).pilot.checkpoints(run_id))))


@router.get("/checkpoints/compare", openapi_extra=_PATCH)
def compare(
    request: Request,
    who: Viewer,
    run_id: str,
    before: Annotated[str, Query(alias="from", max_length=100, description="A checkpoint, or `start` for the base.")],
    after: Annotated[str, Query(alias="to", max_length=100, description="A checkpoint, or `last`.")] = "last",
) -> Response:
    """The change from one checkpoint to another as a patch."""
    patch = service_of(request).pilot.compare_checkpoints(run_id, before, after)
    return etagged(request, Response(patch, media_type="text/x-diff; charset=utf-8"))


@router.get("/checkpoints/{checkpoint}/diff", openapi_extra=_PATCH)
def diff(
    request: Request,
    who: Viewer,
    run_id: str,
    checkpoint: str,
    total: Annotated[bool, Query(description="The change since the base, not since the checkpoint before.")] = False,
) -> Response:
    """The change of a checkpoint as a patch."""
    patch = service_of(request).pilot.checkpoint_diff(run_id, checkpoint, total=total)
    return etagged(request, Response(patch, media_type="text/x-diff; charset=utf-8"))


@router.get(
    "/checkpoints/{checkpoint}/changes",
    openapi_extra={"responses": {"200": {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}}},
)
def changes(request: Request, who: Viewer, run_id: str, checkpoint: str) -> Response:
    """Every file change that a checkpoint took, one JSON object a line."""
    lines = service_of(request).pilot.checkpoint_changes(run_id, checkpoint)
    return etagged(request, Response(lines, media_type="application/x-ndjson"))


@router.post("/checkpoint", status_code=202)
def take(request: Request, who: Operator, run_id: str, wait: Wait = 0.0) -> AskedOut:
    """Make a checkpoint now."""
    service = service_of(request)
    return asked_out(service, service.pilot.checkpoint(run_id, by=who.name, wait_sec=wait))


@router.post("/message", status_code=202)
def message(request: Request, who: Operator, run_id: str, sent: MessageIn, wait: Wait = 0.0) -> AskedOut:
    """Send the agent a message."""
    service = service_of(request)
    asked = service.pilot.message(run_id, sent.text, when=sent.when, by=who.name, wait_sec=wait)
    return asked_out(service, asked)


@router.post("/rollback", status_code=202)
def rollback(
    request: Request, who: Operator, run_id: str, wanted: RollbackIn | None = None, wait: Wait = 0.0
) -> AskedOut:
    """Put files back to a checkpoint. The tree before it is kept as a checkpoint."""
    service, wanted = service_of(request), wanted or RollbackIn()
    asked = service.pilot.rollback(
        run_id, wanted.checkpoint, wanted.files, smart=wanted.smart, by=who.name, wait_sec=wait
    )
    return asked_out(service, asked)
