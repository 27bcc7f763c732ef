"""A run hands its change over as a commit: once, whatever happens, and never at the price of the change."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, CODE, DONE, MAP, PLAN, RIGHT, EditingAgent, drive

import ready
from codepilot.core.commit import CommitRecorded
from codepilot.core.events import DependencyDegraded, Event, EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.engine import Request, Runtime, Worker, apply_run, commit_run, fork_run, make_task, report_run, submit
from codepilot.engine.change.commit import commit_change
from codepilot.models import ScriptedModel
from codepilot.workspace import ObjectStore
from configured import configured
from servers import PostgresServer

HERE = Path(__file__).parent


def git(checkout: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commits(events: list[Event]) -> list[CommitRecorded]:
    return [event.data for event in events if isinstance(event.data, CommitRecorded)]


def unreachable(checkout: Path) -> list[str]:
    found = git(checkout, "fsck", "--unreachable", "--no-reflogs").splitlines()
    return [line for line in found if "commit" in line]


@pytest.fixture
def shared(tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """A runtime whose runs others may go on with, from machines of their own."""
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
    monkeypatch.setenv("CODEPILOT_STORE", postgres.store())
    monkeypatch.setenv("CODEPILOT_ARTIFACTS", str(tmp_path / "artifacts"))
    with Runtime.open(configured({"CODEPILOT_HOME": str(tmp_path / "door")})) as opened:
        yield opened


@pytest.mark.slow
def test_a_run_that_is_killed_around_its_commit_makes_one_and_records_it_once(
    shared: Runtime, checkout: Path, tmp_path: Path
) -> None:
    runtime, graves = shared, tmp_path / "graves"
    graves.mkdir()
    base = git(checkout, "rev-parse", "HEAD")
    run = submit(runtime, make_task(Request(repo=str(checkout), branch="mend/{run}"), CHEAP))
    for life in range(5):
        environ = {**os.environ, "CODEPILOT_HOME": str(tmp_path / f"machine-{life}")}
        code, out, err = ready.run([run.run_id, str(graves)], environ, script=HERE / "dying_commit.py")
        assert code in (0, -signal.SIGKILL), err
    assert (code, out.strip()) == (0, State.DONE), err
    assert len(list(graves.iterdir())) == 4
    runtime.store.check(run.run_id)
    ended, events = runtime.store.load(run.run_id), runtime.store.events(run.run_id)
    assert commits(events) == [ended.committed]
    assert ended.committed is not None
    branch = f"mend/{run.run_id}"
    assert (ended.committed.branch, ended.committed.parent) == (branch, base)
    assert git(checkout, "rev-parse", branch) == ended.committed.commit
    assert git(checkout, "rev-list", f"{base}..{branch}") == ended.committed.commit
    assert git(checkout, "diff", "--name-only", base, branch) == "shapes.py"
    assert unreachable(checkout) == []
    assert git(checkout, "status", "--porcelain") == ""
    proof = next(event for event in events if event.type is EventType.PROOF_RECORDED)
    assert git(checkout, "show", "-s", "--format=%at", branch) == str(proof.at // 1_000_000)
    reported = git(checkout, "show", "-s", "--format=%B", branch).splitlines()
    assert reported[0] == "Make test_shapes.ShapesTest.test_area pass"
    assert f"Run: {run.run_id}" in reported
    assert report_run(ended, events, runtime.home).commit == ended.committed
    _a_fork_has_a_commit_of_its_own(runtime, checkout, ended.committed, run.run_id)


@pytest.mark.variants
def test_a_branch_that_is_there_costs_the_commit_alone_and_another_name_gets_it_later(
    runtime: Runtime, checkout: Path
) -> None:
    git(checkout, "branch", "taken")
    with pytest.raises(CodePilotError, match="a branch taken already"):
        make_task(Request(repo=str(checkout), branch="taken"), configured())
    model = ScriptedModel([MAP, PLAN, RIGHT, DONE, APPROVE])
    ended, events = drive(runtime, checkout, model, branch="taken", elsewhere=True)
    assert (ended.state, ended.failure) == (State.DONE, None)
    assert (ended.bundle is not None, ended.committed, commits(events)) == (True, None, [])
    degraded = [event.data for event in events if isinstance(event.data, DependencyDegraded)]
    assert [(one.dependency, one.consequence) for one in degraded] == [("commit", "the change is not on branch taken")]
    assert ended.uncommitted is not None
    assert (ended.uncommitted.kind, "another name" in ended.uncommitted.advice) == (FailureKind.INVALID_SPEC, True)
    assert unreachable(checkout) == []

    with pytest.raises(CodePilotError, match="a branch taken already"):
        commit_run(runtime, ended.run_id, "taken", accept_plausible=False)
    with pytest.raises(CodePilotError, match="cannot be a branch"):
        commit_run(runtime, ended.run_id, "refs/heads/x", accept_plausible=False)
    made = commit_run(runtime, ended.run_id, "free/{run}", accept_plausible=False)
    assert made.branch == f"free/{ended.run_id}"
    assert commit_run(runtime, ended.run_id, "free/{run}", accept_plausible=False) == made
    events, now = runtime.store.events(ended.run_id), runtime.store.load(ended.run_id)
    assert (commits(events), now.committed, now.uncommitted) == ([made], made, None)
    other = commit_run(runtime, ended.run_id, "as-well", accept_plausible=False)
    assert (other.commit, commits(runtime.store.events(ended.run_id))) == (made.commit, [made, other])
    assert (checkout / "shapes.py").read_text() == CODE
    _the_first_proof_counts(runtime, now, events, made)
    apply_run(runtime, ended.run_id, accept_plausible=False)
    assert (checkout / "shapes.py").read_text() != CODE


def _the_first_proof_counts(runtime: Runtime, run: Run, events: list[Event], made: CommitRecorded) -> None:
    """A step that is tried again proves again: that must not be another commit."""
    assert run.base is not None
    proof = next(event for event in events if event.type is EventType.PROOF_RECORDED)
    again = proof.model_copy(update={"seq": events[-1].seq + 1, "at": proof.at + 5_000_000})
    with ObjectStore.open(runtime.home.repos / f"{run.base.repo_id}.git") as objects:
        assert commit_change(run, [*events, again], objects, made.branch) == made


def _a_fork_has_a_commit_of_its_own(runtime: Runtime, checkout: Path, of: CommitRecorded, run_id: str) -> None:
    forked = fork_run(runtime, run_id, None)
    assert (forked.state, forked.committed) == (State.FINALIZE, None)
    ended = Worker(runtime).drive(forked.run_id)
    assert [ended.committed] == commits(runtime.store.events(ended.run_id))
    assert ended.committed is not None
    assert (ended.state, ended.committed.branch) == (State.DONE, f"mend/{ended.run_id}")
    assert git(checkout, "rev-parse", ended.committed.branch) == ended.committed.commit != of.commit


def test_a_task_on_a_url_cannot_have_a_branch(checkout: Path) -> None:
    with pytest.raises(CodePilotError, match="needs a checkout"):
        make_task(Request(repo=f"file://{checkout}", branch="x"), configured())


def test_what_is_worked_on_is_what_was_submitted(runtime: Runtime, checkout: Path) -> None:
    """Whatever the checkout has become by the time that a worker comes; on any store."""
    head = git(checkout, "rev-parse", "HEAD")
    run_id = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP)).run_id
    (checkout / "other.py").write_text("", encoding="utf-8")
    git(checkout, "add", "other.py")
    git(checkout, "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-qm", "Something else")
    run = Worker(runtime, agent_for=lambda task: EditingAgent()).drive(run_id)
    assert run.base is not None and run.base.commit == head
    assert run.state is State.DONE


@pytest.mark.variants
def test_a_base_that_lies_in_another_home_is_pinned_anew(tmp_path: Path, checkout: Path, runtime: Runtime) -> None:
    """Two homes may share a database file, and nothing else."""
    shared = str(runtime.home.database)
    with Runtime.open(configured(home=tmp_path / "other", store=shared)) as other:
        run_id = submit(other, make_task(Request(repo=str(checkout)), CHEAP)).run_id
    assert Worker(runtime, agent_for=lambda task: EditingAgent()).drive(run_id).state is State.DONE
