"""A change that is handed over as a commit, as users ask for it and see it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from cli_kit import SHOP, Command, Repo, git, started

from codepilot.cli.drive import finish
from codepilot.core.commit import COMMIT
from codepilot.core.decide import Failed, Outcome, Paused, decide, start
from codepilot.core.events import DependencyDegraded, EventDraft, EventType
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.task import Goal, TaskSpec
from codepilot.engine import Begun, CodePilot, Runtime
from codepilot.store import new_id
from codepilot.telemetry import now_us

WEAK = """import unittest
from shop import shipping


class T(unittest.TestCase):
    def test_it(self):
        self.assertEqual(shipping(50), 0)
"""


def test_a_confirmed_change_is_committed_to_the_branch_and_reported(codepilot: Command, shop: Path) -> None:
    ended = codepilot("fix", str(shop), "--branch", "mend/{run}")
    run_id = codepilot.newest()
    branch = f"mend/{run_id}"
    commit = git(shop, "rev-parse", branch).strip()
    assert ended.code == 0, ended.out + ended.err
    assert f"branch   {branch} at {commit[:12]}" in ended.out
    assert f"committed to {branch} as {commit[:12]}" in ended.err
    assert f"branch   {branch} at {commit[:12]}" in codepilot("show", "last").out
    assert git(shop, "status", "--porcelain") == ""
    assert git(shop, "diff", "--name-only", "HEAD", branch) == "shop.py\n"
    reported = codepilot("show", "last", "--json").json["commit"]
    assert reported == {"checkout": str(shop), "branch": branch, "commit": commit, "parent": reported["parent"]}
    assert codepilot("apply", "last", "--branch", branch, "--json").json == {"schema_version": 1, **reported}
    refused = codepilot("apply", "last", "--branch", "main")
    assert (refused.code, "another name" in refused.err) == (2, True)


@pytest.mark.variants
def test_a_plausible_one_is_not_and_the_output_says_how(codepilot: Command, repo: Repo) -> None:
    checkout = repo({"shop.py": SHOP, "test_shop.py": WEAK})
    ended = codepilot("fix", str(checkout), "--branch", "mend", "--json")
    report = ended.json
    assert (ended.code, report["status"], report["verdict"], report["commit"]) == (3, "DONE", "plausible", None)
    assert report["failure"]["kind"] == "denied"
    how = f"codepilot apply {report['run_id']} --branch mend --accept-plausible"
    assert how in report["failure"]["next_action"]
    assert how in codepilot("show", "last").out
    assert git(checkout, "branch", "--list", "mend") == ""
    accepted = codepilot("resume", report["run_id"], "--accept-plausible", "--json")
    assert (accepted.code, accepted.json["commit"]["branch"], accepted.json["failure"]) == (0, "mend", None)
    commit = git(checkout, "rev-parse", "mend").strip()
    git(checkout, "branch", "-D", "mend")
    done = codepilot(*how.split()[1:])
    assert git(checkout, "rev-parse", "mend").strip() == commit
    assert (done.code, commit in done.out) == (0, True), done.err


def test_a_branch_that_cannot_be_is_refused_at_once(codepilot: Command, repo: Repo) -> None:
    checkout = repo({"shop.py": SHOP})
    for name, output in (("a..b", "cannot be a branch"), ("main", "a branch main already")):
        ended = codepilot("fix", str(checkout), "--branch", name)
        assert (ended.code, output in ended.err) == (2, True), ended.err
    queued = codepilot("submit", str(checkout), "--branch", "mend/{run}")
    with codepilot.runtime() as runtime:
        assert runtime.store.load(queued.out.strip()).task.branch == "mend/{run}"


@pytest.mark.variants
def test_what_was_written_is_reported_although_the_branch_is_refused(codepilot: Command, shop: Path) -> None:
    asked = ("fix", str(shop), "--apply", "--branch", "mend", "--json")
    process, run_id = started(codepilot, EventType.WORKSPACE_CREATED, *asked)
    git(shop, "branch", "mend")
    out, err = process.communicate(timeout=300)
    report = json.loads(out)
    assert (process.returncode, report["status"], report["failure"]["kind"]) == (2, "DONE", "invalid_spec"), out + err
    assert report["commit"] is None and "mend" in report["failure"]["message"]
    assert report["applied"] == {"checkout": str(shop), "files": ["shop.py"], "by": "user"}
    assert git(shop, "diff", "--name-only") == "shop.py\n"
    assert codepilot("show", run_id, "--json").json["applied"] == report["applied"]


FAILED = Failed(Failure(kind=FailureKind.PROOF_FAILED, message="The proof does not hold."))


@pytest.mark.parametrize(
    ("outcome", "status", "code"),
    [(Paused("asked to"), "PAUSED", 130), (FAILED, "FAILED", 1)],
    ids=["paused", "failed"],
)
def test_how_a_run_ended_counts_and_not_that_its_branch_was_refused(
    codepilot: Command, capsys: pytest.CaptureFixture[str], outcome: Outcome, status: str, code: int
) -> None:
    with codepilot.runtime() as runtime:
        begun = _refused_its_branch(runtime, outcome)
    with CodePilot(runtime.settings) as pilot, pytest.raises(typer.Exit) as ended:
        finish(pilot, lambda: begun, as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert (ended.value.exit_code, report["status"]) == (code, status)
    assert (report["failure"] and report["failure"]["kind"]) == (None if status == "PAUSED" else "proof_failed")


def _refused_its_branch(runtime: Runtime, outcome: Outcome) -> Begun:
    """A run whose step was informed that its change cannot be on its branch, and then came to this."""
    task = TaskSpec(task_id=new_id("t-"), goal=Goal(natural="Mend it"), repo="/nowhere", branch="mend")
    run_id, worker = new_id("r-"), new_id("w-")
    runtime.store.create_run(run_id, start(task, run_id))
    begun = runtime.store.claim_next(worker, run_id)
    assert begun is not None
    taken = Failure(kind=FailureKind.INVALID_SPEC, message="There is a branch mend already.")
    degraded = DependencyDegraded(dependency=COMMIT, consequence="it is not on branch mend", failure=taken)
    step, attempt = begun.claim.step_id, begun.claim.attempt
    refused = EventDraft(type=EventType.DEPENDENCY_DEGRADED, data=degraded, step_id=step, attempt=attempt)
    runtime.store.append(begun.claim, [refused])
    runtime.store.commit(begun.claim, lambda run: decide(run, outcome, now_us()))
    run = runtime.store.load(run_id)
    assert run.uncommitted == taken
    return Begun(run, worker, None)
