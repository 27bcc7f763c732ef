"""The document that programs read, and the exit code that shells read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codepilot.core.artifacts import ArtifactRef, ArtifactType, PatchCandidate, TestSummary
from codepilot.core.events import (
    BaselineRecorded,
    BasePinned,
    Event,
    EventType,
    PatchProposed,
    ProofRecorded,
    State,
    TaskSpecRecorded,
)
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.run import Run, Spent
from codepilot.core.task import FollowUp, Goal, TaskOrigin, TaskSpec
from codepilot.telemetry import Redactor, Report, exit_code, exit_code_of, report, report_json
from codepilot.verify import write_record

KEYS = [
    "schema_version",
    "run_id",
    "status",
    "activity",
    "verdict",
    "confidence",
    "confidence_parts",
    "claimed_confidence",
    "reason",
    "concerns",
    "failure",
    "test_suspect",
    "patch",
    "bundle",
    "workspace",
    "log",
    "base_commit",
    "base_dirty",
    "tests_before",
    "tests_after",
    "suite",
    "regression_test",
    "gates",
    "waiting_for",
    "approval",
    "commit",
    "landing",
    "applied",
    "notifications",
    "documents",
    "answer",
    "iterations",
    "turns",
    "tokens",
    "cost_usd",
    "duration_sec",
    "undelivered",
    "nodes",
    "next_steps",
    "iterations_detail",
]

TASK = TaskSpec(task_id="t-1", goal=Goal(natural="mend it"), repo="/somewhere")
PROPOSAL = PatchProposed(
    patch=PatchCandidate(diff="diff", touched_files=("a.py",), rationale="because"),
    diff=ArtifactRef(type=ArtifactType.PATCH, sha256="0" * 64, size_bytes=4),
    tree="c" * 64,
    snapshot="s-1",
)


def ended(state: State, kind: FailureKind | None = None, **more: object) -> Run:
    failure = Failure(kind=kind, message="it went wrong") if kind else None
    return Run(run_id="r-1", task=TASK, state=state, failure=failure, **more)


def done() -> Run:
    return ended(
        State.DONE,
        verdict="plausible",
        confidence=0.8,
        proposal=PROPOSAL,
        base=BasePinned(repo_id="x", commit="a" * 40, commit_tree="c" * 64, tree="b" * 64),
        baseline=BaselineRecorded(
            targets=("t",), signature="s", before=TestSummary(passed=3, failed=("t",)), suite="full"
        ),
        proof=ProofRecorded(ok=True, verdict="plausible", confidence=0.8, after=TestSummary(passed=4), suite="full"),
        spent=Spent(iterations=2, turns=5, tokens=7, cost_usd=0.5, wall_us=1_500_000),
    )


def test_a_document_of_an_earlier_version_can_be_read() -> None:
    earlier = {
        name: value
        for name, value in report_json(report(done())).items()
        if name not in ("iterations_detail", "applied", "notifications")
    }
    assert Report.model_validate(earlier) == report(done())


def test_the_document_has_exactly_the_documented_keys() -> None:
    follow_up = FollowUp(title="more", kind="change", origin=TaskOrigin(from_task="t-1"))
    document = report_json(report(done(), patch="/p", bundle="/b", workspace="/w", log="/l", next_steps=[follow_up]))
    assert list(document) == KEYS
    assert document["status"] == "DONE"
    assert document["tests_before"] == {"passed": 3, "failed": ["t"], "errors": [], "skipped": 0, "flaky": []}
    assert document["tests_after"] == {"passed": 4, "failed": [], "errors": [], "skipped": 0, "flaky": []}
    assert (document["suite"], document["iterations"], document["duration_sec"]) == ("full", 2, 1.5)
    assert (document["base_commit"], document["base_dirty"]) == ("a" * 40, True)
    assert list(report_json(report(ended(State.ABORTED)))) == KEYS


def test_a_failure_says_what_to_do_next() -> None:
    document = report_json(report(ended(State.FAILED, FailureKind.STUCK)))
    failure = document["failure"]
    assert isinstance(failure, dict)
    assert list(failure) == ["kind", "message", "next_action"]
    assert failure["next_action"]
    assert (document["verdict"], document["tests_before"], document["suite"]) == (None, None, "none")


def test_a_bundle_being_written_says_how_the_run_will_stand() -> None:
    running = done().model_copy(update={"state": State.FINALIZE})
    assert report(running, status=State.DONE, bundle="/b").status is State.DONE


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (done(), 5),
        (done().model_copy(update={"verdict": "confirmed"}), 0),
        (ended(State.DONE), 1),
        (ended(State.FAILED, FailureKind.STUCK), 1),
        (ended(State.FAILED, FailureKind.REPEATED_FAILURE), 1),
        (ended(State.ABORTED, FailureKind.BUDGET_EXCEEDED), 1),
        (ended(State.ABORTED, FailureKind.CANCELLED), 1),
        (ended(State.FAILED, FailureKind.TEST_NOT_FOUND), 2),
        (ended(State.FAILED, FailureKind.FLAKY_TEST), 2),
        (ended(State.BLOCKED, FailureKind.MODEL_AUTH), 3),
        (ended(State.FAILED, FailureKind.SANDBOX_UNAVAILABLE), 4),
        (ended(State.FAILED, FailureKind.INTERNAL), 4),
        (ended(State.IMPLEMENT), 4),
        (ended(State.PAUSED), 130),
    ],
)
def test_every_ending_has_its_exit_code(run: Run, code: int) -> None:
    assert exit_code(run) == code
    assert exit_code(run, accept_plausible=True) == (0 if code == 5 else code)


@pytest.mark.parametrize("kind", list(FailureKind))
def test_every_failure_has_an_exit_code(kind: FailureKind) -> None:
    assert exit_code_of(Failure(kind=kind, message="x")) in (1, 2, 3, 4)
    assert exit_code_of(Failure(kind=kind, message="x"), found=True) in (2, 3, 4), "1 says that no change was found"


def test_a_run_without_a_change_leaves_its_record(tmp_path: Path) -> None:
    event = Event(
        type=EventType.TASK_SPEC_RECORDED,
        data=TaskSpecRecorded(task=TASK),
        event_id="e-1",
        seq=1,
        run_id="r-1",
        at=1,
    )
    run = ended(State.FAILED, FailureKind.STUCK)
    for _ in range(2):
        write_record(tmp_path / "r-1", run, [event])
    assert sorted(path.name for path in (tmp_path / "r-1").iterdir()) == [
        "report.json",
        "timeline.json",
        "transcript.jsonl",
    ]
    assert json.loads((tmp_path / "r-1" / "report.json").read_text())["failure"]["kind"] == "stuck"


def test_neither_record_nor_report_has_secrets_and_paths_stay(tmp_path: Path) -> None:
    token = "ghp_" + "a1" * 18
    task = TASK.model_copy(update={"goal": Goal(natural=f"log in by {token}")})
    event = Event(
        type=EventType.TASK_SPEC_RECORDED, data=TaskSpecRecorded(task=task), event_id="e-1", seq=1, run_id="r-1", at=1
    )
    failure = Failure(kind=FailureKind.STUCK, message=f"{token} was refused", next_action=f"Revoke {token}.")
    run = ended(State.FAILED, FailureKind.STUCK).model_copy(update={"task": task, "failure": failure})
    document = report(run, bundle=str(tmp_path / "r-1"))
    write_record(tmp_path / "r-1", run, [event], document, Redactor({"KEY_DIRECTORY": str(tmp_path)}))
    for path in (tmp_path / "r-1").iterdir():
        assert token not in path.read_text() and "[redacted]" in path.read_text(), path.name
    reported = json.loads((tmp_path / "r-1" / "report.json").read_text())
    assert reported["failure"]["message"] == "[redacted] was refused"
    assert reported["failure"]["next_action"] == "Revoke [redacted]."
    assert reported["bundle"] == str(tmp_path / "r-1")
    assert list(reported) == list(document.model_dump())
