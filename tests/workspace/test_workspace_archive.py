"""Snapshots travel to other machines, by themselves and by the artifact store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kept_snapshots import fetch, keep
from object_streams import contents, pieces, stored

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store import FileArtifacts
from codepilot.workspace import ObjectStore, Workspace


@pytest.fixture
def other(tmp_path: Path) -> ObjectStore:
    return ObjectStore.open(tmp_path / "other.git")


def furnished(tmp_path: Path, objects: ObjectStore, name: str = "ws") -> Workspace:
    workspace = Workspace(tmp_path / name, objects)
    workspace.create(stored(objects))
    top = workspace.tree_path
    (top / "d0/s0/f0").write_bytes(b"edited")
    (top / "d1/s1/f1").unlink()
    (top / "__pycache__").mkdir()
    (top / "__pycache__/x.pyc").write_bytes(b"\0ignored")
    (top / "empty/deeper").mkdir(parents=True)
    (top / "empty").chmod(0o750)
    (top / "nothing").write_bytes(b"")
    (top / "tool").write_bytes(b"#!/bin/sh\n")
    (top / "tool").chmod(0o711)
    (top / "out").symlink_to("/etc/passwd")
    (top / "bad\udcfe\n").write_bytes(b"odd")
    os.utime(top / "tool", ns=(1, 123_456_789))
    top.chmod(0o701)
    return workspace


@pytest.mark.parametrize("whole", [False, True])
def test_a_snapshot_is_restored_exactly_elsewhere(
    tmp_path: Path, objects: ObjectStore, other: ObjectStore, whole: bool, state: Callable[[Path], object]
) -> None:
    workspace = furnished(tmp_path, objects)
    snapshot, expected = workspace.snapshot(), state(workspace.tree_path)
    data = b"".join(workspace.export_snapshot(snapshot.id, whole))
    assert data == b"".join(workspace.export_snapshot(snapshot.id, whole))
    base = stored(objects)
    other.receive(objects.export(base))
    there = Workspace(tmp_path / "there", other)
    there.create(base)
    for _ in range(2):
        arrived = there.import_snapshot(pieces(data, 4096))
        assert (arrived.id, arrived.tree) == (snapshot.id, snapshot.tree)
    there.restore(arrived.id)
    assert state(there.tree_path) == expected
    assert there.snapshot() == snapshot
    assert there.tree_path.stat().st_mode & 0o777 == 0o701
    assert there.diff(base).patch == workspace.diff(base).patch


def test_a_snapshot_without_its_base_says_what_it_needs(
    tmp_path: Path, objects: ObjectStore, other: ObjectStore
) -> None:
    workspace = furnished(tmp_path, objects)
    data = b"".join(workspace.export_snapshot(workspace.snapshot().id))
    there = Workspace(tmp_path / "there", other)
    there.create(other.write_tree({}))
    with pytest.raises(CodePilotError) as caught:
        there.import_snapshot([data])
    assert caught.value.kind is FailureKind.PATH_NOT_FOUND
    assert caught.value.failure.details["needs"] == stored(objects)


def test_a_snapshot_outlives_its_workspace_in_the_artifact_store(
    tmp_path: Path, objects: ObjectStore, state: Callable[[Path], object]
) -> None:
    artifacts = FileArtifacts(tmp_path / "artifacts")
    workspace = furnished(tmp_path, objects)
    snapshot, expected = workspace.snapshot(), state(workspace.tree_path)
    ref = keep(workspace, artifacts, snapshot.id)
    assert keep(workspace, artifacts, snapshot.id) == ref
    workspace.delete()
    again = Workspace(tmp_path / "again", objects)
    again.create(stored(objects))
    again.restore(fetch(again, artifacts, ref).id)
    assert state(again.tree_path) == expected


@pytest.mark.parametrize("whole", [False, True])
def test_a_kept_snapshot_comes_up_exactly_on_another_machine(
    tmp_path: Path, objects: ObjectStore, state: Callable[[Path], object], whole: bool
) -> None:
    here = FileArtifacts(tmp_path / "here/artifacts")
    workspace = furnished(tmp_path / "here", objects)
    snapshot, expected = workspace.snapshot(), state(workspace.tree_path)
    ref = keep(workspace, here, snapshot.id, whole=whole)
    base = b"".join(objects.export(stored(objects)))
    shutil.copytree(tmp_path / "here/artifacts", tmp_path / "there/artifacts")
    workspace.delete()
    shutil.rmtree(objects.path)

    there = FileArtifacts(tmp_path / "there/artifacts")
    with ObjectStore.open(tmp_path / "there/objects") as store:
        empty = store.write_tree({})
        again = Workspace(tmp_path / "there/ws", store)
        again.create(empty if whole else store.receive([base]))
        fetched = fetch(again, there, ref)
        assert (fetched.id, fetched.tree) == (snapshot.id, snapshot.tree)
        again.restore(fetched.id)
        assert state(again.tree_path) == expected
        assert again.tree_path.stat().st_mode & 0o777 == 0o701


def test_a_damaged_or_swapped_archive_is_refused_and_leaves_nothing(tmp_path: Path, objects: ObjectStore) -> None:
    artifacts = FileArtifacts(tmp_path / "artifacts")
    workspace = furnished(tmp_path, objects)
    ref = keep(workspace, artifacts)
    (workspace.tree_path / "later").write_bytes(b"later")
    later = keep(workspace, artifacts)
    again = Workspace(tmp_path / "again", objects)
    again.create(stored(objects))
    again.scan()
    store = ObjectStore.open(again.path / "snapshots")
    before = contents(store)
    good, swapped = artifacts.path(ref).read_bytes(), artifacts.path(later).read_bytes()
    flips = [good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :] for place in (4, 40, len(good) // 2, -9)]
    for bad in (b"", good[:-1], good[: len(good) // 2], good + b"x", swapped, *flips):
        artifacts.path(ref).write_bytes(bad)
        with pytest.raises(CodePilotError):
            fetch(again, artifacts, ref)
        assert contents(store) == before
    artifacts.path(ref).unlink()
    with pytest.raises(CodePilotError):
        fetch(again, artifacts, ref)
    artifacts.path(ref).write_bytes(good)
    again.restore(fetch(again, artifacts, ref).id)
