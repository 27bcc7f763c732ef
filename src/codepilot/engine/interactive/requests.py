"""What people ask of interactive runs: their checkpoints, differences, messages and rollbacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from posixpath import normpath

from codepilot.core.checkpoint import (
    CheckpointFailed,
    CheckpointRecorded,
    MessageSent,
    NoSession,
    NoSuchCheckpoint,
    RolledBack,
    SessionRequested,
    ViolationAcknowledged,
)
from codepilot.core.events import Event, EventDraft, EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.engine.base import fetch_base, open_objects
from codepilot.engine.runtime import Runtime

START = "start"
"""The name of the base among the checkpoints."""
LOOK_SEC = 0.1
MOST_WORDS = 20_000
"""The longest message to an agent."""


@dataclass(frozen=True)
class Listed:
    """A checkpoint of a run with when it was made and what the agent answered."""

    at: int
    checkpoint: CheckpointRecorded
    answer: ViolationAcknowledged | None = None
    promoted: bool = False
    rolled_back: int = 0
    """How often files were put back to it."""


@dataclass(frozen=True)
class Asked:
    """A request that was recorded, and what came of it if it was waited for."""

    request_id: str
    run: Run
    done: CheckpointRecorded | CheckpointFailed | RolledBack | MessageSent | None = None


def checkpoints_of(runtime: Runtime, run_id: str) -> list[Listed]:
    """The checkpoints of a run, oldest first."""
    found: dict[str, Listed] = {}
    for event in runtime.store.events(run_id):
        data = event.data
        if isinstance(data, CheckpointRecorded):
            found[data.checkpoint_id] = Listed(event.at, data)
            continue
        known = found.get(getattr(data, "checkpoint_id", None) or "")
        if known is None:
            continue
        if isinstance(data, ViolationAcknowledged):
            found[known.checkpoint.checkpoint_id] = _with(known, answer=data)
        elif isinstance(data, RolledBack) and data.failure is None:
            found[known.checkpoint.checkpoint_id] = _with(known, rolled_back=known.rolled_back + 1)
        elif event.type is EventType.PROMOTED:
            found[known.checkpoint.checkpoint_id] = _with(known, promoted=True)
    return list(found.values())


def _with(listed: Listed, **changes: object) -> Listed:
    return Listed(**{**listed.__dict__, **changes})


def named(runtime: Runtime, run_id: str, checkpoint: str) -> CheckpointRecorded:
    """A checkpoint by its id, by the beginning of it, or `last`."""
    listed = checkpoints_of(runtime, run_id)
    found = [one.checkpoint for one in listed if one.checkpoint.checkpoint_id.startswith(_full(checkpoint))]
    if checkpoint == "last" and listed:
        return listed[-1].checkpoint
    exact = [one for one in found if one.checkpoint_id == checkpoint] or found
    if len(exact) == 1:
        return exact[0]
    what = "several checkpoints" if exact else "no checkpoint"
    raise (CodePilotError if exact else NoSuchCheckpoint)(
        FailureKind.INVALID_SPEC,
        f"{checkpoint!r} names {what} of {run_id}.",
        next_action=f"See `codepilot checkpoints {run_id}`.",
    )


def _full(checkpoint: str) -> str:
    return checkpoint if checkpoint.startswith("ckpt-") else f"ckpt-{checkpoint}"


def checkpoint_diff(runtime: Runtime, run_id: str, checkpoint: str, *, total: bool = False) -> bytes:
    """The change of a checkpoint since the one before it, or since the base, as a patch."""
    one = named(runtime, run_id, checkpoint)
    ref = one.diff_total if total else one.diff
    return b"" if ref is None else runtime.artifacts.get(ref)


def compare(runtime: Runtime, run_id: str, before: str, after: str) -> bytes:
    """The change from one checkpoint to another as a patch; `start` names the base."""
    run = runtime.store.load(run_id)
    if run.base is None:
        raise CodePilotError(FailureKind.INVALID_SPEC, f"Run {run_id} has no base yet, and no checkpoints.")
    sides = [None if name == START else named(runtime, run_id, name) for name in (before, after)]
    with closing(open_objects(runtime.home, run.base.repo_id)) as objects:
        fetch_base(runtime, run.base, objects)
        trees = []
        for side in sides:
            patch = b"" if side is None or side.diff_total is None else runtime.artifacts.get(side.diff_total)
            trees.append(objects.apply(run.base.tree, patch))
        return objects.diff(trees[0], trees[1]).patch


def file_changes(runtime: Runtime, run_id: str, checkpoint: str) -> bytes:
    """Every file change that a checkpoint took, as lines of JSON."""
    ref = named(runtime, run_id, checkpoint).changes
    return b"" if ref is None else runtime.artifacts.get(ref)


# Requests --------------------------------------------------------------------------------------------


def ask(
    runtime: Runtime,
    run_id: str,
    request: SessionRequested,
    wait_sec: float = 0.0,
    stop: Callable[[], bool] = lambda: False,
) -> Asked:
    """Record a request to the agent's session. The worker that has the run carries it out, or the next one."""
    if request.checkpoint_id is not None:
        named_one = named(runtime, run_id, request.checkpoint_id)
        request = request.model_copy(update={"checkpoint_id": named_one.checkpoint_id})
    if request.kind == "message" and not 0 < len(request.text.strip()) <= MOST_WORDS:
        raise CodePilotError(FailureKind.INVALID_SPEC, f"A message has 1 to {MOST_WORDS:,} characters.")
    if request.kind == "rollback":
        request = request.model_copy(update={"files": tuple(dict.fromkeys(map(_inside, request.files)))})

    def record(run: Run) -> list[EventDraft]:
        _require_session(run)
        if any(one.request_id == request.request_id for one in run.asked_of_session):
            return []
        return [EventDraft(type=EventType.SESSION_REQUESTED, data=request, step_id=run.step_id, attempt=run.attempt)]

    runtime.store.control(run_id, record)
    done = None
    until = time.monotonic() + wait_sec
    while True:
        at_work = bool(runtime.store.queue.at_work(run_id))
        run = runtime.store.load(run_id)
        done = _outcome(runtime.store.events(run_id), request.request_id)
        if done is not None or not at_work or stop() or time.monotonic() >= until:
            return Asked(request.request_id, run, done)
        time.sleep(LOOK_SEC)


def _inside(path: str) -> str:
    """A path of the repository as a rollback takes it, from any way to write it."""
    plain = normpath(path) if path else ""
    if plain in ("", ".", "..") or plain.startswith(("/", "../")):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{path!r} is no file or directory inside the repository.",
            next_action="Name paths from the top of the repository, or none to put everything back.",
        )
    return plain


def _require_session(run: Run) -> None:
    if run.terminal:
        raise NoSession(
            FailureKind.INVALID_SPEC,
            f"{run.run_id} is {run.state}: no agent works on it any more.",
            next_action=f"See `codepilot checkpoints {run.run_id}`, or begin again with `codepilot fork`.",
        )
    if run.task.execution_mode != "interactive":
        raise NoSession(
            FailureKind.INVALID_SPEC,
            f"{run.run_id} works in deterministic mode, in which an agent takes no messages and has no checkpoints.",
            next_action=f"Pause it, then `codepilot resume {run.run_id} --execution-mode interactive`.",
        )


def _outcome(
    events: list[Event], request_id: str
) -> CheckpointRecorded | CheckpointFailed | RolledBack | MessageSent | None:
    for event in reversed(events):
        data = event.data
        if (
            isinstance(data, CheckpointRecorded | CheckpointFailed | RolledBack | MessageSent)
            and data.request_id == request_id
        ):
            return data
    return None
