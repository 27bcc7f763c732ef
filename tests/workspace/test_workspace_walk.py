"""The walk through a hostile tree: nothing runs, nothing leaks, nothing hides, nothing blocks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import Entry, ObjectStore, WalkLimits, Workspace
from codepilot.workspace.stat_cache import GRANULARITY_NS
from codepilot.workspace.trees import leads_out


def made(
    tmp_path: Path, objects: ObjectStore, held: Mapping[str, bytes | Entry], **limits: int
) -> tuple[Workspace, str]:
    entries = {
        path: content if isinstance(content, Entry) else Entry("100644", objects.write_blob(content))
        for path, content in held.items()
    }
    tree = objects.write_tree(entries)
    workspace = Workspace(tmp_path / "workspaces" / "r-1", objects, WalkLimits(**limits))
    assert workspace.create(tree)
    return workspace, tree


def rules(workspace: Workspace, tree: str) -> list[tuple[str, str]]:
    return [(found.rule, found.path) for found in workspace.diff(tree).violations]


def test_a_nested_repository_is_a_violation_and_runs_nothing(tmp_path: Path, objects: ObjectStore) -> None:
    workspace, tree = made(tmp_path, objects, {"a.py": b"1\n"})
    marker = tmp_path / "executed"
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    hook.chmod(0o755)
    for place in ("sub", "."):
        directory = workspace.tree_path / place
        directory.mkdir(exist_ok=True)
        subprocess.run(["git", "init", "-q", str(directory)], check=True, timeout=300)
        with (directory / ".git" / "config").open("a") as config:
            config.write(f'[core]\n\tfsmonitor = {hook}\n\tpager = {hook}\n[filter "x"]\n\tclean = {hook}\n')
        (directory / ".gitattributes").write_text("* filter=x\n")
        (directory / "in.py").write_text("in\n")
    (workspace.tree_path / "file_git").mkdir()
    (workspace.tree_path / "file_git" / ".git").write_text("gitdir: ../sub/.git\n")
    (workspace.tree_path / "odd").mkdir()
    (workspace.tree_path / "odd" / ".GIT").mkdir()
    for _ in range(2):
        difference = workspace.diff(tree)
        assert [(found.rule, found.path) for found in difference.violations] == [
            ("nested_git", "file_git/.git"),
            ("nested_git", "odd/.GIT"),
            ("nested_git", "sub/.git"),
        ]
        assert {change.path for change in difference.changes} == {
            ".gitattributes",
            "in.py",
            "sub/.gitattributes",
            "sub/in.py",
        }
        workspace.snapshot()
    assert not marker.exists()


def test_a_repository_without_a_git_directory_is_one_unless_the_base_has_it(
    tmp_path: Path, objects: ObjectStore
) -> None:
    """Git takes a directory with these names for a repository, and runs what its configuration says."""
    bare = ("HEAD", "config", "objects/x", "refs/heads/main")
    held = {f"fixture/{name}": b"x" for name in bare} | {"half/HEAD": b"x", "half/objects/x": b"x", "a.py": b"1\n"}
    workspace, tree = made(tmp_path, objects, held)
    assert rules(workspace, tree) == []
    for name in bare:
        place = workspace.tree_path / "new" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x")
    (workspace.tree_path / "half" / "Refs").mkdir()
    (workspace.tree_path / "apart").mkdir()
    for name in ("head", "commondir", "config"):
        (workspace.tree_path / "apart" / name).write_text("../fixture")
    for _ in range(2):
        assert rules(workspace, tree) == [("nested_git", "apart"), ("nested_git", "half"), ("nested_git", "new")]


def test_everything_that_is_no_file_is_a_violation(tmp_path: Path, objects: ObjectStore) -> None:
    workspace, tree = made(tmp_path, objects, {"a.py": b"1\n", "b.py": b"2\n"})
    top = workspace.tree_path
    os.mkfifo(top / "pipe")
    (top / "a.py").unlink()
    os.mkfifo(top / "a.py")
    os.link(top / "b.py", top / "second name")
    (top / "suid").write_bytes(b"s")
    (top / "suid").chmod(0o4755)
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(top, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{here}/socket")
        finally:
            os.close(here)
        difference = workspace.diff(tree)
    assert sorted((found.rule, found.path) for found in difference.violations) == [
        ("hard_link", "b.py"),
        ("hard_link", "second name"),
        ("setuid", "suid"),
        ("special_file", "a.py"),
        ("special_file", "pipe"),
        ("special_file", "socket"),
    ]
    assert {(change.path, change.kind) for change in difference.changes} == {
        ("a.py", "deleted"),
        ("b.py", "deleted"),
        ("suid", "added"),
    }
    with pytest.raises(CodePilotError):
        workspace.read_file("pipe")
    with pytest.raises(CodePilotError) as caught:
        workspace.read_file("b.py")
    assert caught.value.kind is FailureKind.POLICY_VIOLATION


def test_links_that_leave_the_tree_are_violations_unless_the_base_has_them(
    tmp_path: Path, objects: ObjectStore
) -> None:
    tracked = Entry("120000", objects.write_blob(b"/usr/share"))
    workspace, tree = made(tmp_path, objects, {"ext": tracked, "d/f": b"f\n", "moved": tracked})
    top = workspace.tree_path
    (top / "fine").symlink_to("d/f")
    (top / "d" / "up").symlink_to("../fine")
    (top / "dangling").symlink_to("nowhere/at/all")
    (top / "passwd").symlink_to("/etc/passwd")
    (top / "climb").symlink_to("d/../../x")
    (top / "through").symlink_to("ext/secret")
    (top / "hook").symlink_to(".git/hooks/pre-commit")
    (top / "moved").unlink()
    (top / "moved").symlink_to("/root")
    assert rules(workspace, tree) == [
        ("symlink_leaves_tree", path) for path in ("climb", "hook", "moved", "passwd", "through")
    ]
    changed = {change.path for change in workspace.diff(tree).changes}
    assert "passwd" in changed and "ext" not in changed
    with pytest.raises(CodePilotError):
        workspace.read_file("passwd")
    with pytest.raises(CodePilotError):
        workspace.read_file("ext/passwd")


def test_a_link_is_followed_through_the_links_of_the_tree() -> None:
    links = {"a/deep": "b/c/d", "x": "a/deep/../../../../y", "loop": "loop", "ok": "a/./b//c", "abs": "/"}
    assert leads_out("x", links | {"a/deep": "."}) is True
    assert leads_out("x", links) is False
    assert leads_out("loop", links) and leads_out("abs", links) and not leads_out("ok", links)


def test_an_agent_cannot_hide_a_file_by_editing_ignore_files(tmp_path: Path, objects: ObjectStore) -> None:
    files = {".gitignore": b"*.log\nbuild/\n", "tracked.log": b"1\n", "build/keep.txt": b"k\n", "src/a.py": b"a\n"}
    workspace, tree = made(tmp_path, objects, files)
    top = workspace.tree_path
    (top / ".gitignore").write_text("*\n")
    (top / "src" / ".gitignore").write_text("*\n")
    (top / "src" / "evil.py").write_text("evil\n")
    (top / "x.log").write_text("noise\n")
    (top / "build" / "new.o").write_text("o\n")
    (top / "cache" / "__pycache__").mkdir(parents=True)
    (top / "cache" / "__pycache__" / "m.pyc").write_bytes(b"\0")
    (top / "out.log").mkdir()
    (top / "out.log" / "deep").write_text("d\n")
    (top / "tracked.log").write_text("2\n")
    difference = workspace.diff(tree)
    assert {change.path for change in difference.changes} == {
        ".gitignore",
        "src/.gitignore",
        "src/evil.py",
        "tracked.log",
    }
    assert difference.ignored == ("build/new.o", "cache/__pycache__/", "out.log/", "x.log")
    assert difference.violations == ()


def test_limits_end_the_walk_and_forbid_a_snapshot(tmp_path: Path, objects: ObjectStore) -> None:
    base = {f"f{number}": b"base\n" for number in range(50)}
    workspace, tree = made(tmp_path, objects, base, files=10, total_bytes=1000, file_bytes=500, depth=5)
    assert workspace.snapshot().violations == ()
    (workspace.tree_path / "large").write_bytes(b"x" * 501)
    assert rules(workspace, tree) == [("file_too_large", "large")]
    (workspace.tree_path / "large").unlink()
    deep = workspace.tree_path / "1/2/3/4/5/6/7"
    deep.mkdir(parents=True)
    (deep / "f").write_text("deep\n")
    assert rules(workspace, tree) == [("too_deep", "1/2/3/4/5/6")]
    clean = workspace.snapshot()
    for number in range(11):
        (workspace.tree_path / f"new{number}").write_bytes(b"n")
    assert "quota" in {rule for rule, _ in rules(workspace, tree)}
    with pytest.raises(CodePilotError) as caught:
        workspace.snapshot()
    assert caught.value.kind is FailureKind.POLICY_VIOLATION
    workspace.restore(clean.id)
    assert workspace.diff(tree).patch == b""


def test_a_very_deep_tree_is_reported_restored_over_and_deleted(tmp_path: Path, objects: ObjectStore) -> None:
    workspace, tree = made(tmp_path, objects, {"a": b"a\n"})
    clean = workspace.snapshot()

    def dig(levels: int) -> None:
        fd = os.open(workspace.tree_path, os.O_RDONLY)
        for _ in range(levels):
            os.mkdir("deep", dir_fd=fd)
            below = os.open("deep", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = below
        os.close(fd)

    dig(1300)
    assert rules(workspace, tree)[0][0] == "too_deep"
    workspace.restore(clean.id)
    assert workspace.diff(tree).violations == ()
    dig(1300)
    workspace.delete()
    assert not workspace.path.exists()


def test_a_change_within_the_clocks_granularity_is_seen(tmp_path: Path, objects: ObjectStore) -> None:
    workspace, _tree = made(tmp_path, objects, {"a": b"0000\n"})
    path = workspace.tree_path / "a"
    for number in range(1, 60):
        path.write_bytes(b"%04d\n" % number)
        os.utime(path, ns=(10**18, 10**18))
        assert (
            objects.write_tree({"a": Entry("100644", objects.write_blob(b"%04d\n" % number))}) == workspace.scan().tree
        )


def test_a_change_right_after_creation_is_seen_also_after_a_restart(tmp_path: Path, objects: ObjectStore) -> None:
    changed = objects.write_tree({"a": Entry("100644", objects.write_blob(b"1111\n"))})
    for number in range(20):
        begun = time.time_ns()
        workspace, _tree = made(tmp_path / str(number), objects, {"a": b"0000\n"})
        took = time.time_ns() - begun
        remembered = json.loads((workspace.path / "index.json").read_bytes())["files"]
        path = workspace.tree_path / "a"
        laid_down = path.stat().st_mtime_ns
        path.write_bytes(b"1111\n")
        os.utime(path, ns=(laid_down, laid_down))
        assert workspace.scan().tree == changed
        assert Workspace(workspace.path, objects).scan().tree == changed
        assert not remembered or took > GRANULARITY_NS  # Newer kernels have clocks that hide the fault.


def test_what_cannot_be_read_is_reported_and_restored_over(tmp_path: Path, objects: ObjectStore) -> None:
    workspace, tree = made(tmp_path, objects, {"a": b"a\n", "d/b": b"b\n"})
    clean = workspace.snapshot()
    (workspace.tree_path / "a").chmod(0o000)
    (workspace.tree_path / "a").write_bytes(b"c\n") if os.geteuid() == 0 else None
    (workspace.tree_path / "d").chmod(0o000)
    found = rules(workspace, tree)
    assert found == ([] if os.geteuid() == 0 else [("unreadable", "a"), ("unreadable", "d")])
    assert workspace.diff(tree).patch
    workspace.restore(clean.id)
    assert workspace.snapshot() == clean


def test_only_paths_inside_are_read(tmp_path: Path, objects: ObjectStore) -> None:
    workspace, _tree = made(tmp_path, objects, {"d/a": b"a\n"})
    (workspace.tree_path / ".git").mkdir()
    (workspace.tree_path / ".git" / "config").write_text("x")
    assert workspace.read_file("d/a") == b"a\n"
    for path in ("../index.json", "/etc/passwd", "d/../d/a", "", ".", "d//a", ".git/config", "a\0b"):
        with pytest.raises(CodePilotError) as caught:
            workspace.read_file(path)
        assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS
    for path in ("d", "missing", "d/a/b", "no/such"):
        with pytest.raises(CodePilotError) as caught:
            workspace.read_file(path)
        assert caught.value.kind is FailureKind.PATH_NOT_FOUND
    with pytest.raises(CodePilotError):
        workspace.read_file("d/a", limit=1)


def test_names_that_come_go_and_change_places_are_seen_in_directories_known_before(
    tmp_path: Path, objects: ObjectStore
) -> None:
    workspace, _tree = made(tmp_path, objects, {"d/a": b"a\n", "d/b": b"b\n", "d/s/c": b"c\n"})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "c").write_bytes(b"c\n")
    first = workspace.snapshot()
    steps = (
        "echo a > new",
        "rm a",
        "mv b a",
        "mkdir empty",
        f"rm -r s; ln -s {outside} s",
        "rm s; mkdir s; echo c > s/c",
    )
    for pause in (0.0, 2 * GRANULARITY_NS / 1e9):
        for step in steps:
            time.sleep(pause)
            before = workspace.snapshot()
            subprocess.run(["sh", "-c", step], cwd=workspace.tree_path / "d", check=True)
            after = workspace.snapshot()
            assert after.id != before.id
            assert after == Workspace(workspace.path, objects).snapshot()
        time.sleep(pause)
        workspace.restore(first.id)
        assert workspace.snapshot() == first
