"""Nothing that a project, an agent or git says can drive the terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from codepilot.cli.live import MARKS, make_view
from codepilot.cli.output import plain, plain_lines
from codepilot.cli.progress import Progress, advance
from codepilot.cli.screens import failure, history_table, iterations_table, printable, waits_for
from codepilot.core.approval import Approval, ApprovalRequested
from codepilot.core.artifacts import Gate, TestResult
from codepilot.core.events import BudgetWarned, Event, EventType, State, StepFailed, StepQueued, StepSucceeded
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import Goal, TaskSpec
from codepilot.store import RunRow
from codepilot.telemetry import IterationFigures

EVIL = "test[\x1b]0;owned\x07\x1b[2J\x9b31m\u202e]"


@given(st.text())
def test_plain_text_has_no_control_characters(text: str) -> None:
    assert all(char.isprintable() for char in plain(text))
    assert all(char.isprintable() or char in "\n\t" for char in plain_lines(text))


def test_failures_steps_and_diffs_are_shown_harmless() -> None:
    reported = io.StringIO()
    problem = Failure(kind=FailureKind.TESTS_FAILED, message=EVIL, next_action=EVIL)
    failure(Console(file=reported, width=300), problem)
    queued = Event(type=EventType.STEP_QUEUED, data=StepQueued(state=State.TEST), event_id="e", seq=1, run_id="r", at=1)
    ended = queued.model_copy(
        update={"type": EventType.STEP_FAILED, "data": StepFailed(state=State.TEST, failure=problem)}
    )
    step = advance(advance(Progress(), queued), ended).steps[-1]
    for text in (reported.getvalue(), step.note, printable(f"+{EVIL}\n".encode())):
        assert "\x1b" not in text
        assert "\x9b" not in text
        assert "owned" in text


@pytest.mark.parametrize(("left", "mark"), [((), "done"), (("other",), "partly")])
def test_no_check_mark_stands_next_to_a_test_that_still_fails(left: tuple[str, ...], mark: str) -> None:
    judged = TestResult(passed=True, cmd=("pytest",), exit_code=1, failed_tests_after=left)
    progress = Progress()
    for number, (kind, data) in enumerate(
        (
            (EventType.STEP_QUEUED, StepQueued(state=State.TEST)),
            (EventType.TESTS_JUDGED, judged),
            (EventType.STEP_SUCCEEDED, StepSucceeded(state=State.TEST)),
        )
    ):
        progress = advance(progress, Event(type=kind, data=data, event_id="e", seq=number + 1, run_id="r", at=1))
    assert progress.steps[-1].mark == mark
    assert (MARKS[mark][0] == "✓") is (not left)


@pytest.mark.parametrize("terminal", [True, False])
def test_each_gate_is_a_line_of_the_live_view(terminal: bool) -> None:
    gates = (
        Gate(name="fail_to_pass", before="1 fail", after="1 pass", ok=True),
        Gate(name="command", before="exit code 0", after=f"exit code 1 {EVIL}", ok=False),
    )
    task = TaskSpec(task_id="t-1", goal=Goal(natural="x"), repo="/r")
    screen = Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)
    result = TestResult(passed=False, cmd=("pytest",), exit_code=1, gates=gates)
    judged = Event(type=EventType.TESTS_JUDGED, data=result, event_id="e", seq=1, run_id="r", at=1)
    with make_view(screen, Run(run_id="r", task=task), []) as view:
        view.on_event(judged)
    assert isinstance(screen.file, io.StringIO)
    shown = screen.file.getvalue()
    assert "fail_to_pass  1 fail → 1 pass  holds" in shown
    assert "exit code 0 → exit code 1" in shown and "does not hold" in shown
    assert "owned" in shown and "\x9b" not in shown


def test_a_blocked_run_names_what_it_waits_for() -> None:
    run = Run(run_id="r", task=TaskSpec(task_id="t-1", goal=Goal(natural="x"), repo="/r"))
    assert waits_for(run) is None
    quota = Failure(kind=FailureKind.MODEL_QUOTA, message="no quota")
    parked = run.model_copy(update={"state": State.BLOCKED, "failure": quota, "parked_until": 1})
    assert waits_for(parked) == "the model provider's quota"
    request = ApprovalRequested(approval_id="a-1", operation="command", details="curl \x1b[2J")
    denied = Failure(kind=FailureKind.DENIED, message="asked", details={"approval_id": "a-1"})
    asking = parked.model_copy(update={"failure": denied, "approvals": (Approval(request=request),)})
    assert (
        (reported := waits_for(asking))
        and reported.startswith("your approval (a-1): command curl ")
        and "\x1b" not in reported
    )
    assert "resume" in (waits_for(parked.model_copy(update={"parked_until": None})) or "")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_budget_that_is_nearly_spent_is_reported(terminal: bool) -> None:
    task = TaskSpec(task_id="t-1", goal=Goal(natural="x"), repo="/r")
    screen = Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)
    sentence = Event(
        type=EventType.BUDGET_WARNED,
        data=BudgetWarned(budget="iterations", used=12, limit=15),
        event_id="e", seq=1, run_id="r", at=1,
    )  # fmt: skip
    with make_view(screen, Run(run_id="r", task=task), []) as view:
        view.on_event(sentence)
    assert isinstance(screen.file, io.StringIO)
    assert "the budget is nearly spent: iterations 12 of 15" in screen.file.getvalue()


@pytest.mark.parametrize("patch", [b"", b"\xff\xfe", b"diff --git a/x b/x\nindex 1..2\n+a\r\n"])
def test_a_diff_of_any_bytes_can_be_shown(patch: bytes) -> None:
    assert "index 1" not in printable(patch)


def test_a_list_keeps_its_columns_on_a_narrow_terminal():
    rows = [
        RunRow("r-01m7g0dheq2rma773sga", State.DONE, "confirmed", "A long task " * 9, "/x", 0, 0, None),
        RunRow("r-01m7g0dheq2rma773sgb", State.FAILED, None, "short", "/x", 0, 0, FailureKind.SANDBOX_UNAVAILABLE),
        RunRow("r-01m7g0dheq2rma773sgc", "DREAM", None, "of another version", "/x", 0, 0, "[bored]"),
    ]
    console = Console(width=90, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(history_table(console, rows, {"r-01m7g0dheq2rma773sgc": "queued"}))
    shown = console.file.getvalue()
    for word in (
        "r-01m7g0dheq2rma773sga",
        "DONE",
        "confirmed",
        "FAILED",
        "sandbox_unavailable",
        "A long",
        "DREAM (queued)",
        "[bored]",
    ):
        assert word in shown


@pytest.mark.parametrize("width", [80, 120])
def test_what_went_wrong_leaves_the_numbers_of_an_iteration_their_room(width: int) -> None:
    reported = io.StringIO()
    one = IterationFigures(
        number=1,
        states=(),
        duration_sec=1234.5,
        turns=678,
        tokens=9_012_345,
        input_tokens=9_000_000,
        output_tokens=12_345,
        cost_usd=0.0,
        files=("a.py",),
        tests_passed=4321,
        tests_failed=87,
        pass_rate=0.98,
        errors=("test_a and " * 50,),
    )
    Console(file=reported, width=width).print(iterations_table([one], expand=True))
    assert all(number in reported.getvalue() for number in ("1234.5", "678", "9012345", "4321", "87", "test_a"))
