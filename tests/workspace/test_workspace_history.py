"""How long ago lines were changed: asked of a repository at a commit, bounded, and nothing of it is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from codepilot.workspace import line_ages
from codepilot.workspace import repository as history


def test_lines_are_as_old_as_the_commits_that_changed_them(repo: Any) -> None:
    repo.write("a.py", "one\ntwo\nthree\n")
    repo.commit()
    repo.write("a.py", "one\nTWO\nthree\n")
    repo.commit()
    repo.write("a.py", "one\nTWO\nthree\nfour\n")
    last = repo.commit()
    before = repo.fingerprint()
    found = line_ages(repo.path, last, ["a.py", "absent.py"])
    assert found == {"a.py": ((b"one", None), (b"TWO", 2), (b"three", None), (b"four", 1))}
    assert line_ages(repo.path / ".git", last, ["a.py"]) == found
    assert repo.fingerprint() == before


def test_what_came_after_the_commit_is_not_seen(repo: Any) -> None:
    repo.write("a.py", "one\n")
    repo.commit()
    repo.write("a.py", "one\ntwo\n")
    base = repo.commit()
    repo.write("a.py", "ONE\ntwo\nthe fix\n")
    repo.commit()
    repo.write("a.py", "uncommitted\n")
    assert line_ages(repo.path, base, ["a.py"]) == {"a.py": ((b"one", None), (b"two", 1))}


def test_without_a_history_nothing_is_reported(repo: Any, tmp_path: Path) -> None:
    repo.write("a.py", "one\n")
    only = repo.commit()
    assert line_ages(repo.path, only, ["a.py"]) == {}
    assert line_ages(repo.path, "0" * 40, ["a.py"]) == {}
    plain = tmp_path / "plain"
    plain.mkdir()
    assert line_ages(plain, only, ["a.py"]) == {}


def test_a_shallow_clone_tells_as_far_as_it_reaches(repo: Any, tmp_path: Path) -> None:
    for text in ("one\n", "one\ntwo\n", "one\ntwo\nthree\n"):
        repo.write("a.py", text)
        last = repo.commit()
    repo.git("clone", "-q", "--depth", "2", repo.path.as_uri(), str(tmp_path / "shallow"))
    assert line_ages(tmp_path / "shallow", last, ["a.py"]) == {"a.py": ((b"one", None), (b"two", None), (b"three", 1))}
    repo.git("clone", "-q", "--depth", "1", repo.path.as_uri(), str(tmp_path / "flat"))
    assert line_ages(tmp_path / "flat", last, ["a.py"]) == {}


def test_only_so_many_commits_and_seconds_are_spent(repo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        repo.write("a.py", "".join(f"line {line}\n" for line in range(number + 1)))
        last = repo.commit()
    monkeypatch.setattr(history, "MAX_COMMITS", 3)
    assert [age for _, age in line_ages(repo.path, last, ["a.py"])["a.py"]] == [None, None, None, 3, 2, 1]
    assert line_ages(repo.path, last, ["a.py"], seconds=0.0) == {}


def test_nothing_of_the_repositorys_configuration_runs(repo: Any, tmp_path: Path) -> None:
    repo.write(".gitattributes", "*.py diff=mine filter=mine\n")
    repo.write("a.py", "one\n")
    repo.commit()
    repo.write("a.py", "one\ntwo\n")
    last = repo.commit()
    mark = tmp_path / "ran"
    for key in ("diff.mine.textconv", "diff.mine.command", "filter.mine.clean", "filter.mine.smudge", "core.pager"):
        repo.git("config", key, f"touch {mark}; cat")
    assert line_ages(repo.path, last, ["a.py"]) == {"a.py": ((b"one", None), (b"two", 1))}
    assert not mark.exists()


def test_a_checkout_that_looks_like_a_git_directory_is_asked_as_the_checkout_that_it_is(repo: Any) -> None:
    repo.write("a.py", "one\n")
    repo.commit()
    repo.write("a.py", "one\ntwo\n")
    for name in ("objects/info/packs", "refs/heads/main", "HEAD", "config"):
        repo.write(name, "ref: refs/heads/elsewhere\n")
    last = repo.commit()
    repo.git("config", "blame.ignoreRevsFile", "/nowhere/at/all")
    assert line_ages(repo.path, last, ["a.py"]) == {"a.py": ((b"one", None), (b"two", 1))}
