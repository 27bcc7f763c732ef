"""What the API answers: contracts with camelCase names and RFC 3339 times."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainSerializer, WithJsonSchema

from codepilot.core.access import Scope
from codepilot.core.approval import WaitingFor
from codepilot.core.artifacts import ArtifactType
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import Event, State, Verdict
from codepilot.core.failures import FailureKind
from codepilot.core.interactive import ExecutionMode, Strategy
from codepilot.core.task import Budget, TaskKind
from codepilot.telemetry import Clean, redact_json

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def moment(us: int) -> str:
    """Microseconds as RFC 3339, without loss."""
    return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def microseconds(text: str) -> int:
    """The inverse of `moment`."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


Moment = Annotated[
    int,
    PlainSerializer(moment, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class BodyIn(Contract):
    """The body of a request. It is built with its route: pydantic warns of FastAPI's fields that are built later."""

    model_config = ConfigDict(defer_build=False)


class Submitted(Contract):
    """A task that was taken, and its run."""

    task_id: str
    run_id: str


class RunSummary(Contract):
    """A run in a list."""

    run_id: str
    status: str
    current_state: str
    verdict: Verdict | None
    goal: str
    repo_url: str
    failure_kind: str | None
    created_at: Moment
    updated_at: Moment


class RunPage(Contract):
    """A page of runs, newest first. `next_cursor` gets the next page; null on the last."""

    runs: tuple[RunSummary, ...]
    next_cursor: str | None


class TaskOut(Contract):
    """A task and its runs."""

    task_id: str
    type: TaskKind
    prompt: str
    repo_url: str
    repo_ref: str | None
    constraints: tuple[str, ...]
    contract: JsonObject = Field(description="The whole task contract.")
    runs: tuple[RunSummary, ...]


class Used(Contract):
    """What a run has used of its budget."""

    iterations: int
    wall_sec: float
    turns: int
    tokens: int
    cost_usd: float | None = Field(description="Null if the price of some tokens is unknown.")


class BudgetOut(Contract):
    limit: Budget
    used: Used


class StepOut(Contract):
    """One step of a run. `role` is the state whose step it is."""

    step_id: str
    role: str
    attempt: int
    status: str
    worker_id: str | None
    queued_at: Moment
    claimed_at: Moment | None
    heartbeat_at: Moment | None
    ended_at: Moment | None
    input_artifact_ids: tuple[str, ...]
    output_artifact_ids: tuple[str, ...]
    budgets: dict[str, float]


class FailureOut(Contract):
    kind: FailureKind
    message: str
    next_action: str


class RunOut(Contract):
    """A run: how it stands, what it waits for, and its steps."""

    run_id: str
    task_id: str
    type: TaskKind
    prompt: str
    repo_url: str
    repo_ref: str | None
    agent: str
    model: str | None
    status: Literal["QUEUED", "RUNNING", "INTERRUPTED", "PAUSED", "BLOCKED", "DONE", "FAILED", "ABORTED"]
    current_state: State
    verdict: Verdict | None
    confidence: float
    failure: FailureOut | None
    waiting_for: WaitingFor | None
    budget: BudgetOut
    workspace_ref: str | None
    base_commit: str | None
    snapshot_ref: str | None
    lock_held_by: str | None
    iteration_count: int
    created_at: Moment
    updated_at: Moment
    last_seq: int
    steps: tuple[StepOut, ...]


class ArtifactOut(Contract):
    """An artifact of a run. `link` reads it without credentials until `link_expires_at`."""

    artifact_id: str
    run_id: str
    type: ArtifactType
    uri: str
    sha256: str
    size_bytes: int
    metadata: JsonObject
    link: str | None = Field(description="Null if the bytes are gone.")
    link_expires_at: Moment | None


class ArtifactList(Contract):
    artifacts: tuple[ArtifactOut, ...]


class EventPage(Contract):
    """Events in their order. `last_seq` is the number to ask after for the next ones."""

    events: tuple[JsonObject, ...]
    last_seq: int


class LogFile(Contract):
    name: str
    kind: str
    size_bytes: int | None


class LogList(Contract):
    logs: tuple[LogFile, ...]


class ChangeOut(Contract):
    """How far the log of a run has come."""

    run_id: str
    status: str
    updated_at: Moment
    last_seq: int


class ChangeList(Contract):
    changes: tuple[ChangeOut, ...]


class WorkerOut(Contract):
    worker_id: str
    host: str
    pid: int
    heartbeat_at: Moment
    takes_queued: bool


class WorkerList(Contract):
    workers: tuple[WorkerOut, ...]
    most_running: int | None


class LockOut(Contract):
    repo: str = Field(description="The repository: its first commit, or its place if that is unknown.")
    name: str
    run_id: str
    fence: int
    taken_at: Moment


class LockList(Contract):
    locks: tuple[LockOut, ...]


class Me(Contract):
    """Who makes this request."""

    name: str
    scope: Scope
    by: str
    csrf_token: str | None = Field(description="What a browser's script sends as X-CSRF-Token.")


class HealthOut(Contract):
    status: Literal["ok", "draining", "unavailable"]
    version: str


def event_object(event: Event, clean: Clean) -> dict[str, Any]:
    """An event as the API shows it: redacted, with camelCase names and an RFC 3339 time."""
    document = event.model_dump(mode="json", by_alias=True)
    ids = {name: document[name] for name in ("eventId", "seq", "runId", "stepId", "attempt", "type")}
    data = redact_json(document["data"], clean)
    return {**ids, "at": moment(event.at), "data": data, "artifacts": document["artifacts"]}


def event_json(event: Event, clean: Clean) -> str:
    return json.dumps(event_object(event, clean), ensure_ascii=False, separators=(",", ":"))


class Controlled(Contract):
    """A run after a request to it. A worker that holds it carries the request out within a second."""

    run_id: str
    status: str
    cancel_requested: bool
    pause_requested: bool


class ForkIn(BodyIn):
    at: int | None = Field(default=None, ge=1, lt=1 << 53, description="The last event to take over.")


class ResumeIn(BodyIn):
    limits: dict[str, float] = Field(
        default={},
        max_length=20,
        description="New limits by the budget's key; without them a spent one is granted anew.",
    )
    execution_mode: ExecutionMode | None = None
    strategy: Strategy | None = None


class ApplyIn(BodyIn):
    accept_plausible: bool = False


class Applied(Contract):
    run_id: str
    checkout: str
    files: tuple[str, ...]
