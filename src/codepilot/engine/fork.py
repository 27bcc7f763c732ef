"""`codepilot fork`: try again from any point of a run, without touching it."""

from __future__ import annotations

from contextlib import closing

from codepilot.core.artifacts import ArtifactType
from codepilot.core.events import EventDraft, EventType, SnapshotKept, SnapshotTaken
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.fork import fork
from codepilot.core.run import Run, replay
from codepilot.engine.house import House
from codepilot.engine.plane import open_plane
from codepilot.store import new_id


def fork_run(house: House, run_id: str, at: int | None) -> Run:
    """A new run that has the events of another one up to `at`, the last at which it was at work by default."""
    events = house.store.events(run_id)
    place = at if at is not None else _last_at_work(house, run_id)
    forked = new_id("r-")
    drafts = fork(events, place, forked)
    needed = {event.data.snapshot for event in events[:place] if isinstance(event.data, SnapshotTaken)}
    drafts += _kept_snapshots(house, replay(events[:place]), needed - _kept(drafts))
    house.store.create_run(forked, drafts)
    return house.store.load(forked)


def _last_at_work(house: House, run_id: str) -> int:
    run = house.store.load(run_id)
    return run.last_seq - 1 if run.terminal else run.last_seq


def _kept(drafts: list[EventDraft]) -> set[str]:
    return {draft.data.snapshot for draft in drafts if isinstance(draft.data, SnapshotKept)}


def _kept_snapshots(house: House, run: Run, snapshots: set[str]) -> list[EventDraft]:
    """Keep the snapshots that only the old run's workspace has, as far as it is still there."""
    kept = []
    with closing(open_plane(run.task, house.home)) as executor:
        for snapshot in sorted(snapshots):
            try:
                stream = executor.export_snapshot(run.run_id, snapshot)
                ref = house.artifacts.put_stream(stream, ArtifactType.SNAPSHOT)
            except CodePilotError as error:
                if error.kind is not FailureKind.PATH_NOT_FOUND:
                    raise
                continue
            data = SnapshotKept(snapshot=snapshot, kept=ref)
            kept.append(EventDraft(type=EventType.SNAPSHOT_KEPT, data=data, artifacts=(ref,)))
    return kept
