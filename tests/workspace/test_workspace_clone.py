"""Cloning: whole or not at all, and never by way of something that runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import ObjectStore, clone, is_url, pin_base


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
    assert caught.value.kind is FailureKind.REPO_UNREACHABLE and "nowhere" in caught.value.failure.message
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
