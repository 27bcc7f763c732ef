"""`codepilot fork`: try again from any point of a run, without touching it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from codepilot.core.artifacts import ArtifactType
from codepilot.core.events import Event, EventDraft, EventType, PatchProposed, SnapshotKept, SnapshotTaken
from codepilot.core.fork import fork, taken_over
from codepilot.core.run import Run, replay
from codepilot.engine.base import fetch_base, open_objects
from codepilot.engine.execution_context import leased_workspaces
from codepilot.engine.plan.families import refuse_child
from codepilot.engine.runtime import Runtime
from codepilot.engine.snapshot_transfer import read_snapshot
from codepilot.store import new_id


def fork_run(runtime: Runtime, run_id: str, at: int | None, by: str = "user") -> Run:
    """A new run that has the events of another one up to `at`, the last at which it was at work by default.

    Where the files of a turn are gone, it begins with the turn's step.
    """
    refuse_child(runtime.store.load(run_id), "forked")
    forked = new_id("r-")
    runtime.store.create_run(forked, forked_events(runtime, run_id, at, forked, by))
    return runtime.store.load(forked)


def forked_events(runtime: Runtime, run_id: str, at: int | None, forked: str, by: str = "user") -> list[EventDraft]:
    """The first events of the run `forked`."""
    events = runtime.store.events(run_id)
    taken = taken_over(events, at if at is not None else _last_at_work(runtime, run_id))
    past = replay(taken)
    kept = _keep(runtime, past, {snapshot for snapshot in _needed(taken, past) if not _known(taken, snapshot)})
    if (turn := _turn(taken, past)) is not None and turn not in kept and not _known(taken, turn):
        begun = max(event.seq for event in taken if event.type is EventType.STEP_QUEUED)
        taken = [event for event in taken if event.seq <= begun]
    return [*fork(taken, forked, by), *kept.values()]


def _last_at_work(runtime: Runtime, run_id: str) -> int:
    run = runtime.store.load(run_id)
    if not run.terminal:
        return run.last_seq
    return max(event.seq for event in runtime.store.events(run_id) if event.type is EventType.RUN_FINISHED) - 1


def _needed(taken: Sequence[Event], past: Run) -> set[str]:
    """The snapshots that a worker may have to start from."""
    wanted = (past.base_snapshot, past.proposal.snapshot if past.proposal else None, _turn(taken, past))
    return {snapshot for snapshot in wanted if snapshot is not None}


def _turn(taken: Sequence[Event], past: Run) -> str | None:
    """The snapshot of the last turn of the step that is open, if it began with any."""
    turns = [
        event.data.snapshot
        for event in taken
        if isinstance(event.data, SnapshotTaken) and (event.step_id, event.attempt) == (past.step_id, past.attempt)
    ]
    return turns[-1] if turns and past.baseline is not None else None


def _known(taken: Sequence[Event], snapshot: str) -> bool:
    """True if it can be had from what the events name."""
    kinds = (SnapshotKept, PatchProposed)
    return any(event.data.snapshot == snapshot for event in taken if isinstance(event.data, kinds))


def _keep(runtime: Runtime, past: Run, snapshots: set[str]) -> dict[str, EventDraft]:
    """Keep those of the snapshots that the old run's workspaces here still have."""
    kept: dict[str, EventDraft] = {}
    if past.base is None:
        return kept
    with closing(open_objects(runtime.home, past.base.repo_id)) as objects:
        fetch_base(runtime, past.base, objects)
        for name in leased_workspaces(runtime.home, past.run_id):
            for snapshot in sorted(snapshots - kept.keys()):
                chunks = read_snapshot(runtime.home.workspaces / name, objects, snapshot)
                if chunks is not None:
                    runtime.leave_name()
                    ref = runtime.artifacts.put_stream(chunks, ArtifactType.SNAPSHOT)
                    data = SnapshotKept(snapshot=snapshot, kept=ref)
                    kept[snapshot] = EventDraft(type=EventType.SNAPSHOT_KEPT, data=data, artifacts=(ref,))
    return kept
