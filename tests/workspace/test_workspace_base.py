"""Pinning a base: every kind of checkout, and not a byte of the user's repository changed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import Base, ObjectStore, Workspace, find_root, pin_base

MakeRepo = Callable[..., Any]


def contents(objects: ObjectStore, tree: str) -> dict[str, tuple[str, bytes]]:
    return {
        path: (entry.mode, b"" if entry.mode == "160000" else objects.read_blob(entry.oid))
        for path, entry in objects.read_tree(tree).items()
    }


def refused(path: Path, objects: ObjectStore, ref: str | None = None) -> CodePilotError:
    with pytest.raises(CodePilotError) as caught:
        pin_base(path, objects, ref)
    assert caught.value.failure.advice
    return caught.value


def test_a_clean_checkout_is_its_commit(repo: Any, objects: ObjectStore) -> None:
    repo.write("src/a.py", "x = 1\n")
    repo.write("run.sh", "#!/bin/sh\n", mode=0o755)
    (repo.path / "link").symlink_to("src/a.py")
    commit = repo.commit()
    base = pin_base(repo.path, objects)
    assert base.commit == commit and base.root == repo.path.resolve() and not base.dirty
    assert contents(objects, base.tree) == {
        "src/a.py": ("100644", b"x = 1\n"),
        "run.sh": ("100755", b"#!/bin/sh\n"),
        "link": ("120000", b"src/a.py"),
    }
    assert pin_base(repo.path, objects, "main") == base


def test_the_dirty_tree_is_part_of_the_base(repo: Any, objects: ObjectStore) -> None:
    for name in ("kept", "edited", "deleted", "staged_deletion", "mode", "became_link", "became_dir"):
        repo.write(name, f"{name}\n")
    repo.write(".gitignore", "*.log\n!wanted.log\n")
    repo.write("forced.log", "tracked though ignored\n")
    repo.git("add", "-f", "forced.log")
    repo.commit()
    repo.write("edited", "new\n")
    (repo.path / "deleted").unlink()
    repo.git("rm", "-q", "staged_deletion")
    (repo.path / "mode").chmod(0o755)
    (repo.path / "became_link").unlink()
    (repo.path / "became_link").symlink_to("/etc/passwd")
    (repo.path / "became_dir").unlink()
    repo.write("became_dir/inside", "i\n")
    repo.write("untracked/test_new.py", "def test(): pass\n")
    repo.write("ignored.log", "no\n")
    repo.write("staged", "index\n")
    repo.git("add", "staged")
    repo.write("staged", "disk\n")
    base = pin_base(repo.path, objects)
    assert base.dirty
    assert contents(objects, base.tree) == {
        ".gitignore": ("100644", b"*.log\n!wanted.log\n"),
        "forced.log": ("100644", b"tracked though ignored\n"),
        "kept": ("100644", b"kept\n"),
        "edited": ("100644", b"new\n"),
        "mode": ("100755", b"mode\n"),
        "became_link": ("120000", b"/etc/passwd"),
        "became_dir/inside": ("100644", b"i\n"),
        "untracked/test_new.py": ("100644", b"def test(): pass\n"),
        "staged": ("100644", b"disk\n"),
    }
    assert base.commit_tree == pin_base(repo.path, objects, "HEAD").tree
    assert objects.apply(base.commit_tree, objects.diff(base.commit_tree, base.tree).patch) == base.tree


def test_leftovers_and_environments_that_nobody_committed_are_left_out(repo: Any, objects: ObjectStore) -> None:
    repo.write("a.py", "a\n")
    repo.write("committed/__pycache__/kept.pyc", b"k")
    repo.commit()
    repo.write("__pycache__/a.pyc", b"p")
    repo.write("pkg/.pytest_cache/v", b"c")
    repo.write("env dir/pyvenv.cfg", "home = /usr\n")
    repo.write("env dir/lib/site.py", "s\n")
    repo.write("web/node_modules/x/node_modules/y/index.js", "x\n")
    repo.write("web/my_node_modules/z.js", "z\n")
    base = pin_base(repo.path, objects)
    assert set(objects.read_tree(base.tree)) == {"a.py", "committed/__pycache__/kept.pyc", "web/my_node_modules/z.js"}
    assert base.left_out == ("env dir", "web/node_modules")


def test_nothing_of_the_users_repository_changes(repo: Any, objects: ObjectStore, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    repo.write("a.txt", "1\n")
    repo.write("b.txt", "2\n")
    repo.write(".gitattributes", "*.txt filter=evil diff=evil\n")
    repo.commit()
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch '{marker}'\ncat\n")
    hook.chmod(0o755)
    for key in ("core.fsmonitor", "filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "core.pager"):
        repo.git("config", key, str(hook))
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        target = repo.path / ".git" / "hooks" / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(hook.read_bytes())
        target.chmod(0o755)
    repo.write("a.txt", "edited, so that the index is stale\n")
    os.utime(repo.path / "b.txt", (1, 1))
    repo.write("new.txt", "n\n")
    before, tree = repo.fingerprint(), {path.name: path.read_bytes() for path in repo.path.glob("*.txt")}
    pin_base(repo.path, objects)
    pin_base(repo.path, objects, "HEAD")
    assert repo.fingerprint() == before
    assert {path.name: path.read_bytes() for path in repo.path.glob("*.txt")} == tree
    assert not marker.exists()


def test_odd_names_and_contents_survive_to_the_workspace(make_repo: MakeRepo, objects: ObjectStore) -> None:
    repo = make_repo("a repo with späces")
    names = [
        b"sp ace/f",
        "ünïcode/ñ".encode(),
        b"bad\xff\xfe",
        b'quo"te',
        b"new\nline",
        b"-dash",
        b"tab\there",
        b"{}*?[a]",
    ]
    blobs = [
        b"crlf\r\nlines\r\n",
        b"\xff\xfe\x00binary",
        "utf-8 é\n".encode(),
        b"latin \xe9\n",
        b"",
        b"no newline",
        b"\r",
        b"x",
    ]
    root = os.fsencode(repo.path)
    for name, blob in zip(names, blobs, strict=True):
        path = os.path.join(root, name)  # noqa: PTH118 (names that are no text)
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        Path(os.fsdecode(path)).write_bytes(blob)
    repo.git("config", "core.autocrlf", "false")
    repo.commit()
    repo.write("untracked \udcff", b"u\r\n")
    for ref in (None, "HEAD"):
        base = pin_base(repo.path, objects, ref)
        held = {os.fsencode(path): data for path, (_, data) in contents(objects, base.tree).items()}
        expected = dict(zip(names, blobs, strict=True)) | ({b"untracked \xff": b"u\r\n"} if ref is None else {})
        assert held == expected
        workspace = Workspace(repo.path.parent / f"ws {ref}", objects)
        workspace.create(base.tree)
        for name, blob in expected.items():
            assert Path(os.fsdecode(os.fsencode(workspace.tree_path) + b"/" + name)).read_bytes() == blob
            assert workspace.read_file(os.fsdecode(name)) == blob
        assert workspace.snapshot().tree == base.tree


def test_files_are_read_raw_whatever_filters_say(repo: Any, objects: ObjectStore) -> None:
    repo.write(".gitattributes", "* text eol=crlf\n")
    repo.write("a.txt", b"one\ntwo\n")
    repo.commit()
    repo.write("a.txt", b"one\r\ntwo\r\n")
    base = pin_base(repo.path, objects)
    assert contents(objects, base.tree)["a.txt"][1] == b"one\r\ntwo\r\n"
    assert contents(objects, base.commit_tree)["a.txt"][1] == b"one\ntwo\n"


def test_detached_shallow_and_authorless_checkouts(repo: Any, objects: ObjectStore, tmp_path: Path) -> None:
    for number in range(3):
        repo.write("f", f"{number}\n")
        repo.commit()
    first = repo.git("rev-parse", "HEAD~2")
    subprocess.run(
        ["git", "clone", "-q", "--depth", "1", f"file://{repo.path}", str(tmp_path / "shallow")],
        check=True,
        timeout=300,
    )
    assert contents(objects, pin_base(tmp_path / "shallow", objects).tree) == {"f": ("100644", b"2\n")}
    error = refused(tmp_path / "shallow", objects, first)
    assert error.kind is FailureKind.REF_NOT_FOUND and "unshallow" in error.failure.advice
    repo.git("checkout", "-q", "--detach", "HEAD~1")
    base = pin_base(repo.path, objects)
    assert base.commit == repo.git("rev-parse", "HEAD") and not base.dirty
    assert contents(objects, pin_base(repo.path, objects, first).tree)["f"][1] == b"0\n"


def test_submodules_stay_as_they_are_and_their_files_are_there(make_repo: MakeRepo, objects: ObjectStore) -> None:
    library = make_repo("library")
    library.write("lib.py", "answer = 42\n")
    library.write("tool", "#!/bin/sh\n", mode=0o755)
    commit = library.commit()
    repo = make_repo("outer")
    repo.write("main.py", "import lib\n")
    repo.git("submodule", "--quiet", "add", str(library.path), "vendor/lib")
    repo.commit()
    repo.write("vendor/lib/__pycache__/lib.pyc", b"stale")
    base = pin_base(repo.path, objects)
    assert base.submodules == ("vendor/lib",) and not base.dirty
    assert objects.read_tree(base.tree)["vendor/lib"] == ("160000", commit.ljust(64, "0"))
    workspace = Workspace(repo.path.parent / "ws", objects)
    workspace.create(base.tree)
    inside = workspace.tree_path / "vendor" / "lib"
    assert (inside / "lib.py").read_text() == "answer = 42\n" and (inside / "tool").stat().st_mode & 0o100
    assert not (inside / ".git").exists()
    before = workspace.snapshot()
    assert before.tree == base.tree and before.violations == ()
    (inside / "__pycache__").mkdir()
    (inside / "__pycache__" / "lib.pyc").write_bytes(b"x")
    quiet = workspace.diff(base.tree)
    assert quiet.patch == b"" and quiet.violations == ()
    (inside / "lib.py").write_text("answer = 43\n")
    changed = workspace.diff(base.tree)
    assert changed.tree == base.tree
    assert [(found.rule, found.path) for found in changed.violations] == [("submodule_changed", "vendor/lib/lib.py")]
    workspace.restore(before.id)
    assert workspace.snapshot() == before


def test_a_submodule_that_is_not_checked_out_stays_recorded(
    make_repo: MakeRepo, objects: ObjectStore, tmp_path: Path
) -> None:
    library = make_repo("library")
    library.write("lib.py", "1\n")
    library.commit()
    outer = make_repo("outer")
    outer.git("submodule", "--quiet", "add", str(library.path), "lib")
    outer.commit()
    subprocess.run(["git", "clone", "-q", str(outer.path), str(tmp_path / "plain")], check=True, timeout=300)
    base = pin_base(tmp_path / "plain", objects)
    assert not base.dirty
    workspace = Workspace(tmp_path / "ws", objects)
    workspace.create(base.tree)
    assert list((workspace.tree_path / "lib").iterdir()) == []
    (workspace.tree_path / "lib").rmdir()
    assert workspace.diff(base.tree).patch == b""


def test_a_repository_inside_another_one(make_repo: MakeRepo, objects: ObjectStore) -> None:
    outer, inner = make_repo("outer"), make_repo("outer/inner")
    outer.write("o.py", "o\n")
    inner.write("deep/i.py", "i\n")
    inner.commit()
    outer.git("add", "o.py")
    outer.git("commit", "-q", "-m", "outer alone")
    assert find_root(inner.path / "deep") == inner.path.resolve()
    assert find_root(outer.path / "inner" / "deep" / "i.py") == inner.path.resolve()
    assert find_root(outer.path) == outer.path.resolve()
    assert set(contents(objects, pin_base(inner.path / "deep", objects).tree)) == {"deep/i.py"}
    assert set(contents(objects, pin_base(outer.path, objects).tree)) == {"o.py"}


def test_a_linked_worktree_and_a_sparse_checkout(make_repo: MakeRepo, objects: ObjectStore, tmp_path: Path) -> None:
    repo = make_repo()
    repo.write("a/f", "a\n")
    repo.write("b/f", "b\n")
    repo.commit()
    repo.git("worktree", "add", "-q", str(tmp_path / "linked"))
    (tmp_path / "linked" / "a" / "f").write_text("edited\n")
    base = pin_base(tmp_path / "linked" / "a", objects)
    assert contents(objects, base.tree)["a/f"][1] == b"edited\n"
    repo.git("sparse-checkout", "set", "a")
    assert not (repo.path / "b").exists()
    sparse = pin_base(repo.path, objects)
    assert not sparse.dirty and contents(objects, sparse.tree)["b/f"][1] == b"b\n"


def test_a_tracked_file_behind_a_link_is_not_followed(repo: Any, objects: ObjectStore, tmp_path: Path) -> None:
    repo.write("dir/f", "inside\n")
    repo.commit()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "f").write_text("secret\n")
    (repo.path / "dir" / "f").unlink()
    (repo.path / "dir").rmdir()
    (repo.path / "dir").symlink_to(tmp_path / "outside")
    assert contents(objects, pin_base(repo.path, objects).tree) == {
        "dir": ("120000", os.fsencode(tmp_path / "outside"))
    }


def test_a_sha256_repository_and_an_unfinished_merge(make_repo: MakeRepo, objects: ObjectStore) -> None:
    repo = make_repo("sha256", "--object-format=sha256")
    repo.write("f", "base\n")
    repo.commit()
    repo.git("checkout", "-q", "-b", "other")
    repo.write("f", "theirs\n")
    repo.commit()
    repo.git("checkout", "-q", "main")
    repo.write("f", "ours\n")
    repo.commit()
    assert not pin_base(repo.path, objects).dirty
    repo.git("merge", "other", check=False)
    assert contents(objects, pin_base(repo.path, objects).tree)["f"][1].startswith(b"<<<<<<<")


def test_refusals_say_what_is_wrong_and_what_to_do(make_repo: MakeRepo, objects: ObjectStore, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    assert "no " in refused(tmp_path / "missing", objects).failure.message
    assert "not in a git repository" in refused(plain, objects).failure.message
    empty = make_repo("empty")
    assert "has no commit yet" in refused(empty.path, objects).failure.message
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "bare.git")], check=True, timeout=300)
    assert "bare" in refused(tmp_path / "bare.git", objects).failure.message
    repo = make_repo("full")
    repo.write("f", "f\n")
    repo.commit()
    for ref in ("nope", "--all", "-h", "HEAD:f", "", "main..main", "0" * 40):
        error = refused(repo.path, objects, ref)
        assert error.kind is FailureKind.REF_NOT_FOUND, ref
    for place in (tmp_path / "missing", plain, empty.path, tmp_path / "bare.git"):
        assert refused(place, objects).kind is FailureKind.REPO_UNREACHABLE
    (plain / ".git").write_text("gitdir: ../nowhere\n")
    assert "nowhere" in refused(plain, objects).failure.message
    (plain / ".git").unlink()
    (plain / ".git").mkdir()
    assert refused(plain, objects).kind is FailureKind.REPO_UNREACHABLE


def test_a_damaged_repository_is_refused_not_misread(repo: Any, objects: ObjectStore) -> None:
    data = b"only in the commit\n"
    repo.write("f", data)
    repo.commit()
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    (repo.path / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
    assert not pin_base(repo.path, objects).dirty
    repo.write("f", "changed\n")
    assert refused(repo.path, objects).kind is FailureKind.REPO_UNREACHABLE


def test_five_thousand_files(repo: Any, objects: ObjectStore, tmp_path: Path) -> None:
    repo.commit()
    for number in range(5000):
        directory = repo.path / f"d{number % 100}"
        directory.mkdir(exist_ok=True)
        (directory / f"f{number}").write_bytes(b"%d\n" % number)
    base: Base = pin_base(repo.path, objects)
    assert base.dirty and len(objects.read_tree(base.tree)) == 5000
    workspace = Workspace(tmp_path / "ws", objects)
    assert workspace.create(base.tree) and workspace.snapshot().tree == base.tree
    (workspace.tree_path / "d7" / "f7").write_bytes(b"changed\n")
    assert [change.path for change in workspace.diff(base.tree).changes] == ["d7/f7"]
    workspace.delete()
    assert not workspace.path.exists()
