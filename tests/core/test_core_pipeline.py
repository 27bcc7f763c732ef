"""What each kind of task goes through, where it goes back to, which gates it asks for, and how it asks a person."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_kit import Log, red

from codepilot.core.approval import ApprovalDecided, ApprovalRequested, WaitingFor
from codepilot.core.artifacts import Gate, GateName, TestError, TestResult
from codepilot.core.decide import Failed, NeedsApproval, Red, Refused, Succeeded, decide_approval, decide_resume
from codepilot.core.events import EventType, State
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.pipeline import PIPELINES, Pipeline, gates_of
from codepilot.core.task import Evaluation, TaskKind

REFUSED = Refused(Failure(kind=FailureKind.REVIEW_REFUSED, message="no"))
ASK = ApprovalRequested(approval_id="a-1", operation="network", details="pypi.org", risk="low")


@pytest.mark.parametrize("kind", list(PIPELINES))
def test_every_pipeline_leads_through_its_states_to_the_end(kind: TaskKind) -> None:
    log = Log(kind=kind)
    seen = []
    while not log.now.terminal:
        seen.append(log.now.state)
        log.ends(Succeeded())
    assert seen == [state for state in PIPELINES[kind].states if state is not State.REFLECT]
    assert (log.now.state, log.now.failure) == (State.DONE, None)


def test_a_bugfix_goes_the_whole_way() -> None:
    forward = [state for state in PIPELINES[TaskKind.BUGFIX].states if state is not State.REFLECT]
    assert forward == ["INIT", "MAP_REPO", "PLAN", "IMPLEMENT", "TEST", "REVIEW", "FINALIZE"]


def through(monkeypatch: pytest.MonkeyPatch, *states: State) -> None:
    pipeline = replace(PIPELINES[TaskKind.BUGFIX], states=states)
    monkeypatch.setattr("codepilot.core.pipeline.PIPELINES", {TaskKind.BUGFIX: pipeline})


def test_a_kind_that_lacks_states_returns_to_the_next_one_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    through(monkeypatch, State.INIT, State.IMPLEMENT, State.TEST, State.FINALIZE)
    log = Log()
    for number, outcome in enumerate((red("a"), red("b"), Failed(Failure(kind=FailureKind.TOOL_MISSING, message="m")))):
        log.reach(State.TEST)
        log.ends(outcome)
        assert (log.now.state, log.now.spent.iterations) == (State.IMPLEMENT, number + 2)


def test_a_kind_without_an_agent_fails_with_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    through(monkeypatch, State.INIT, State.TEST, State.REVIEW, State.FINALIZE)
    for state, outcome in ((State.TEST, red("a")), (State.REVIEW, REFUSED)):
        log = Log()
        log.reach(state)
        log.ends(outcome)
        assert log.now.state is State.FAILED
        assert log.now.failure is not None
        assert log.now.failure.kind in (FailureKind.TESTS_FAILED, FailureKind.REVIEW_REFUSED)


@pytest.mark.parametrize("state", [State.MAP_REPO, State.PLAN, State.REFLECT, State.IMPLEMENT])
def test_a_full_pipeline_returns_where_it_is_asked_to(state: State) -> None:
    pipeline: Pipeline = PIPELINES[TaskKind.BUGFIX]
    assert pipeline.back_to(state) is state


def test_the_contract_chooses_the_gates() -> None:
    task = Log().now.task
    assert gates_of(task) == ("fail_to_pass", "pass_to_pass")
    asked = Evaluation(success=("lint_clean", "compiles"))
    chosen = task.model_copy(update={"evaluation": asked, "accept": ("make check", "./run.sh")})
    assert gates_of(chosen) == ("fail_to_pass", "pass_to_pass", "lint", "compiles", "command", "command")


# Approvals ------------------------------------------------------------------------------------------


def asked() -> Log:
    log = Log()
    log.reach(State.IMPLEMENT)
    log.ends(NeedsApproval(ASK))
    return log


def answer(log: Log, decision: str, approval_id: str = "a-1") -> None:
    data = {"approval_id": approval_id, "decision": decision, "by": "someone"}
    log.add(decide_approval(log.now, ApprovalDecided.model_validate(data)))


def test_a_step_that_needs_an_approval_blocks_and_tells_what_for() -> None:
    log = asked()
    assert (log.now.state, log.now.resume_state) == (State.BLOCKED, State.IMPLEMENT)
    assert log.now.waiting_for == WaitingFor(kind="approval", approval_id="a-1")
    assert log.now.failure is not None
    assert log.now.failure.message == "A person has to approve: network pypi.org"


@pytest.mark.parametrize("decision", ["once", "always", "denied"])
def test_an_answer_lets_the_same_step_go_on_and_find_it(decision: str) -> None:
    log = asked()
    step = log.now.step_id
    answer(log, decision)
    assert (log.now.state, log.now.step_id, log.now.waiting_for) == (State.IMPLEMENT, step, None)
    found = log.now.answer_to(ASK)
    assert found is not None
    assert found.decision == decision
    again = ASK.model_copy(update={"approval_id": "a-2"})
    assert (log.now.answer_to(again) is not None) == (decision != "once")
    assert log.now.answer_to(again.model_copy(update={"details": "evil.example"})) is None


def test_an_answer_counts_once_and_only_for_what_was_asked() -> None:
    log = asked()
    answer(log, "once", approval_id="a-9")
    assert log.now.state is State.BLOCKED
    answer(log, "denied")
    answer(log, "always")
    found = log.now.answer_to(ASK)
    assert found is not None
    assert found.decision == "denied"


def test_a_run_that_is_resumed_without_an_answer_asks_the_same_again() -> None:
    log = asked()
    log.add(decide_resume(log.now))
    assert log.now.state is State.IMPLEMENT
    log.ends(NeedsApproval(ASK))
    assert log.now.waiting_for == WaitingFor(kind="approval", approval_id="a-1")
    assert len([event for event in log.events if event.type is EventType.APPROVAL_REQUESTED]) == 1


def test_an_answer_to_a_paused_run_is_recorded_and_does_not_wake_it() -> None:
    log = asked()
    log.add(decide_resume(log.now))
    log.ends(Failed(Failure(kind=FailureKind.MODEL_AUTH, message="no key")))
    assert log.now.waiting_for == WaitingFor(kind="person")
    answer(log, "once")
    assert log.now.state is State.BLOCKED
    assert log.now.answer_to(ASK) is not None


def test_a_run_that_waits_for_a_quota_says_until_when() -> None:
    log = Log()
    log.reach(State.IMPLEMENT)
    reset = log.clock + 3_600_000_000
    log.ends(Failed(Failure(kind=FailureKind.MODEL_QUOTA, message="spent", details={"reset_at": reset})))
    assert log.now.waiting_for == WaitingFor(kind="quota", until=reset)


@pytest.mark.parametrize(
    ("gate", "error", "kind"),
    [
        ("lint", "LintError", FailureKind.GATE_FAILED),
        ("command", "CommandFailed", FailureKind.GATE_FAILED),
        ("compiles", "SyntaxError", FailureKind.COMPILE_ERROR),
    ],
)
def test_a_red_gate_next_to_green_tests_is_reflected_on_with_its_evidence(
    gate: GateName, error: str, kind: FailureKind
) -> None:
    log = Log()
    log.reach(State.TEST)
    result = TestResult(
        passed=False,
        cmd=("t",),
        exit_code=0,
        failed_tests_after=("old::failure",),
        errors=(TestError(test=gate, error_type=error, message="here it is"),),
        signature="s",
        gates=(Gate(name="fail_to_pass", ok=True), Gate(name=gate, ok=False, evidence="here it is")),
    )
    log.ends(Red(result))
    assert log.now.state is State.REFLECT
    assert log.now.failures[-1].kind is kind
    assert "here it is" in log.now.failures[-1].message
