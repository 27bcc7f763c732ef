"""The throwaway repository: what changed since a step began, and back to there, whatever an agent did to it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codepilot.core.task import Capability

Load = Callable[..., dict[str, Any]]


@pytest.fixture
def begun(load: Load) -> dict[str, Any]:
    """A step that has begun, with a tree that is awkward to keep as it is."""
    Path("a.py").write_text("one\ntwo\n")
    Path("crlf.txt").write_bytes(b"a\r\nb\r\n")
    Path("gone.txt").write_text("gone\n")
    Path("ignored.log").write_text("log\n")
    Path("odd é\tname.txt").write_text("odd\n")
    Path(".gitignore").write_text("*.log\n*.out\n")
    Path(".gitattributes").write_text("* text=auto filter=evil diff=evil\n")
    return load(prepare=True)


def test_status_diff_and_reset_start_from_the_tree_as_the_step_found_it(begun: dict[str, Any]) -> None:
    assert begun["git_status"]().clean
    assert begun["git_diff"]() == ""
    Path("a.py").write_text("one\n2\n")
    Path("crlf.txt").write_bytes(b"a\r\nB\r\n")
    Path("ignored.log").write_text("changed\n")
    Path("gone.txt").unlink()
    Path("new.py").write_text("new\n")
    Path("made.out").write_text("ignored\n")
    status = begun["git_status"]()
    assert (status.changed, status.deleted) == (["a.py", "crlf.txt", "ignored.log"], ["gone.txt"])
    assert (status.untracked, status.added) == (["new.py"], [])
    assert "deleted gone.txt" in str(status)
    diff = begun["git_diff"]()
    assert "-two\n+2\n" in diff
    assert "+++ b/new.py\n@@ -0,0 +1 @@\n+new\n" in diff
    assert begun["git_status"]().untracked == ["new.py"]
    assert begun["git_reset"]() == "4 files put back to HEAD. Untracked files remain: new.py."
    assert Path("crlf.txt").read_bytes() == b"a\r\nb\r\n"
    assert Path("gone.txt").exists()


def test_its_diff_is_one_that_apply_patch_takes(begun: dict[str, Any]) -> None:
    Path("a.py").write_text("one\n2")
    Path("new.py").write_text("new\n")
    Path("gone.txt").unlink()
    diff = begun["git_diff"]()
    begun["git_reset"]()
    Path("new.py").unlink()
    begun["apply_patch"](diff)
    assert (Path("a.py").read_text(), Path("new.py").read_text()) == ("one\n2", "new\n")
    assert not Path("gone.txt").exists()


def test_nothing_configured_in_the_tree_or_the_repository_is_started(begun: dict[str, Any], tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    for setting in (
        "core.fsmonitor", "core.pager", "diff.external", "filter.evil.clean", "filter.evil.smudge",
        "diff.evil.textconv", "diff.evil.command", "credential.helper", "core.editor", "gpg.program", "alias.status",
    ):  # fmt: skip
        subprocess.run(["git", "config", "--file", ".git/config", setting, str(program)], check=True)
    for setting in ("filter.evil.required", "commit.gpgsign", "core.autocrlf"):
        subprocess.run(["git", "config", "--file", ".git/config", setting, "true"], check=True)
    Path(".git/hooks").mkdir()
    for hook in ("pre-commit", "post-checkout", "post-index-change", "reference-transaction"):
        shutil.copy(program, f".git/hooks/{hook}")
    Path("a.py").write_text("other\n")
    begun["git_status"]()
    assert "+other" in begun["git_diff"]()
    begun["git_reset"]()
    assert Path("crlf.txt").read_bytes() == b"a\r\nb\r\n"
    assert not mark.exists()


@pytest.mark.parametrize("ref", ["nothing", "--help", "", "HEAD~1", "HEAD:a.py", "a\0b"])
def test_a_ref_that_is_no_commit_is_reported(begun: dict[str, Any], ref: str) -> None:
    for skill in ("git_diff", "git_reset"):
        with pytest.raises(Exception, match=r"names no commit|is no commit") as caught:
            begun[skill](ref)
        assert type(caught.value).__name__ == "GitError"


def _break_head() -> None:
    Path(".git/HEAD").write_text("broken")


def _break_index() -> None:
    Path(".git/index").write_bytes(b"broken")


def _lose_objects() -> None:
    shutil.rmtree(".git/objects")


def _link() -> None:
    shutil.rmtree(".git")
    Path(".git").symlink_to("/")


def _point_elsewhere() -> None:
    shutil.rmtree(".git")
    Path(".git").write_text("gitdir: /tmp/elsewhere\n")


BREAKS = [_break_head, _break_index, _lose_objects, _link, _point_elsewhere]


@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_repository_is_reported(begun: dict[str, Any], broken: Callable[[], None]) -> None:
    broken()
    with pytest.raises(Exception, match="remove it to get another") as caught:
        begun["git_status"]()
    assert type(caught.value).__name__ == "GitError"


@pytest.mark.parametrize("broken", BREAKS[:3])
def test_the_next_step_mends_what_was_broken(load: Load, begun: dict[str, Any], broken: Callable[[], None]) -> None:
    Path("a.py").write_text("left by the first step\n")
    broken()
    second = load(prepare=True)
    assert second["git_status"]().clean
    Path("a.py").write_text("second\n")
    assert "-left by the first step\n+second\n" in second["git_diff"]()


def test_without_a_base_the_first_call_makes_one_and_says_so(load: Load) -> None:
    k = load()
    Path("a.py").write_text("1\n")
    with pytest.raises(Exception, match="is the base from here on"):
        k["git_diff"]()
    assert k["git_diff"]() == ""
    shutil.rmtree(".git")
    assert load(Capability.READ_ONLY)["git_status"]().clean
    assert "git_reset" not in load(Capability.READ_ONLY)


def test_a_change_of_the_same_size_within_the_second_of_the_base_is_seen_later(load: Load) -> None:
    place = Path("same.txt")
    for _ in range(5):
        time.sleep(1 - time.time() % 1)
        began = int(time.time())
        place.write_text("a\n")
        kernel = load(prepare=True)
        place.write_text("b\n")
        if int(place.stat().st_mtime) == began:
            break
    time.sleep(1 - time.time() % 1)
    assert "-a\n+b\n" in kernel["git_diff"]()
