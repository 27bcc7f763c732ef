"""Retention: what a run may still need stays, also what is put while retention is at work; the rest goes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from artifact_kit import Kept, Shifted, kept_files
from sample_runs import new_run, started, take

from codepilot.core.artifacts import ArtifactRef, ArtifactType
from codepilot.core.events import ArtifactStored, EventDraft, EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import decide_cancel
from codepilot.store import ArtifactMissing, FileArtifacts, Pruned, Store, prune
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
        type=EventType.ARTIFACT_STORED,
        data=ArtifactStored(name="x"),
        step_id=claim.step_id,
        attempt=claim.attempt,
        artifacts=(ref,),
    )
    store.append(claim, [started(claim), stored])
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
    leftover = "sha256/.abc.tmp" if kept.form == "files" else "tmp/0123"
    foreign = ["sha256/README", "elsewhere/notes", f"sha256/ab/{'cd' * 32}"]
    for where in (leftover, *foreign):
        kept.write(where, b"half")
    assert prune(store, kept.artifacts, MONTH, rehearse=False).removed == 0
    done = prune(store, kept.artifacts, MONTH, rehearse=False, clock=later(timedelta(days=2)))
    assert (done.removed, done.leftovers, done.removed_bytes) == (1, 1, 4)
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


def test_who_puts_while_retention_removes_has_it_afterwards(tmp_path: Path) -> None:
    kept = kept_files(tmp_path)
    artifacts = FileArtifacts(tmp_path)
    lost: list[int] = []
    for turn in range(150):
        ref = text(kept, b"contended")
        kept.age(ref, timedelta(days=2))
        [one] = artifacts.stored()
        together = threading.Barrier(2)

        def remove(one: object = one, together: threading.Barrier = together) -> None:
            together.wait()
            artifacts.remove(one, now_us() - GRACE // timedelta(microseconds=1))  # type: ignore[arg-type]

        remover = threading.Thread(target=remove)
        remover.start()
        together.wait()
        if turn % 2:
            artifacts.put(b"contended", ArtifactType.LOG)
        else:
            artifacts.put_stream([b"contended"], ArtifactType.LOG)
        remover.join()
        if not artifacts.has(ref):
            lost.append(turn)
    assert lost == []


def test_the_time_to_come_is_no_age(tmp_path: Path, store: Store) -> None:
    with pytest.raises(CodePilotError) as refused:
        prune(store, FileArtifacts(tmp_path), timedelta(days=-1), rehearse=True)
    assert refused.value.kind is FailureKind.INVALID_SPEC
    assert prune(store, FileArtifacts(tmp_path / "none"), MONTH, rehearse=False) == Pruned(False)
