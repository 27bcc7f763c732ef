"""Cloning: whole or not at all, and never by way of something that runs."""

from __future__ import annotations

import ctypes
import fcntl
import threading
from pathlib import Path
from typing import Any

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import ObjectStore, clone, has_password, is_url, pin_base


@pytest.mark.parametrize(
    "text", ["https://h/x.git", "ssh://git@h/x", "git@h.org:x/y.git", "file:///x", "HTTP://h/x", "git://h/x"]
)
def test_urls(text: str) -> None:
    assert is_url(text)


@pytest.mark.parametrize(
    "text", [".", "/x/y", "a b", "C:/x", "dir/git@h:x", "ext::sh -c x", "-x", "--upload-pack=x", "", "a:b", "fd::17"]
)
def test_paths_and_tricks_are_no_urls(text: str, tmp_path: Path) -> None:
    assert not is_url(text)
    with pytest.raises(CodePilotError) as caught:
        clone(text, tmp_path / "clone")
    assert caught.value.kind is FailureKind.REPO_UNREACHABLE
    assert list(tmp_path.iterdir()) == []


def test_a_clone_holds_everything_and_the_ref(repo: Any, objects: ObjectStore, tmp_path: Path) -> None:
    repo.write("f", "1\n")
    first = repo.commit()
    repo.git("tag", "v1")
    repo.git("checkout", "-q", "-b", "feature/x")
    repo.write("f", "2\n")
    second = repo.commit()
    repo.git("checkout", "-q", "main")
    url = f"file://{repo.path}"
    for number, (ref, commit) in enumerate(
        [(None, first), ("feature/x", second), ("v1", first), (second, second), ("main", first)]
    ):
        root = clone(url, tmp_path / "clones" / f"c {number}", ref)
        base = pin_base(root, objects)
        assert base.commit == commit and not base.dirty
        assert not (root / ".git" / "hooks").exists()
    assert len(list((tmp_path / "clones").iterdir())) == 5


def test_failures_leave_nothing_behind(make_repo: Any, tmp_path: Path) -> None:
    repo = make_repo("full")
    repo.write("f", "1\n")
    repo.commit()
    place = tmp_path / "clones"
    with pytest.raises(CodePilotError) as caught:
        clone(f"file://{tmp_path}/nowhere", place / "c")
    assert caught.value.kind is FailureKind.REPO_UNREACHABLE
    assert caught.value.failure.message.endswith(f"'{tmp_path}/nowhere' does not appear to be a git repository")
    with pytest.raises(CodePilotError) as caught:
        clone("https://user:secret@127.0.0.1:9/x.git", place / "c")
    assert caught.value.kind is FailureKind.REPO_UNREACHABLE
    assert "secret" not in caught.value.failure.model_dump_json()
    for ref in ("nope", "--all"):
        with pytest.raises(CodePilotError) as caught:
            clone(f"file://{repo.path}", place / "c", ref)
        assert caught.value.kind is FailureKind.REF_NOT_FOUND
    with pytest.raises(CodePilotError, match="no commit yet"):
        clone(f"file://{make_repo('empty').path}", place / "c")
    assert list(place.iterdir()) == []


@pytest.fixture
def upstream(make_repo: Any) -> Any:
    repo = make_repo("upstream")
    repo.write("f", "1\n")
    repo.write("gone", "x\n")
    repo.commit()
    repo.git("branch", "old")
    return repo


@pytest.mark.parametrize("swaps", [True, False])
def test_cloning_again_brings_what_is_upstream_now(
    upstream: Any, objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    if not swaps:  # As on a system that cannot exchange two names in one step.
        monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: None)
    url, place = f"file://{upstream.path}", tmp_path / "clones"
    first = pin_base(clone(url, place / "c"), objects).commit
    (place / "c" / "f").write_text("changed here\n")
    (place / "c" / "left over").write_text("by someone\n")
    (upstream.path / "gone").unlink()
    upstream.write("f", "2\n")
    second = upstream.commit()
    for ref, commit in ((None, second), (None, second), ("old", first), (second, second), ("main", second)):
        root = clone(url, place / "c", ref)
        base = pin_base(root, objects)
        assert (root, base.commit, base.dirty) == (place / "c", commit, False)
        assert not (root / "left over").exists() and (root / "gone").exists() == (commit == first)
    upstream.git("checkout", "-q", "-b", "next")
    upstream.write("f", "3\n")
    third = upstream.commit()
    assert pin_base(clone(url, place / "c"), objects).commit == third
    assert [path.name for path in place.iterdir()] == ["c"]


def test_a_failure_leaves_the_clone_that_is_there(upstream: Any, objects: ObjectStore, tmp_path: Path) -> None:
    url, place = f"file://{upstream.path}", tmp_path / "clones"
    root = clone(url, place / "c")
    with pytest.raises(CodePilotError) as caught:
        clone(url, root, "nope")
    assert caught.value.kind is FailureKind.REF_NOT_FOUND
    upstream.path.rename(tmp_path / "moved")
    with pytest.raises(CodePilotError) as caught:
        clone(url, root)
    assert caught.value.kind is FailureKind.REPO_UNREACHABLE
    assert not pin_base(root, objects).dirty
    assert [path.name for path in place.iterdir()] == ["c"]


@pytest.mark.parametrize("stage", ["empty", "begun", "fetching", "without_files"])
def test_a_clone_that_was_never_finished_is_made_again(
    upstream: Any, objects: ObjectStore, tmp_path: Path, stage: str
) -> None:
    url, place = f"file://{upstream.path}", tmp_path / "clones"
    half = place / "c"
    half.mkdir(parents=True)
    if stage == "begun":
        (half / ".git" / "objects" / "pack").mkdir(parents=True)
    elif stage == "fetching":
        (half / ".git" / "objects" / "pack").mkdir(parents=True)
        (half / ".git" / "objects" / "pack" / "tmp_pack_x").write_bytes(b"PACK")
        (half / ".git" / "config").write_text(f'[remote "origin"]\n\turl = {url}\n')
    elif stage == "without_files":
        upstream.git("clone", "-q", "--no-checkout", url, str(half))
    for killed in ("c.tmp-0123456789ab", "c.tmp-0123456789ab.0123456789ab"):
        (place / killed).mkdir()
        (place / killed / "f").write_text("half")
    root = clone(url, half)
    assert not pin_base(root, objects).dirty
    assert [path.name for path in place.iterdir()] == ["c"]


@pytest.mark.parametrize("thing", ["file", "link", "directory", "repository", "other_clone", "link_to_clone"])
def test_what_is_no_clone_of_this_url_is_left_alone(make_repo: Any, upstream: Any, tmp_path: Path, thing: str) -> None:
    url, there = f"file://{upstream.path}", tmp_path / "there"
    if thing == "file":
        there.write_text("mine")
    elif thing == "link":
        there.symlink_to("nowhere")
    elif thing == "directory":
        (there / "work").mkdir(parents=True)
    elif thing == "repository":
        repo = make_repo("there")
        repo.write("f", "mine\n")
        repo.commit()
        (there / "f").unlink()
    elif thing == "other_clone":
        clone(f"file://{upstream.path}/.git", there)
    else:
        there.symlink_to(clone(url, tmp_path / "real"))
    before = sorted(path for path in tmp_path.rglob("*") if path.name != "there.lock")
    with pytest.raises(CodePilotError, match="already there") as caught:
        clone(url, there)
    assert caught.value.kind is FailureKind.REPO_UNREACHABLE
    assert sorted(tmp_path.rglob("*")) == before


def test_clones_made_at_once_take_turns(upstream: Any, objects: ObjectStore, tmp_path: Path) -> None:
    url, place = f"file://{upstream.path}", tmp_path / "clones"
    first = upstream.git("rev-parse", "old")
    upstream.write("f", "2\n")
    second = upstream.commit()
    failures: list[Exception] = []

    def run(ref: str) -> None:
        try:
            clone(url, place / "c", ref)
        except (CodePilotError, OSError) as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(ref,)) for ref in ("old", "main", "old", "main")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    base = pin_base(place / "c", objects)
    assert base.commit in (first, second) and not base.dirty
    assert [path.name for path in place.iterdir()] == ["c"]


def test_a_clone_waits_no_longer_than_asked_for_another(upstream: Any, tmp_path: Path) -> None:
    with (tmp_path / "c.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(CodePilotError) as caught:
            clone(f"file://{upstream.path}", tmp_path / "c", timeout_sec=0.1)
    assert caught.value.kind is FailureKind.TOOL_TIMEOUT
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "url",
    [
        *("https://user:pw@h/x", "HTTPS://user:p@w@h:80/x", "https://:pw@h/x", "http://ghp_abc@h/x", "ssh://u:pw@h/x"),
        *("https://user:p/w@h/x", "git+ssh://u%3Apw@h/x", "https://user:@h/x", "https://[::1@h/x"),
    ],
)
def test_secrets_in_urls_are_seen(url: str) -> None:
    assert has_password(url)


@pytest.mark.parametrize(
    "url",
    [
        *("https://h/x.git", "https://h:8443/@scope/x", "ssh://git@h:22/x", "git@h.org:x/y", "git@h:a:b@c", "/a:b@c"),
        *("https://[::1]/@x", "https://[::1]:80/@x", "file:///a:b@c", "ssh://h/a?b:c@d", "https://h:/@x", ""),
    ],
)
def test_urls_without_secrets(url: str) -> None:
    assert not has_password(url)


@pytest.mark.parametrize(
    "url",
    [
        *("https://secret@127.0.0.1:9/x", "https://secret:secret@127.0.0.1:9/x", "https://u:se@secret@127.0.0.1:9/x"),
        *("https://u:pw/secret@127.0.0.1:9/x", "ssh://secret@127.0.0.1:9/x", "secret@127.0.0.1:x/y"),
        *("ftp://u:secret@127.0.0.1/x", "u:secret@127.0.0.1:x", "file://secret@/nowhere"),
    ],
)
def test_no_message_holds_what_stands_before_the_host(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", "sh -c 'echo \"$@: refused\" >&2; exit 1' ssh")
    with pytest.raises(CodePilotError) as caught:
        clone(url, tmp_path / "c")
    assert caught.value.kind is FailureKind.REPO_UNREACHABLE
    assert "secret" not in str(caught.value) + caught.value.failure.model_dump_json()
