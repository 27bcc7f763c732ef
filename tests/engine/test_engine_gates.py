"""The contract's gates and a person's answer, in whole runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_kit import CHEAP

from codepilot.agents import RepairAgent
from codepilot.core.approval import ApprovalDecided, ApprovalRequested
from codepilot.core.decide import NeedsApproval, Outcome
from codepilot.core.events import EventType, State
from codepilot.core.policy import Policy
from codepilot.core.run import Run
from codepilot.core.task import Evaluation
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from codepilot.engine.control import decide_approval
from codepilot.engine.steps import STEPS
from codepilot.engine.work import Work

BARE = Policy(regression_test=False, generated_code="off")


def driven(runtime: Runtime, checkout: Path, **contract: object) -> Run:
    task = make_task(Request(repo=str(checkout)), CHEAP).model_copy(update={"policy": BARE, **contract})
    run = submit(runtime, task)
    return Worker(runtime, agent_for=lambda task: RepairAgent()).drive(run.run_id)


def test_every_gate_of_the_contract_is_in_the_report_of_the_bundle(runtime: Runtime, checkout: Path) -> None:
    (checkout / "ruff.toml").write_text("", encoding="utf-8")
    run = driven(
        runtime,
        checkout,
        accept=("grep -q 'width [*] height' shapes.py",),
        evaluation=Evaluation(success=("tests_pass", "compiles", "lint_clean")),
    )
    assert (run.state, run.failure) == (State.DONE, None)
    report = json.loads((Path(str(run.bundle)) / "report.json").read_text(encoding="utf-8"))
    reported = {gate["name"]: (gate["ok"], gate["before"], gate["after"]) for gate in report["gates"]}
    assert list(reported) == ["fail_to_pass", "pass_to_pass", "compiles", "lint", "command"]
    assert all(ok for ok, _, _ in reported.values())
    assert reported["command"][1:] == ("exit code 1", "exit code 0")


@pytest.mark.variants
def test_a_demanded_lint_that_no_project_configures_is_reported_as_not_judged(runtime: Runtime, checkout: Path) -> None:
    run = driven(runtime, checkout, evaluation=Evaluation(success=("tests_pass", "lint_clean")))
    assert (run.state, run.failure) == (State.DONE, None) and run.test_result is not None
    assert next(gate.ok for gate in run.test_result.gates if gate.name == "lint") is None


def test_a_run_that_asks_waits_for_its_answer_and_goes_on(
    runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ApprovalRequested(approval_id="a-1", operation="network", details="pypi.org")
    mapped = STEPS[State.MAP_REPO]

    def asks(work: Work) -> Outcome:
        return mapped(work) if work.run.answer_to(asked) else NeedsApproval(asked)

    monkeypatch.setitem(STEPS, State.MAP_REPO, asks)
    run = driven(runtime, checkout)
    assert run.state is State.BLOCKED
    assert run.waiting_for is not None
    assert run.waiting_for.approval_id == "a-1"
    answered = decide_approval(runtime, run.run_id, ApprovalDecided(approval_id="a-1", decision="once", by="someone"))
    assert answered.waiting_for is None
    ended = Worker(runtime, agent_for=lambda task: RepairAgent()).drive(run.run_id)
    assert (ended.state, ended.failure) == (State.DONE, None)
    kinds = [event.type for event in runtime.store.events(run.run_id)]
    assert (kinds.count(EventType.APPROVAL_REQUESTED), kinds.count(EventType.APPROVAL_DECIDED)) == (1, 1)
    runtime.store.check(run.run_id)
