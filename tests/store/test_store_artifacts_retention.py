"""Retention: what a run may still need stays, also what is put while retention is at work; the rest goes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from artifact_kit import Kept, Shifted, kept_files
from sample_runs import new_run, take

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.decide import decide_cancel
from codepilot.core.events import EventDraft, EventType, Requested
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import ArtifactMissing, FileArtifacts, Pruned, Store, prune
from codepilot.store.artifacts import Stored
from codepilot.store.retention import GRACE
from codepilot.telemetry import now_us

MONTH = timedelta(days=30)


def later(span: timedelta) -> Callable[[], int]:
    clock = Shifted()
    clock.forward(span)
    return clock


def name(store: Store, ref: ArtifactRef, ended: bool = True) -> str:
    """A run whose log names an artifact."""
    run_id = new_run(store)
    claim = take(store, run_id=run_id)
    stored = EventDraft(
        type=EventType.PAUSE_REQUESTED,
        data=Requested(reason="x"),
        step_id=claim.step_id,
        attempt=claim.attempt,
        artifacts=(ref,),
    )
    store.append(claim, [stored])
    if ended:
        store.control(run_id, decide_cancel)
    return run_id


def text(kept: Kept, data: bytes) -> ArtifactRef:
    return kept.artifacts.put(data, ArtifactType.LOG)


def test_what_old_runs_alone_named_goes(kept: Kept, store: Store) -> None:
    named, both, never = (text(kept, data) for data in (b"named", b"both", b"never named"))
    waiting = text(kept, b"of a run that is not over")
    name(store, named)
    name(store, both)
    name(store, waiting, ended=False)
    assert prune(store, kept.artifacts, MONTH, rehearse=False) == Pruned(False, kept=4, kept_bytes=45)
    assert prune(store, kept.artifacts, MONTH, rehearse=True) == Pruned(True, kept=4, kept_bytes=45)
    clock = later(timedelta(days=3))
    rehearsed = prune(store, kept.artifacts, MONTH, rehearse=True, clock=clock)
    assert (rehearsed.removed, rehearsed.removed_bytes, rehearsed.kept) == (1, 11, 3)
    assert kept.artifacts.has(never)
    done = prune(store, kept.artifacts, MONTH, rehearse=False, clock=clock)
    assert (done.removed, done.removed_bytes, done.kept, done.kept_bytes) == (1, 11, 3, 34)
    assert not kept.artifacts.has(never)
    assert prune(store, kept.artifacts, MONTH, rehearse=False, clock=clock).removed == 0
    done = prune(store, kept.artifacts, MONTH, rehearse=False, clock=later(timedelta(days=31)))
    assert (done.removed, done.kept) == (2, 1)
    with pytest.raises(ArtifactMissing):
        kept.artifacts.get(named)
    assert not kept.artifacts.has(both)
    assert kept.artifacts.get(waiting) == b"of a run that is not over"


def test_a_younger_run_keeps_what_an_old_one_named(kept: Kept, place: str, home: object) -> None:
    ref = text(kept, b"shared")
    clock = Shifted()
    store = Store.open(place, clock=clock)
    try:
        name(store, ref)
        clock.forward(timedelta(days=40))
        name(store, ref)
        assert prune(store, kept.artifacts, MONTH, rehearse=False, clock=clock).removed == 0
        assert kept.artifacts.has(ref)
        clock.forward(timedelta(days=31))
        assert prune(store, kept.artifacts, MONTH, rehearse=False, clock=clock).removed == 1
    finally:
        store.close()


def test_unfinished_writes_go_and_foreign_files_stay(kept: Kept, store: Store) -> None:
    leftovers = ["sha256/.abc.tmp"] if kept.form == "files" else []
    foreign = ["sha256/README", "elsewhere/notes", f"sha256/ab/{'cd' * 32}"]
    for where in (*leftovers, *foreign):
        kept.write(where, b"half")
    assert prune(store, kept.artifacts, MONTH, rehearse=False).removed == 0
    done = prune(store, kept.artifacts, MONTH, rehearse=False, clock=later(timedelta(days=2)))
    count = len(leftovers)
    assert (done.removed, done.leftovers, done.removed_bytes) == (count, count, 4 * count)
    assert kept.names() == sorted(foreign)


def test_nothing_is_removed_that_was_put_in_the_meantime(kept: Kept) -> None:
    ref = text(kept, b"again and again")
    [one] = kept.artifacts.stored()
    assert (one.sha256, one.size_bytes) == (ref.sha256, 15)
    assert not kept.artifacts.remove(one, unless_after=one.modified - 1)
    assert kept.artifacts.get(ref) == b"again and again"
    assert kept.artifacts.remove(one, unless_after=now_us() + 2_000_000)
    assert not kept.artifacts.remove(one, unless_after=now_us() + 2_000_000)
    assert kept.names() == []


@contextmanager
def holding(directory: Path, how: int) -> Iterator[None]:
    """As another process would that puts or removes right now."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def test_who_puts_and_who_removes_wait_for_one_another(tmp_path: Path) -> None:
    kept, artifacts = kept_files(tmp_path), FileArtifacts(tmp_path)
    ref = text(kept, b"contended")
    path = artifacts.path(ref)
    kept.age(ref, timedelta(days=2))
    [one] = artifacts.stored()
    long_ago = now_us() - GRACE // timedelta(microseconds=1)
    with ThreadPoolExecutor(2) as pool:
        with holding(path.parent, fcntl.LOCK_SH):
            removed = pool.submit(artifacts.remove, one, long_ago)
            assert not wait([removed], timeout=0.2).done
            path.touch()
        assert removed.result(timeout=10) is False
        for put in (
            lambda: artifacts.put(b"contended", ArtifactType.LOG),
            lambda: artifacts.put_stream([b"contended"], ArtifactType.LOG),
        ):
            with holding(path.parent, fcntl.LOCK_EX):
                done = pool.submit(put)
                assert not wait([done], timeout=0.2).done
                path.unlink()
            assert done.result(timeout=10) == ref
            assert artifacts.get(ref) == b"contended"


def test_the_time_to_come_is_no_age(tmp_path: Path, store: Store) -> None:
    with pytest.raises(CodePilotError) as refused:
        prune(store, FileArtifacts(tmp_path), timedelta(days=-1), rehearse=True)
    assert refused.value.kind is FailureKind.INVALID_SPEC
    assert prune(store, FileArtifacts(tmp_path / "none"), MONTH, rehearse=False) == Pruned(False)


def test_what_is_named_again_while_others_are_removed_stays(tmp_path: Path, store: Store) -> None:
    """As by a fork of the old run, which does not put it again."""
    refs = {ref.sha256: ref for ref in (text(kept_files(tmp_path / "kept"), data) for data in (b"a", b"b"))}
    for ref in refs.values():
        name(store, ref)

    class NamedAgain(FileArtifacts):
        def remove(self, one: Stored, unless_after: int) -> bool:
            for sha256, ref in refs.items():
                if sha256 != one.sha256:
                    name(store, ref, ended=False)
            return super().remove(one, unless_after)

    done = prune(store, NamedAgain(tmp_path / "kept"), MONTH, rehearse=False, clock=later(timedelta(days=100)))
    assert (done.removed, done.kept) == (1, 1)


def test_stores_that_keep_artifacts_in_a_place_are_known_there(kept: Kept, store: Store, tmp_path: Path) -> None:
    assert kept.artifacts.names() == {}
    for _ in range(2):
        kept.artifacts.leave_name(store.store_id, store.place)
    other = Store.open(tmp_path / "other.db")
    kept.artifacts.leave_name(other.store_id, other.place)
    assert kept.artifacts.names() == {store.store_id: store.place, other.store_id: other.place}
    assert list(kept.artifacts.stored()) == []
    other.close()


def test_a_store_keeps_its_name(open_store: Callable[[], Store]) -> None:
    """Anyone who asks first, and from wherever."""
    stores = [open_store() for _ in range(4)]
    with ThreadPoolExecutor() as pool:
        [name] = set(pool.map(lambda one: one.store_id, stores))
    assert open_store().store_id == name
