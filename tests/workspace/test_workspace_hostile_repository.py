"""Nothing that a repository says runs, leads elsewhere, or takes the host's time or memory."""

from __future__ import annotations

import base64
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import (
    Commit,
    Entry,
    ObjectStore,
    Workspace,
    clone,
    find_root,
    first_commit,
    line_ages,
    pin_base,
    refuse_branch,
    resolve_commit,
    write_commit,
)
from codepilot.workspace import commit as commit_module
from codepilot.workspace.ignore import IgnoreRules


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def program(tmp_path: Path, mark: Path) -> Path:
    path = tmp_path / "program"
    path.write_text(f'#!/bin/sh\necho "$0 $*" >> "{mark}"\ncat\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "source",
    [
        *(".git/config", "sub/.GIT/config", ".git", "sub/.git", "mirror.git/config", "mirror.git"),
        *("linked/.git", "parent/mirror.git/objects", "git~1/config", ".git /config"),
    ],
)
def test_nothing_of_a_git_directory_is_copied_in(tmp_path: Path, objects: ObjectStore, source: str) -> None:
    checkout = _checkout_with_git_directories(tmp_path)
    for target in ("copied", source):
        with pytest.raises(CodePilotError) as caught:
            Workspace(tmp_path / "ws", objects).create(objects.write_tree({}), {target: checkout / source})
        assert caught.value.kind is FailureKind.TOOL_PERMISSION_DENIED
    assert not (tmp_path / "ws" / "tree").exists()


def test_a_copied_directory_leaves_out_every_git_directory_in_it(tmp_path: Path, objects: ObjectStore) -> None:
    checkout = _checkout_with_git_directories(tmp_path)
    (checkout / "parent/link").symlink_to("../.git/config")
    (checkout / "parent/directory").symlink_to("../.git")
    (checkout / "through").symlink_to(".git")
    workspace = Workspace(tmp_path / "ws", objects)
    copied = {name: checkout / name for name in ("sub", "linked", "parent")}
    workspace.create(objects.write_tree({}), copied)
    found = [path for path in workspace.tree_path.rglob("*") if not path.is_symlink()]
    assert sorted(path.name for path in found) == ["a.py", "a.py", "linked", "parent", "sub"]
    assert (workspace.tree_path / "parent/link").readlink() == Path("../.git/config")
    with pytest.raises(CodePilotError) as caught:
        Workspace(tmp_path / "other", objects).create(objects.write_tree({}), {"x": checkout / "through" / "config"})
    assert caught.value.kind is FailureKind.TOOL_PERMISSION_DENIED


def _checkout_with_git_directories(tmp_path: Path) -> Path:
    checkout = tmp_path / "checkout"
    for place in (".git", "sub/.GIT", "sub/.git", "mirror.git", "parent/mirror.git", "git~1", ".git "):
        for name in ("objects", "refs"):
            (checkout / place / name).mkdir(parents=True)
        (checkout / place / "HEAD").write_text("ref: refs/heads/main\n")
        (checkout / place / "config").write_text("[remote]\n\turl = https://user:secret@example.org\n")
    (checkout / "linked").mkdir()
    (checkout / "linked/.git").write_text("gitdir: ../.git\n")
    worktree = checkout / "parent/worktree-data"
    worktree.mkdir()
    for name in ("HEAD", "commondir", "config"):
        (worktree / name).write_text("secret\n")
    for place in ("sub", "parent"):
        (checkout / place / "a.py").write_text("\n")
    return checkout


def test_no_program_of_a_repositorys_configuration_runs(
    repo: Any, objects: ObjectStore, mark: Path, program: Path, tmp_path: Path
) -> None:
    repo.write(".gitattributes", "* filter=mine diff=mine merge=mine text eol=crlf\n")
    repo.write(".gitmodules", f'[submodule "s"]\n\tpath = s\n\turl = ext::{program}\n\tupdate = !{program}\n')
    repo.write("a.py", "one\n")
    first = repo.commit()
    repo.write("a.py", "two\n")
    last = repo.commit()
    included = repo.write(".git/more", "")
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit", "fsmonitor-watchman"):
        repo.write(f".git/hooks/{hook}", program.read_bytes(), 0o755)
    for key in (
        *("core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.gitProxy", "core.askPass"),
        *("core.alternateRefsCommand", "uploadpack.packObjectsHook", "gpg.program", "diff.external", "alias.ls-files"),
        *("filter.mine.clean", "filter.mine.smudge", "filter.mine.process", "diff.mine.textconv", "diff.mine.command"),
        *("merge.mine.driver", "credential.helper", "trailer.mine.command", "sequence.editor", "pager.blame"),
    ):
        repo.git("config", "--file", str(included), key, str(program))
    repo.git("config", "core.hooksPath", str(repo.path / ".git/hooks"))
    repo.git("config", "log.showSignature", "true")
    repo.git("config", "extensions.partialClone", "origin")
    repo.git("config", "remote.origin.url", f"ext::{program}")
    repo.git("config", "include.path", str(included))
    mark.unlink(missing_ok=True)

    assert find_root(repo.path) == repo.path
    assert resolve_commit(repo.path, "main") == last
    assert first_commit(repo.path, last) == first
    base = pin_base(repo.path, objects)
    pin_base(repo.path, objects, last)
    assert line_ages(repo.path, last, ["a.py"])
    refuse_branch(repo.path, "other")
    new = objects.write_tree({**objects.read_tree(base.tree), "b.py": Entry("100644", objects.write_blob(b"b\n"))})
    write_commit(repo.path, objects, Commit(last, base.tree, base.tree, new, "message", 0), "other")
    with pytest.raises(CodePilotError):
        resolve_commit(repo.path, "0" * 39 + "1")
    assert not mark.exists(), mark.read_text()
    repo.git("status")
    assert mark.exists(), "the configuration does run programs"


def test_every_command_that_writes_has_configured_hooks_turned_off(
    repo: Any, objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write("a.py", "one\n")
    last = repo.commit()
    repo.git("config", "hook.mine.command", "true")
    repo.git("config", "hook.mine.event", "post-index-change")
    ran: list[tuple[str, dict[str, str]]] = []
    run_git = commit_module.run_git

    def recorded(args: Any, *places: Any, **options: Any) -> Any:
        if options.get("like"):
            ran.append((next(one for one in args if "." not in one and one != "-c"), options["env"]))
        return run_git(args, *places, **options)

    monkeypatch.setattr(commit_module, "run_git", recorded)
    base = pin_base(repo.path, objects)
    write_commit(repo.path, objects, Commit(last, base.tree, base.tree, base.tree, "message", 0), "other")
    assert {name for name, _ in ran} >= {"read-tree", "update-index", "update-ref"}
    assert all(env["GIT_CONFIG_KEY_0"] == "hook.mine.enabled" for _, env in ran)


def test_a_clone_runs_nothing_of_what_it_brings(
    repo: Any, mark: Path, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.write(".githooks/post-checkout", program.read_bytes(), 0o755)
    repo.write(".gitattributes", "* filter=mine\n")
    repo.write(".gitmodules", f'[submodule "s"]\n\tpath = s\n\turl = ext::{program}\n\tupdate = !{program}\n')
    repo.write("a.py", "one\n")
    commit = repo.commit()
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{commit},s")
    repo.git("commit", "-q", "-m", "submodule")
    repo.git("config", "uploadpack.packObjectsHook", str(program))
    own = tmp_path / "own"
    own.write_text(
        "[core]\n\thooksPath = .githooks\n\tfsmonitor = true\n[submodule]\n\trecurse = true\n"
        '[protocol "ext"]\n\tallow = always\n[safe]\n\tdirectory = *\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    place = clone(f"file://{repo.path}", tmp_path / "clone")
    assert (place / "a.py").read_text() == "one\n"
    assert not mark.exists(), mark.read_text()
    for url in (
        f"ext::{program}",
        f"ext::sh -c {program}",
        f"git@-oProxyCommand={program}:x",
        "ssh://-oProxyCommand=x/y",
    ):
        with pytest.raises(CodePilotError):
            clone(url, tmp_path / "other")
    assert not mark.exists()


def test_a_bare_repository_in_the_tree_is_not_taken_for_the_users(
    repo: Any, mark: Path, program: Path, tmp_path: Path
) -> None:
    repo.write("fixture/HEAD", "ref: refs/heads/main\n")
    repo.write("fixture/objects/info/x")
    repo.write("fixture/refs/heads/x")
    repo.write("fixture/config", f"[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = {program}\n")
    with pytest.raises(CodePilotError, match="bare repository"):
        find_root(repo.path / "fixture")
    assert not mark.exists()


@pytest.mark.parametrize(
    "pattern",
    [b"*a" * 30 + b"*b", b"x/" + b"**/a/" * 30 + b"b", b"x/**/" + b"*a" * 30 + b"*/b", b"[a-z]*" * 40 + b"!"],
)
def test_no_ignore_pattern_takes_long(pattern: bytes) -> None:
    rules = IgnoreRules.read({"": pattern + b"\n"})
    start = time.thread_time()
    for path in ("a" * 255, "x/" + "a/" * 200 + "c", "x/" + ("a" * 100 + "/") * 20 + "c"):
        assert not rules.matches(path, False)
    assert time.thread_time() - start < 2


def test_a_small_patch_cannot_unpack_to_any_size(objects: ObjectStore) -> None:
    """A delta of 60 KiB that stands for 8 GiB: copies of the same 16 MiB."""
    size, copies = (1 << 24) - 1, 512
    base = objects.write_tree({"a": Entry("100644", objects.write_blob(bytes(size)))})
    delta = _varint(size) + _varint(size * copies) + b"\xf0\xff\xff\xff" * copies
    source = objects.read_tree(base)["a"].oid
    patch = (
        f"diff --git a/a b/a\nindex {source}..{'1' * 64} 100644\nGIT binary patch\ndelta {len(delta)}\n".encode()
        + _base85(zlib.compress(delta))
        + b"\n"
    )
    with pytest.raises(CodePilotError, match=r"[Oo]ut of memory") as caught:
        objects.apply(base, patch)
    assert caught.value.kind is FailureKind.PATCH_CONFLICT


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _base85(data: bytes) -> bytes:
    rows = (data[start : start + 52] for start in range(0, len(data), 52))
    letters = b"".join(bytes([length]) for length in (*range(65, 91), *range(97, 123)))
    return b"".join(
        letters[len(row) - 1 : len(row)] + base64.b85encode(row + bytes(-len(row) % 4)) + b"\n" for row in rows
    )


@pytest.mark.parametrize("target", [b"a" * 5000, b"a\0b", b""])
def test_a_link_that_no_file_system_takes_is_a_typed_failure(
    objects: ObjectStore, tmp_path: Path, target: bytes
) -> None:
    tree = objects.write_tree({"a": Entry("120000", objects.write_blob(target))})
    with pytest.raises(CodePilotError) as caught:
        Workspace(tmp_path / "ws", objects).create(tree)
    assert caught.value.kind is FailureKind.POLICY_VIOLATION


_PIN = """
import resource, sys
from pathlib import Path
from codepilot.workspace import ObjectStore, pin_base
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
pin_base(Path(sys.argv[1]), ObjectStore.open(Path(sys.argv[2])), None if len(sys.argv) < 4 else sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10)
"""


@pytest.mark.parametrize("ref", [(), ("main",)])
def test_large_files_of_a_checkout_are_not_held_in_memory(repo: Any, tmp_path: Path, ref: tuple[str, ...]) -> None:
    with repo.write("committed").open("wb") as file:
        file.truncate(200 << 20)
    repo.commit()
    with repo.write("new").open("wb") as file:
        file.truncate((200 << 20) + 1)
    command = [sys.executable, "-c", _PIN, str(repo.path), str(tmp_path / "store"), *ref]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100
