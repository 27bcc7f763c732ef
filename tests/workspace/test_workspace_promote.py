"""Promotion: all of the change or none of it, whatever happens on the way."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import Entry, ObjectStore, pin_base, promote, shown

Files = dict[str, tuple[str, bytes]]

BEFORE: Files = {
    "edited.py": ("100644", b"old\r\n"),
    "moved/away.py": ("100644", b"away\n"),
    "script": ("100644", b"#!/bin/sh\n"),
    "to_link": ("100644", b"t\n"),
    "file_to_dir": ("100644", b"f\n"),
    "dir_to_file/a/b": ("100644", b"b\n"),
    "untouched ü": ("100644", b"same\n"),
}
AFTER: Files = {
    "edited.py": ("100644", b"new\r\n"),
    "new dir/deep/bin\udcff": ("100644", b"\0\xff"),
    "script": ("100755", b"#!/bin/sh\n"),
    "to_link": ("120000", b"edited.py"),
    "file_to_dir/inside": ("100755", b"i\n"),
    "dir_to_file": ("100644", b"now a file\n"),
    "untouched ü": ("100644", b"same\n"),
}


def tree_of(objects: ObjectStore, files: Files) -> str:
    return objects.write_tree({path: Entry(mode, objects.write_blob(data)) for path, (mode, data) in files.items()})


@pytest.fixture
def checkout(make_repo: Callable[..., Any]) -> Any:
    repo = make_repo("check out")
    for path, (_, data) in BEFORE.items():
        repo.write(path, data)
    repo.write(".gitignore", "*.log\n")
    repo.commit()
    repo.write("mine.log", "ignored\n")
    repo.write("moved/mine.txt", "untracked\n")
    return repo


def trees(objects: ObjectStore, repo: Any) -> tuple[str, str]:
    base = pin_base(repo.path, objects).tree
    kept = {path: entry for path, entry in objects.read_tree(base).items() if path not in BEFORE}
    new = {path: Entry(mode, objects.write_blob(data)) for path, (mode, data) in AFTER.items()}
    return base, objects.write_tree(kept | new)


def test_the_checkout_becomes_the_new_tree_and_nothing_else_changes(
    checkout: Any, objects: ObjectStore, tmp_path: Path
) -> None:
    base, new = trees(objects, checkout)
    git_before = checkout.fingerprint()
    (checkout.path / "edited.py").chmod(0o640)
    journal = tmp_path / "journals" / "r.json"
    written = promote(checkout.path, objects, base, new, journal)
    assert set(written) == (set(BEFORE) ^ set(AFTER)) | {"edited.py", "script", "to_link"}
    assert pin_base(checkout.path, objects).tree == new
    assert checkout.fingerprint() == git_before
    assert (checkout.path / "mine.log").read_text() == "ignored\n"
    assert (checkout.path / "moved/mine.txt").read_text() == "untracked\n"
    assert (checkout.path / "edited.py").stat().st_mode & 0o777 == 0o640
    assert {row["path"] for row in json.loads(journal.read_text())["files"]} == set(written)
    mtimes = {path: path.lstat().st_mtime_ns for path in checkout.path.rglob("*")}
    assert promote(checkout.path, objects, base, new, journal) == ()
    assert {path: path.lstat().st_mtime_ns for path in checkout.path.rglob("*")} == mtimes
    assert promote(checkout.path, objects, new, base, journal)
    assert pin_base(checkout.path, objects).tree == base


@pytest.mark.parametrize("spoil", ["edit", "delete", "mode", "type", "appear", "dir_in_the_way", "link_in_the_way"])
def test_any_change_since_refuses_the_whole_and_names_the_files(
    checkout: Any, objects: ObjectStore, tmp_path: Path, spoil: str
) -> None:
    base, new = trees(objects, checkout)
    top = checkout.path
    outside = tmp_path / "outside"
    outside.mkdir()
    expected = "edited.py"
    if spoil == "edit":
        (top / "edited.py").write_bytes(b"old\n")
    elif spoil == "delete":
        (top / "edited.py").unlink()
    elif spoil == "mode":
        (top / "edited.py").chmod(0o755)
    elif spoil == "type":
        (top / "edited.py").unlink()
        (top / "edited.py").symlink_to("script")
    elif spoil == "appear":
        checkout.write("new dir/deep/bin\udcff", b"mine")
        expected = "new dir/deep/bin\\xff"
    elif spoil == "dir_in_the_way":
        checkout.write("dir_to_file/a/mine", b"mine")
        expected = "dir_to_file"
    else:
        (top / "new dir").symlink_to(outside)
        expected = "new dir/deep/bin\\xff"
    state = {path: path.read_bytes() for path in top.rglob("*") if path.is_file()}
    with pytest.raises(CodePilotError) as caught:
        promote(top, objects, base, new, tmp_path / "journal")
    assert caught.value.kind is FailureKind.PATCH_CONFLICT
    assert caught.value.failure.details["files"] == [expected]
    assert expected in caught.value.failure.message
    caught.value.failure.model_dump_json()
    assert {path: path.read_bytes() for path in top.rglob("*") if path.is_file()} == state
    assert not (tmp_path / "journal").exists() and list(outside.iterdir()) == []


@pytest.mark.parametrize("error", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_checkout_that_may_not_be_written_is_refused_with_a_sentence_and_completed_later(
    checkout: Any, objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    base, new = trees(objects, checkout)
    real = os.open

    def refused(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if str(path).startswith(".codepilot-tmp-") and flags & os.O_CREAT:
            raise OSError(error, os.strerror(error), path)
        return real(path, flags, *args, **options)

    with monkeypatch.context() as patched, pytest.raises(CodePilotError) as caught:
        patched.setattr(os, "open", refused)
        promote(checkout.path, objects, base, new, tmp_path / "journal")
    assert caught.value.kind is FailureKind.REPO_UNREACHABLE
    assert str(checkout.path) in caught.value.failure.message and "writable" in caught.value.failure.advice
    promote(checkout.path, objects, base, new, tmp_path / "journal")
    assert pin_base(checkout.path, objects).tree == new


WRITING = ("open", "write", "rename", "unlink", "rmdir", "mkdir", "symlink", "fchmod", "fsync")


def _die_before(fatal: int) -> None:
    """End this process, as a kill would, at the n-th call that could change a disk."""
    calls = 0

    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == fatal:
                os._exit(9)
            return real(*args, **options)

        return call

    for name in WRITING:
        setattr(os, name, wrapped(getattr(os, name)))


def test_a_crash_at_any_write_is_completed_by_the_same_call(
    make_repo: Callable[..., Any], objects: ObjectStore, tmp_path: Path
) -> None:
    base, new = tree_of(objects, BEFORE), tree_of(objects, AFTER)
    fatal, step, crashes = 1, 3, 0
    while True:
        top = tmp_path / f"checkout{fatal}"
        top.mkdir()
        for path, (_, data) in BEFORE.items():
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_bytes(data)
        child = os.fork()
        if child == 0:
            _die_before(fatal)
            promote(top, objects, base, new, top.with_suffix(".journal"))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9)
        promote(top, objects, base, new, top.with_suffix(".journal"))
        found = {
            str(path.relative_to(top)): (
                ("120000", os.fsencode(path.readlink()))
                if path.is_symlink()
                else ("100755" if path.stat().st_mode & 0o100 else "100644", path.read_bytes())
            )
            for path in top.rglob("*")
            if path.is_symlink() or path.is_file()
        }
        assert found == AFTER, f"after a crash at call {fatal}"
        assert not (top / "moved").exists() and not (top / "dir_to_file").is_dir()
        if code == 0:
            break
        crashes += 1
        fatal += step if fatal > 40 else 1
    assert crashes > 40


def lay(top: Path, files: Files) -> None:
    for path, (_, data) in files.items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_bytes(data)
        (top / path).chmod(0o644)


def edit(place: Path) -> tuple[bytes, int] | None:
    """The user's own change of a file, and what must be found there ever after; None if nothing can be there."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except NotADirectoryError:
        return None
    if place.name != "script":
        place.write_bytes(b"mine")
    place.chmod(0o711)
    return place.read_bytes(), place.stat().st_mode


@pytest.mark.parametrize("path", ["edited.py", "script", "moved/away.py", "new dir/deep/bin\udcff", "dir_to_file/a/b"])
def test_an_edit_made_meanwhile_is_never_overwritten(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    base, new = tree_of(objects, BEFORE), tree_of(objects, AFTER | {"script": ("100644", b"#!/bin/bash\n")})
    sync, when, refused = os.fsync, 0, 0
    while True:
        when += 1
        top, journal = tmp_path / f"checkout{when}", tmp_path / f"journal{when}"
        lay(top, BEFORE)
        edits: list[tuple[bytes, int] | None] = []
        calls: list[int] = []

        def fsync(fd: int, when: int = when, place: Path = top / path, edits: Any = edits, calls: Any = calls) -> None:
            calls.append(fd)
            if len(calls) == when:
                edits.append(edit(place))
            sync(fd)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", fsync)
            try:
                promote(top, objects, base, new, journal)
            except CodePilotError as error:
                assert error.kind is FailureKind.PATCH_CONFLICT and journal.exists()
                assert error.failure.details["files"] in ([shown(path)], [path.split("/")[0]])
                refused += 1
        if not edits or edits[0] is None:
            break
        assert ((top / path).read_bytes(), (top / path).stat().st_mode) == edits[0], f"edited at call {when}"
        assert not [found for found in top.rglob("*") if found.name.startswith(".codepilot-tmp-")]
        with pytest.raises(CodePilotError) as caught:
            promote(top, objects, base, new, journal)
        assert caught.value.kind is FailureKind.PATCH_CONFLICT
        (top / path).unlink()
        lay(top, {path: BEFORE[path]} if path in BEFORE else {})
        promote(top, objects, base, new, journal)
        assert (top / "edited.py").read_bytes() == b"new\r\n" and (top / "dir_to_file").is_file()
        assert promote(top, objects, base, new, journal) == ()
    assert refused >= 2


def test_git_and_submodules_are_never_touched(checkout: Any, objects: ObjectStore, tmp_path: Path) -> None:
    base = pin_base(checkout.path, objects).tree
    entries = objects.read_tree(base)
    for change in ({"sub": Entry("160000", "1" * 64)},):
        with pytest.raises(CodePilotError) as caught:
            promote(checkout.path, objects, base, objects.write_tree(entries | change), tmp_path / "journal")
        assert caught.value.kind is FailureKind.POLICY_VIOLATION
    with objects.writer() as writer:
        inner = writer.add("tree", b"100644 config\0" + bytes.fromhex(objects.write_blob(b"evil")))
        evil = writer.add("tree", b"40000 .git\0" + bytes.fromhex(inner))
    with pytest.raises(CodePilotError) as caught:
        promote(checkout.path, objects, objects.write_tree({}), evil, tmp_path / "journal")
    assert caught.value.kind is FailureKind.POLICY_VIOLATION
