"""Workspaces come up whole, and a snapshot brings every bit of them back."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from user_repo import read_state as state

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import Entry, ObjectStore, Workspace
from levels import lacking


def base_tree(objects: ObjectStore) -> str:
    files = {f"pkg{number % 3}/sub{number % 2}/m{number}.py": b"x = %d\n" % number for number in range(12)}
    entries = {path: Entry("100644", objects.write_blob(data)) for path, data in files.items()}
    entries["run.sh"] = Entry("100755", objects.write_blob(b"#!/bin/sh\n"))
    entries["link"] = Entry("120000", objects.write_blob(b"pkg0"))
    entries[".gitignore"] = Entry("100644", objects.write_blob(b"*.log\nbuild/\n"))
    return objects.write_tree(entries)


def mutate(root: Path, rng: random.Random, steps: int) -> None:
    """Do to a tree what agents and tests do, ordinary and odd."""
    for _ in range(steps):
        paths = [path for path in root.rglob("*") if ".git" not in path.parts]
        directories = [root] + [path for path in paths if path.is_dir() and not path.is_symlink()]
        files = [path for path in paths if path.is_file() and not path.is_symlink()]
        name = rng.choice(["a", "b.py", "x.log", "build", "sp ace", "new\nline", "bad\udcff", "ü", "__pycache__"])
        target = rng.choice(directories) / name
        action = rng.randrange(9)
        if action == 0 and files:
            file = rng.choice(files)
            file.chmod(file.stat().st_mode | 0o200)
            file.write_bytes(rng.randbytes(rng.randrange(30)))
        elif action == 1 and not target.exists() and not target.is_symlink():
            target.write_bytes(rng.randbytes(rng.randrange(30)))
        elif action == 2 and paths:
            victim = rng.choice(paths)
            shutil.rmtree(victim) if victim.is_dir() and not victim.is_symlink() else victim.unlink()
        elif action == 3 and files:
            rng.choice(files).chmod(rng.choice([0o600, 0o644, 0o755, 0o444, 0o777]))
        elif action == 4 and not target.exists() and not target.is_symlink():
            target.symlink_to(rng.choice(["pkg1", "../x", "/etc/passwd", "bad\udcfe"]))
        elif action == 5 and not target.exists() and not target.is_symlink():
            (target / "empty").mkdir(parents=True)
        elif action == 6 and files:
            source = rng.choice(files)
            if not target.exists() and not target.is_symlink():
                source.rename(target)
        elif action == 7 and len(directories) > 1:
            rng.choice(directories[1:]).chmod(rng.choice([0o700, 0o755, 0o750]))
        elif action == 8 and files:
            chosen = rng.choice(files)
            os.utime(chosen, ns=(10**18, rng.randrange(10**18)))


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 25))
def test_restore_undoes_whatever_happened(seed: int, before: int, after: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory, ObjectStore.open(Path(directory, "o.git")) as objects:
        tree = base_tree(objects)
        workspace = Workspace(Path(directory, "ws"), objects)
        workspace.create(tree)
        (workspace.tree_path / ".git").mkdir()
        (workspace.tree_path / ".git" / "HEAD").write_text("mine")
        first = workspace.snapshot()
        assert first.tree == tree
        original = state(workspace.tree_path)
        mutate(workspace.tree_path, rng, before)
        middle, second = state(workspace.tree_path), workspace.snapshot()
        mutate(workspace.tree_path, rng, after)
        if rng.random() < 0.5:
            workspace.close()
            workspace = Workspace(Path(directory, "ws"), objects)
        workspace.restore(second.id)
        assert state(workspace.tree_path) == middle
        assert workspace.snapshot() == second
        patch = workspace.diff(tree).patch
        assert objects.apply(tree, patch) == second.tree
        workspace.restore(first.id)
        assert state(workspace.tree_path) == original
        assert workspace.snapshot() == first
        assert (workspace.tree_path / ".git" / "HEAD").read_text() == "mine"
        assert sorted(path.name for path in workspace.path.iterdir()) == ["index.json", "snapshots", "tree"]
        workspace.delete()


@pytest.fixture
def workspace(tmp_path: Path, objects: ObjectStore) -> Workspace:
    made = Workspace(tmp_path / "workspaces" / "r ü", objects)
    assert made.create(base_tree(objects)) is True
    return made


def test_creating_again_keeps_what_is_there(workspace: Workspace, objects: ObjectStore) -> None:
    (workspace.tree_path / "run.sh").write_text("edited\n")
    assert workspace.create(base_tree(objects)) is False
    assert (workspace.tree_path / "run.sh").read_text() == "edited\n"
    with pytest.raises(CodePilotError):
        workspace.create(objects.write_tree({}))


def test_files_come_up_exactly(workspace: Workspace) -> None:
    top = workspace.tree_path
    assert (top / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (top / "pkg0/sub0/m0.py").stat().st_mode & 0o777 == 0o644
    assert str((top / "link").readlink()) == "pkg0"
    assert (workspace.path.stat().st_mode & 0o777) == 0o700


def test_a_half_made_workspace_is_made_again(tmp_path: Path, objects: ObjectStore) -> None:
    """Killed after any of the files it writes, creation starts over and ends whole."""
    tree = base_tree(objects)
    for fatal in (1, 5, 14):
        path = tmp_path / f"ws{fatal}"
        child = os.fork()
        if child == 0:
            _die_at_rename_or_open(fatal)
            Workspace(path, objects).create(tree)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 9
        assert not Workspace(path, objects).exists
        workspace = Workspace(path, objects)
        assert workspace.create(tree) is True
        assert workspace.snapshot().tree == tree
        assert sorted(found.name for found in path.iterdir()) == ["index.json", "snapshots", "tree"]


def _die_at_rename_or_open(fatal: int) -> None:
    calls = 0
    real = os.fchmod

    def counted(fd: int, mode: int) -> None:
        nonlocal calls
        calls += 1
        if calls == fatal:
            os._exit(9)
        real(fd, mode)

    os.fchmod = counted


def test_single_paths_come_back_and_others_stay(workspace: Workspace) -> None:
    top = workspace.tree_path
    (top / "build").mkdir()
    (top / "build" / "out").write_text("built\n")
    snapshot = workspace.snapshot()
    (top / "run.sh").write_text("edited\n")
    (top / "pkg0/sub0/m0.py").write_text("edited\n")
    (top / "pkg1/sub1/extra.py").write_text("extra\n")
    shutil.rmtree(top / "build")
    shutil.rmtree(top / "pkg2")
    (top / "pkg2").write_text("a file now\n")
    (top / "new").mkdir()
    (top / "new" / "a").write_text("a")
    (top / "new" / "b").write_text("b")
    workspace.restore(snapshot.id, ["pkg0/sub0/m0.py", "build/out", "pkg2/sub0/m2.py", "new/a", "pkg1", "not/there"])
    assert (top / "pkg0/sub0/m0.py").read_text() == "x = 0\n"
    assert (top / "build/out").read_text() == "built\n"
    assert (top / "pkg2/sub0/m2.py").read_text() == "x = 2\n" and not (top / "pkg2/sub1").exists()
    assert not (top / "new/a").exists() and (top / "new/b").exists()
    assert not (top / "pkg1/sub1/extra.py").exists()
    assert (top / "run.sh").read_text() == "edited\n"
    for path in ("../x", "/etc", ".git/config", ""):
        with pytest.raises(CodePilotError):
            workspace.restore(snapshot.id, [path])


def test_restore_clears_hostile_things_and_follows_no_link(workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "m0.py").write_text("precious\n")
    snapshot = workspace.snapshot()
    top = workspace.tree_path
    shutil.rmtree(top / "pkg0")
    (top / "pkg0").symlink_to(outside)
    (top / "run.sh").unlink()
    (top / "run.sh").symlink_to(outside / "m0.py")
    (top / "pkg1/sub1/m1.py").unlink()
    os.mkfifo(top / "pkg1/sub1/m1.py")
    os.link(outside / "m0.py", top / "hard")
    (top / "pkg2").chmod(0o000)
    (top / "locked/in").mkdir(parents=True)
    (top / "locked/in").chmod(0o000)
    (top / "locked").chmod(0o500)
    workspace.restore(snapshot.id)
    assert workspace.snapshot() == snapshot
    assert (outside / "m0.py").read_text() == "precious\n"
    (top / "out").symlink_to(outside)
    (top / "pkg1").chmod(0o000)
    workspace.delete()
    workspace.delete()
    assert not workspace.path.exists() and (outside / "m0.py").exists()


def test_a_tree_may_be_read_only(workspace: Workspace) -> None:
    top = workspace.tree_path
    snapshot_writable = workspace.snapshot()
    for path in sorted(top.rglob("*"), reverse=True):
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() else 0o444)
    locked = workspace.snapshot()
    before = state(top)
    workspace.restore(snapshot_writable.id)
    (top / "pkg0/sub0/m0.py").write_text("edited\n")
    workspace.restore(locked.id)
    assert state(top) == before
    workspace.delete()


def test_an_unknown_snapshot_is_refused_before_anything_changes(workspace: Workspace) -> None:
    (workspace.tree_path / "run.sh").write_text("edited\n")
    with pytest.raises(CodePilotError) as caught:
        workspace.restore("0" * 64)
    assert caught.value.kind is FailureKind.PATH_NOT_FOUND
    with pytest.raises(CodePilotError):
        workspace.restore(workspace.snapshot().tree)
    assert (workspace.tree_path / "run.sh").read_text() == "edited\n"


def test_a_missing_workspace_says_so(tmp_path: Path, objects: ObjectStore) -> None:
    with pytest.raises(CodePilotError) as caught:
        Workspace(tmp_path / "gone", objects).snapshot()
    assert caught.value.kind is FailureKind.EXECUTOR_LOST
    assert not (tmp_path / "gone").exists()


def test_carried_files_are_there_but_no_part_of_the_change(tmp_path: Path, objects: ObjectStore) -> None:
    source = tmp_path / "checkout"
    (source / "gen" / ".git").mkdir(parents=True)
    (source / "gen" / "a.py").write_text("generated\n")
    (source / "gen" / "l").symlink_to("a.py")
    (source / "pkg0").mkdir()
    (source / "pkg0" / "_version.py").write_text("1\n")
    tree = base_tree(objects)
    workspace = Workspace(tmp_path / "ws", objects)
    carried = {"gen": source / "gen", "pkg0/_version.py": source / "pkg0" / "_version.py"}
    workspace.create(tree, carried)
    assert (workspace.tree_path / "gen/a.py").read_text() == "generated\n"
    assert not (workspace.tree_path / "gen/.git").exists()
    difference = Workspace(tmp_path / "ws", objects).diff(tree)
    assert difference.patch == b"" and difference.violations == ()
    assert difference.ignored == ("gen/", "pkg0/_version.py")
    with pytest.raises(CodePilotError) as caught:
        Workspace(tmp_path / "other", objects).create(tree, {"x": source / "nothing"})
    assert caught.value.kind is FailureKind.PATH_NOT_FOUND


def test_a_killed_restore_leaves_whole_files_and_is_done_again(workspace: Workspace) -> None:
    top = workspace.tree_path
    old, new = b"old\n" * 5_000, b"new\n" * 6_000
    for number in range(60):
        (top / f"f{number}").write_bytes(old)
    first, expected = workspace.snapshot(), state(top)
    for turn in range(8):
        for number in range(60):
            (top / f"f{number}").write_bytes(new)
        (top / "more/deep").mkdir(parents=True)
        (top / "more/deep/x").write_bytes(new)
        child = os.fork()
        if child == 0:
            workspace.restore(first.id)
            os._exit(0)
        time.sleep(0.002 * turn)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert all((top / f"f{number}").read_bytes() in (old, new) for number in range(60))
        workspace.restore(first.id)
        assert state(top) == expected
        assert sorted(path.name for path in workspace.path.iterdir()) == ["index.json", "snapshots", "tree"]


_ON_A_FULL_DISK = """
import pathlib, sys
from codepilot.workspace import Entry, ObjectStore, Workspace
disk = pathlib.Path(sys.argv[1])
with ObjectStore.open(disk / "objects") as objects:
    workspace = Workspace(disk / "workspace", objects)
    workspace.create(objects.write_tree({"a": Entry("100644", objects.write_blob(bytes(1 << 20)))}))
    first = workspace.snapshot()
    (workspace.tree_path / "a").unlink()
    try:
        (workspace.tree_path / "fill").write_bytes(bytes(8 << 20))
    except OSError:
        workspace.restore(first.id)
    print(sorted((path.name, path.stat().st_size) for path in workspace.tree_path.iterdir()))
"""


def test_restore_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=4m none {tmp_path} && exec {sys.executable} -c '{_ON_A_FULL_DISK}' {tmp_path}"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount], capture_output=True, check=False
    )
    if b"unshare:" in done.stderr or b"mount:" in done.stderr:
        lacking("no file system can be mounted here")
    assert done.stdout.decode() == f"{[('a', 1 << 20)]}\n", done.stderr.decode()
