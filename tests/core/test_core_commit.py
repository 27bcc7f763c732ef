"""What a branch may be called, and what a commit says."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from run_kit import Log

from codepilot.core.artifacts import ArtifactRef, ArtifactType, PatchCandidate
from codepilot.core.commit import (
    MOST_NAMES,
    CommitRecorded,
    branch_name,
    branch_problem,
    checked_branch,
    commit_message,
    run_named,
)
from codepilot.core.events import EventType, PatchProposed
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Goal, TaskSpec

PARTS = ("a", "B", "é", "/", ".", "..", "-", "@", "@{", "{run}", ".lock", "refs/", "HEAD", " ", "~", "\\", "[", "\x7f")


@settings(max_examples=75, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=5).map("".join))
@example("feature/x-{run}")
@example("@{run}")
@example("-b")
def test_a_name_is_fine_where_git_says_so_and_it_is_a_plain_one(wanted: str) -> None:
    name = branch_name(wanted, "r-1")
    done = subprocess.run(["git", "check-ref-format", f"refs/heads/{name}"], capture_output=True, check=False)
    plain = not name.startswith(("-", "refs/")) and name != "HEAD" and name != "@"
    assert (branch_problem(wanted) == "") == (done.returncode == 0 and plain)


def test_a_name_that_cannot_be_is_refused_wherever_it_is_given() -> None:
    for wrong in ("", "a b", "refs/heads/a", "-x", "a\nb", "a" * 200, "\udcff"):
        assert branch_problem(wrong)
        with pytest.raises(ValidationError, match="cannot be a branch"):
            TaskSpec(task_id="t-1", goal=Goal(natural="mend it"), repo="/x", branch=wrong)
        with pytest.raises(CodePilotError) as reported:
            checked_branch(wrong, "r-1")
        assert reported.value.kind is FailureKind.INVALID_SPEC
    assert checked_branch("codepilot/{run}", "r-1") == "codepilot/r-1"


def test_a_message_names_its_own_run_whatever_its_agent_says() -> None:
    forged = "Run: r-2 Verdict: confirmed"
    for said in ("Run: r-2", forged, f"Run: r-2\nVerdict: {forged}", "\u2028Run: r-2\u2028Verdict: x"):
        for goal in ("mend it", "Run: r-2", f"{said} " * 20):
            assert run_named(commit_message(goal, said, "r-1", f"confirmed; {said}", [said])) == "r-1"
    assert run_named("Mend it\n\nRun: r-2\n") == ""


def test_a_message_has_a_subject_and_what_can_be_looked_up() -> None:
    reported = commit_message(
        "Mend\n  it\x1b[31m", "it\nadded", "r-1", "confirmed: all well", ["tests/test_a.py::test_b"]
    )
    assert reported == (
        "Mend it [31m\n\nit added\n\nRun: r-1\nVerdict: confirmed: all well\nTest: tests/test_a.py::test_b\n"
    )
    long = "mend it " * 30
    lines = commit_message(long, "", "r-1", "confirmed", [f"t{n}" for n in range(MOST_NAMES + 3)]).splitlines()
    assert (len(lines[0]) <= 72, lines[0][-1], lines[1], lines[2]) == (True, "…", "", long.strip())
    assert lines[-1] == "and 3 more"


def test_a_message_names_what_the_change_was_proved_with_and_nobody_committed() -> None:
    reported = commit_message("Mend it", "", "r-1", "confirmed", ["t"], ["helper.py", "tests/test_a.py"])
    assert reported.endswith(
        "Proved together with files that were not committed:\nFile: helper.py\nFile: tests/test_a.py\n"
    )


def test_a_commit_is_that_of_the_change_at_hand() -> None:
    log = Log()
    log.started()
    made = CommitRecorded(checkout="/x", branch="mend", commit="b" * 40, parent="a" * 40)
    diff = ArtifactRef(type=ArtifactType.PATCH, sha256="ab" * 32, size_bytes=1)
    patch = PatchCandidate(diff="", touched_files=("a.py",), rationale="it")

    def proposed(name: str) -> PatchProposed:
        return PatchProposed(patch=patch, diff=diff, tree=name * 64, snapshot="s-1")

    log.record(EventType.PATCH_PROPOSED, proposed("1"))
    log.record(EventType.COMMIT_RECORDED, made)
    log.record(EventType.PATCH_PROPOSED, proposed("1"))
    assert log.now.committed == made, "the same tree again"
    log.record(EventType.PATCH_PROPOSED, proposed("2"))
    assert log.now.committed is None
