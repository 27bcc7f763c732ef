"""Each operation of the store with a failure at every one of its statements and commits: all of it or nothing."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from cutting_proxy import CuttingProxy, Moment
from faulty_disk import Fuse, fail_by
from raw_sql import raw_sql
from sample_runs import new_run, paused_run, succeed, take, task, turn

from codepilot.core.decide import decide_cancel, decide_resume, start
from codepilot.core.events import EventDraft, EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.notify import NotificationSent
from codepilot.store import LostLease, StepStatus, Store, database, new_id, session_locks
from servers import PostgresServer

Act = Callable[[Store], object]


@dataclass
class Scene:
    """A database with a worker that lives, one that can die, and the store that is made to fail."""

    place: str
    open_faulty: Callable[[], Store]
    opened: list[Store] = field(default_factory=list)

    def open(self, *, faulty: bool = False) -> Store:
        self.opened.append(self.open_faulty() if faulty else Store.open(self.place))
        return self.opened[-1]

    def close(self) -> None:
        for one in self.opened:
            one.close()

    def dead(self, store: Store, worker: str) -> bool:
        """A busy server takes a moment to see that a session is over."""
        deadline = time.monotonic() + 60
        while store.queue.alive(worker) and time.monotonic() < deadline:
            time.sleep(0.01)
        return not store.queue.alive(worker)

    def leases(self) -> set[str]:
        return {row[0] for row in raw_sql(self.place, "SELECT worker FROM leases")}

    def counted(self, store: Store, run_id: str, kind: EventType) -> int:
        return sum(event.type is kind for event in store.events(run_id))


def creating(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_id("r")
    drafts = start(task(), run_id)

    def check(store: Store) -> None:
        assert len(store.events(run_id)) == 2 and len(store.steps(run_id)) == 1

    return lambda store: store.create_run(run_id, drafts), check


def beginning(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_id("r")
    drafts = start(task(), run_id)

    def check(store: Store) -> None:
        (step,) = store.steps(run_id)
        assert len(store.events(run_id)) == 3
        assert (step.status, step.worker, step.fence) == (StepStatus.RUNNING, "w-two", 1)

    return lambda store: store.create_run(run_id, drafts, "w-two"), check


def reopening(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = paused_run(store)

    def check(store: Store) -> None:
        (step,) = store.steps(run_id)
        assert (step.status, step.worker) == (StepStatus.RUNNING, "w-two")
        assert scene.counted(store, run_id, EventType.RUN_RESUMED) == 1
        assert scene.counted(store, run_id, EventType.STEP_STARTED) == 1

    return lambda store: store.control(run_id, decide_resume, "w-two"), check


def starting(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_run(store)

    def check(store: Store) -> None:
        (step,) = store.steps(run_id)
        assert step.status is StepStatus.RUNNING and step.worker == "w-two"
        assert step.fence == scene.counted(store, run_id, EventType.STEP_STARTED) == 1

    return lambda store: store.claim_next("w-two", run_id), check


def appending(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_run(store)
    claim = take(store, "w-two", run_id)

    def act(store: Store) -> None:
        if len(store.events(run_id)) == 3:
            store.append(claim, turn(claim, 1))

    def check(store: Store) -> None:
        assert len(store.events(run_id)) == 5

    return act, check


def ending(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_run(store)
    claim = take(store, "w-two", run_id)

    def check(store: Store) -> None:
        assert scene.counted(store, run_id, EventType.STEP_SUCCEEDED) == 1
        assert [step.status for step in store.steps(run_id)] == [StepStatus.SUCCEEDED, StepStatus.PENDING]

    return lambda store: store.commit(claim, succeed), check


def going_on(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_run(store)
    claim = take(store, "w-two", run_id)

    def check(store: Store) -> None:
        assert scene.counted(store, run_id, EventType.STEP_SUCCEEDED) == 1
        assert [step.status for step in store.steps(run_id)] == [StepStatus.SUCCEEDED, StepStatus.RUNNING]

    return lambda store: store.commit(claim, succeed, claim_next=True), check


def asking(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_run(store)

    def check(store: Store) -> None:
        assert scene.counted(store, run_id, EventType.RUN_FINISHED) == 1

    return lambda store: store.control(run_id, decide_cancel), check


def settling(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_id("r")
    store.create_run(run_id, start(task().model_copy(update={"notify": True}), run_id))
    store.control(run_id, decide_cancel)
    (pending,) = store.outbox.of(run_id)
    message = EventDraft(type=EventType.NOTIFICATION_SENT, data=NotificationSent(of=pending.seq, status=200))

    def check(store: Store) -> None:
        assert scene.counted(store, run_id, EventType.NOTIFICATION_SENT) == 1
        assert [row.state for row in store.outbox.of(run_id)] == ["sent"]

    return lambda store: store.outbox.settle(pending, message), check


def leasing(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_id("r")
    store.create_run(run_id, start(task().model_copy(update={"notify": True}), run_id))
    store.control(run_id, decide_cancel)
    (row,) = store.outbox.of(run_id)

    def check(store: Store) -> None:
        assert store.outbox.lease(row, 600.0) is None, "it is leased once"
        assert store.outbox.pending() == []

    return lambda store: store.outbox.lease(row, 600.0), check


def putting_off(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_id("r")
    store.create_run(run_id, start(task().model_copy(update={"notify": True}), run_id))
    store.control(run_id, decide_cancel)
    (row,) = store.outbox.of(run_id)

    def check(store: Store) -> None:
        assert [row.tries for row in store.outbox.of(run_id)] == [1]
        assert store.outbox.pending() == []

    def act(store: Store) -> None:
        leased = store.outbox.lease(row, 600.0)
        assert leased is None or leased.tries == 1
        store.outbox.put_off(leased or replace(row, tries=1), 900.0)

    return act, check


def reclaiming(scene: Scene, store: Store) -> tuple[Act, Act]:
    """The worker has died: its lock is free, its lease is not."""
    run_id = new_run(store)
    dead = scene.open()
    claim = take(dead, "w-dead", run_id)
    dead.close()
    assert scene.dead(store, "w-dead")

    def check(store: Store) -> None:
        (step,) = store.steps(run_id)
        assert (step.status, step.worker, step.fence) == (StepStatus.PENDING, None, claim.fence + 1)
        assert "w-dead" not in scene.leases()
        with pytest.raises(LostLease):
            store.append(claim, turn(claim, 1))

    return lambda store: store.reclaim(wait=True), check


def granting(scene: Scene, store: Store) -> tuple[Act, Act]:
    """A worker that lives and has a step, but no lease that could go stale."""
    run_id = new_run(store)
    claim = take(scene.opened[0], "w-one", run_id)
    raw_sql(scene.place, "DELETE FROM leases")

    def check(store: Store) -> None:
        assert scene.leases() >= {"w-one"}
        assert len(store.append(claim, turn(claim, 1))) == 2

    return lambda store: store.reclaim(), check


def giving_back(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_run(store)
    claim = take(store, "w-two", run_id)

    def check(store: Store) -> None:
        (step,) = store.steps(run_id)
        assert (step.status, step.worker, step.fence) == (StepStatus.PENDING, None, claim.fence + 1)

    return lambda store: store.give_back(claim), check


def registering(scene: Scene, store: Store) -> tuple[Act, Act]:
    worker = new_id("w")

    def check(store: Store) -> None:
        assert store.queue.alive(worker) and worker in scene.leases()

    return lambda store: store.register_worker(worker), check


def beating(scene: Scene, store: Store) -> tuple[Act, Act]:
    raw_sql(scene.place, "UPDATE leases SET beat_at = 1")

    def check(store: Store) -> None:
        assert raw_sql(scene.place, "SELECT beat_at > 1 FROM leases WHERE worker = 'w-two'")[0][0]

    return lambda store: store.beat("w-two"), check


def releasing(scene: Scene, store: Store) -> tuple[Act, Act]:
    worker = new_id("w")
    store.register_worker(worker)

    def check(store: Store) -> None:
        assert scene.dead(store, worker) and worker not in scene.leases()

    return lambda store: store.release_worker(worker), check


def rebuilding(scene: Scene, store: Store) -> tuple[Act, Act]:
    run_id = new_run(store)
    claim = take(store, "w-two", run_id)
    spoilt = f"WHERE run_id = '{run_id}'"
    raw_sql(scene.place, f"UPDATE runs SET goal = 'x' {spoilt}", f"DELETE FROM views {spoilt}")

    def check(store: Store) -> None:
        assert len(store.append(claim, turn(claim, 1))) == 2, "anyone who had the step still has it"

    return lambda store: store.rebuild(run_id), check


OPERATIONS = {
    creating: {"INSERT runs", "INSERT views", "INSERT events", "INSERT steps"},
    beginning: {"INSERT runs", "INSERT views", "INSERT events", "INSERT steps"},
    reopening: {"INSERT events", "INSERT runs", "INSERT steps"},
    starting: {"INSERT events", "INSERT runs", "INSERT steps"},
    appending: {"INSERT events", "INSERT runs"},
    ending: {"INSERT events", "INSERT runs", "INSERT steps"},
    going_on: {"INSERT events", "INSERT runs", "INSERT steps"},
    settling: {"INSERT events", "INSERT runs", "INSERT views", "INSERT notifications"},
    leasing: {"UPDATE notifications"},
    putting_off: {"UPDATE notifications"},
    asking: {"INSERT events", "INSERT runs", "INSERT steps", "INSERT views"},
    reclaiming: {"UPDATE steps", "DELETE leases"},
    granting: {"INSERT leases"},
    giving_back: {"UPDATE steps"},
    registering: {"INSERT leases"},
    beating: {"INSERT leases"},
    releasing: {"DELETE leases"},
    rebuilding: {"INSERT runs", "DELETE views", "INSERT views", "DELETE steps", "INSERT steps"},
}
"""What each of them writes."""


Operation = Callable[[Scene, Store], tuple[Act, Act]]


def fails(scene: Scene, operation: Operation, arm: Callable[[], None], disarm: Callable[[], None]) -> bool:
    """Whether the operation failed. It is done again then, and all of it was done once."""
    scene.open().register_worker("w-one")
    store = scene.open(faulty=True)
    store.register_worker("w-two")
    act, check = operation(scene, store)
    arm()
    try:
        act(store)
        failed = False
    except CodePilotError as error:
        assert error.kind is FailureKind.STORE_UNAVAILABLE, error
        failed = True
    disarm()
    if failed:
        with suppress(LostLease):  # it was lost because it was done
            act(store)
    check(store)
    assert store.check_all() == {}
    scene.close()
    return failed


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_failure_at_any_write_leaves_all_or_nothing(tmp_path: Path, operation: Operation) -> None:
    fuse = Fuse()
    for point in itertools.count():
        file = tmp_path / f"{point}" / "codepilot.db"

        def open_faulty(file: Path = file) -> Store:
            store = Store.open(file)
            fail_by(store, fuse)
            return store

        scene = Scene(f"sqlite:///{file}", open_faulty)
        if not fails(scene, operation, lambda: setattr(fuse, "left", point), lambda: setattr(fuse, "left", None)):  # noqa: B023
            break
    assert fuse.written <= fuse.guarded, "a write got past the fuse"
    assert fuse.written >= OPERATIONS[operation]
    assert fuse.hit >= OPERATIONS[operation], "each of its writes was made to fail"
    assert fuse.blown == point >= len(OPERATIONS[operation]) + 3, "and its begin, and its commit from both sides"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_connection_cut_around_a_commit_leaves_all_or_nothing(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: Operation
) -> None:
    """Cut at the first word, in the middle, before the commit, and after it; the second try is cut as well."""
    for room, name in ((database, "RETRY_SEC"), (session_locks, "GRACE_SEC"), (session_locks, "START_GRACE_SEC")):
        monkeypatch.setattr(room, name, 0.02)
    proxy = CuttingProxy(tmp_path, postgres.directory)
    place = postgres.store()
    moments: list[Moment] = ["after", "before", 0, 4]
    for moment in moments:
        scene = Scene(place, lambda: Store.open(place.replace(str(postgres.directory), str(tmp_path))))
        fails(scene, operation, lambda: proxy.cut(moment, 0), proxy.cut)  # noqa: B023
    proxy.close()
    assert proxy.cuts >= 4, "each at least once"
