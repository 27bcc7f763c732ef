"""The run's log: every event once and in order, whatever happened to the process that wrote it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import signal
import stat
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import (
    BudgetWarned,
    DependencyDegraded,
    Event,
    EventType,
    GuardrailBlocked,
    Requested,
    RunFinished,
    SkillCall,
    State,
    StepFailed,
    StepQueued,
    StepStarted,
    TurnFinished,
    TurnStarted,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.telemetry import Redactor, RunLog, rfc3339

AT = 1_760_538_181_123_456


def event(seq: int, kind: EventType, data: Contract) -> Event:
    return Event(
        type=kind, data=data, step_id="s-1", attempt=1, event_id=f"e-{seq}", seq=seq, run_id="r-1", at=AT + seq
    )


def turn(seq: int, **observation: object) -> Event:
    return event(seq, EventType.TURN_FINISHED, TurnFinished(turn=seq, observation={"n": seq, **observation}))


def a_run(length: int) -> list[Event]:
    queued = event(1, EventType.STEP_QUEUED, StepQueued(state=State.IMPLEMENT))
    begun = event(2, EventType.STEP_STARTED, StepStarted(worker="w", fence=1))
    return [queued, begun, *(turn(seq) for seq in range(3, length + 1))]


def lines(path: Path) -> list[JsonObject]:
    text = path.read_bytes()
    assert text == b"" or text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


def seqs(path: Path) -> list[object]:
    return [line["seq"] for line in lines(path)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "r-1.jsonl"


def test_a_line_has_the_mandatory_fields(path: Path) -> None:
    log = RunLog(path)
    done = turn(3, tool="apply_patch", exit_code=0, duration_ms=312)
    log.write([*a_run(2), done])
    log.close()
    assert lines(path)[2] == {
        "ts": "2025-10-15T14:23:01.123Z",
        "level": "INFO",
        "runId": "r-1",
        "stepId": "s-1",
        "role": "IMPLEMENT",
        "attempt": 1,
        "event": "turn_finished",
        "seq": 3,
        "tool": "apply_patch",
        "exitCode": 0,
        "durationMs": 312.0,
        "data": {"turn": 3, "observation": done.data.model_dump()["observation"], "tree": None, "calls": []},
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_tool_is_named_by_the_action_too(path: Path) -> None:
    log = RunLog(path)
    log.write(
        [
            event(1, EventType.TURN_STARTED, TurnStarted(turn=1, action={"tool": "read_file"})),
            event(2, EventType.GUARDRAIL_BLOCKED, GuardrailBlocked(skill="run_command", rule="r", attempt="rm")),
        ]
    )
    log.close()
    assert [line["tool"] for line in lines(path)] == ["read_file", "run_command"]
    assert "exitCode" not in lines(path)[0]


@pytest.mark.parametrize(
    ("ended", "exit_code"),
    [
        ({"status": "success"}, 0),
        ({"status": "success", "exit": "-9"}, -9),
        ({"status": "error", "exit": "FileNotFoundError"}, None),
        ({"status": "timeout", "exit": "timeout"}, None),
        ({"status": "policy_violation"}, None),
        ({"status": "error", "exit": "\u0663"}, None),
    ],
)
def test_a_turn_is_judged_by_its_last_call(path: Path, ended: dict[str, str], exit_code: int | None) -> None:
    calls = (
        SkillCall(skill="read_file", status="success", duration_ms=1.0),
        SkillCall.model_validate({"skill": "run_command", "duration_ms": 312.5, **ended}),
    )
    log = RunLog(path)
    log.write([event(1, EventType.TURN_FINISHED, TurnFinished(turn=1, observation={"status": "ok"}, calls=calls))])
    log.close()
    (line,) = lines(path)
    assert (line["tool"], line.get("exitCode"), line["durationMs"]) == ("run_command", exit_code, 312.5)


@pytest.mark.parametrize(
    ("kind", "data", "level"),
    [
        (EventType.STEP_STARTED, StepStarted(worker="w", fence=1), "INFO"),
        (EventType.BUDGET_WARNED, BudgetWarned(budget="iterations", used=12, limit=15), "WARN"),
        (
            EventType.DEPENDENCY_DEGRADED,
            DependencyDegraded(
                dependency="memory",
                consequence="nothing is shown",
                failure=Failure(kind=FailureKind.STORE_UNAVAILABLE, message="locked"),
            ),
            "WARN",
        ),
        (EventType.RUN_FINISHED, RunFinished(state=State.DONE), "INFO"),
        (EventType.RUN_FINISHED, RunFinished(state=State.ABORTED), "WARN"),
        (EventType.RUN_FINISHED, RunFinished(state=State.FAILED), "ERROR"),
        (
            EventType.STEP_FAILED,
            StepFailed(state=State.TEST, failure=Failure(kind=FailureKind.TESTS_FAILED, message="red")),
            "WARN",
        ),
        (
            EventType.STEP_FAILED,
            StepFailed(state=State.TEST, failure=Failure(kind=FailureKind.EXECUTOR_LOST, message="gone")),
            "ERROR",
        ),
    ],
)
def test_the_level_says_how_bad_it_is(path: Path, kind: EventType, data: Contract, level: str) -> None:
    log = RunLog(path)
    log.write([event(1, kind, data)])
    log.close()
    assert lines(path)[0]["level"] == level


@settings(max_examples=60, deadline=None)
@given(length=st.integers(2, 12), cut=st.integers(0, 5_000), junk=st.binary(max_size=30))
def test_a_torn_log_is_repaired_and_caught_up(
    tmp_path_factory: pytest.TempPathFactory, length: int, cut: int, junk: bytes
) -> None:
    path = tmp_path_factory.mktemp("log") / "r-1.jsonl"
    events = a_run(length)
    log = RunLog(path)
    log.write(events)
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)] + junk)
    again = RunLog(path)
    assert again.last_seq <= length
    again.catch_up(events)
    again.catch_up(events)
    again.write([turn(length + 1)])
    again.close()
    assert path.read_bytes().startswith(whole)
    assert seqs(path) == list(range(1, length + 2))
    assert lines(path)[-1]["role"] == "IMPLEMENT"


@settings(max_examples=60, deadline=None)
@given(step=st.none() | st.text(max_size=8), name=st.text(max_size=8), output=st.text(max_size=40))
def test_whatever_an_event_says_is_one_line_that_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, step: str | None, name: str, output: str
) -> None:
    path = tmp_path_factory.mktemp("log") / "r-1.jsonl"
    reported = turn(1, output=output).model_copy(update={"step_id": step, "run_id": name})
    log = RunLog(path)
    log.write([reported, turn(2)])
    log.close()
    first, second = lines(path)
    assert (first["stepId"], first["runId"]) == (step or None, name)
    assert cast(dict[str, dict[str, str]], first["data"])["observation"]["output"] == output
    assert second["seq"] == 2


def test_nothing_is_written_twice(path: Path) -> None:
    events = a_run(6)
    log = RunLog(path)
    log.write(events[:4])
    log.write(events[2:5])
    log.write([])
    log.close()
    resumed = RunLog(path)
    assert resumed.last_seq == 5
    resumed.write([events[5]])
    resumed.close()
    assert seqs(path) == [1, 2, 3, 4, 5, 6]
    assert lines(path)[-1]["role"] == "IMPLEMENT", "the role is known from the lines that were there"


def test_events_of_another_process_are_written_in_their_place(path: Path) -> None:
    events = a_run(8)

    def missing(after: int, before: int) -> Sequence[Event]:
        return events[after : before - 1]

    log = RunLog(path, missing=missing)
    log.write(events[:3])
    log.write(events[6:7])
    log.write(events[7:])
    log.close()
    assert seqs(path) == list(range(1, 9))


def test_events_of_another_process_between_our_own_are_written_too(path: Path) -> None:
    events = a_run(6)
    log = RunLog(path, missing=lambda after, before: events[after : before - 1])
    log.write([events[2], events[3], events[5]])
    log.close()
    assert seqs(path) == list(range(1, 7))


def test_a_writer_that_was_frozen_while_it_had_the_file_writes_no_line_twice(path: Path) -> None:
    """Anyone who goes on does not wait for it for ever; it looks again before it writes."""
    events = a_run(8)
    thawed = threading.Event()

    def missing(after: int, before: int) -> Sequence[Event]:
        thawed.wait(10)
        return events[after : before - 1]

    frozen, other = RunLog(path, missing=missing), RunLog(path)
    frozen.write(events[:2])
    freezing = threading.Thread(target=frozen.write, args=(events[4:5],))
    freezing.start()
    other.write(events)
    thawed.set()
    freezing.join()
    assert seqs(path) == list(range(1, 9))
    frozen.close()
    other.close()


def test_who_has_the_file_for_a_moment_is_waited_for(path: Path) -> None:
    log = RunLog(path)
    holder = os.open(path, os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    free = threading.Timer(0.2, os.close, [holder])
    free.start()
    with log._locked(), path.open() as again, pytest.raises(BlockingIOError):
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    free.join()
    log.close()


def test_roles_are_known_of_steps_whose_lines_another_wrote(path: Path) -> None:
    events = a_run(4)
    asked = event(4, EventType.PAUSE_REQUESTED, Requested()).model_copy(update={"step_id": None})
    mine, other = RunLog(path), RunLog(path)
    other.write([*events[:3], asked])
    mine.write(events[:3])
    mine.write([turn(5)])
    assert seqs(path) == [1, 2, 3, 4, 5]
    assert lines(path)[-1]["role"] == "IMPLEMENT"
    mine.close()
    other.close()


def test_a_line_is_the_same_whatever_it_is_written_with(path: Path) -> None:
    plain, escaped = turn(1, items=list(range(80))), turn(2, text="a\nb")
    for name, lots in (("apart", [[plain], [escaped]]), ("together", [[plain, escaped]])):
        log = RunLog(path.with_name(name))
        for lot in lots:
            log.write(lot)
        log.close()
    assert path.with_name("apart").read_bytes() == path.with_name("together").read_bytes()


def test_a_very_long_last_line_is_found(path: Path) -> None:
    """The tail is read in blocks; a line longer than a block is still one line."""
    path.parent.mkdir(parents=True)
    log = RunLog(path)
    log.write(a_run(3))
    log.close()
    path.write_bytes(path.read_bytes() + b"x" * 300_000)
    again = RunLog(path)
    assert again.last_seq == 3
    again.close()
    assert seqs(path) == [1, 2, 3]


def test_data_is_bounded(path: Path) -> None:
    log = RunLog(path)
    deep: object = "end"
    for _ in range(50):
        deep = [deep]
    log.write([turn(1, stdout="y" * 1_000_000, many=list(range(10_000)), deep=deep)])
    log.write([turn(2, **{f"field{n}": "z" * 1_999 for n in range(40)})])
    log.close()
    first, second = path.read_bytes().splitlines()
    assert len(first) < 5_000
    assert len(second) < 20_000
    assert json.loads(first)["data"]["observation"]["stdout"].endswith("(1000000 characters)")
    assert json.loads(second)["data"]["truncated"] > 16_000


def test_secrets_do_not_reach_the_log(path: Path) -> None:
    mine = "correct-horse-battery-staple"
    log = RunLog(path, Redactor({"MY_SERVICE_TOKEN": mine, "HOME": "/home/me", "SHORT_KEY": "abc"}))
    key = "sk-ant-" + "a1B2" * 10
    log.write([turn(1, stdout=f"abc {mine} {key}", **{f"key {mine}": "/home/me"}), turn(2, s="x" * 1_990 + " " + key)])
    reported = (SkillCall(skill=mine, status="success"), SkillCall(skill=key, status="success"))
    for calls in (reported, reported[:1]):
        log.write([event(log.last_seq + 1, EventType.TURN_FINISHED, TurnFinished(turn=3, observation={}, calls=calls))])
    log.close()
    text = path.read_text()
    assert mine not in text
    assert "sk-ant" not in text
    assert "a1B2" not in text
    assert "/home/me" in text
    assert "abc" in text


def test_the_name_of_a_field_tells_that_it_is_secret(path: Path) -> None:
    log = RunLog(path)
    log.write(
        [turn(1, client_secret="abcdefgh12345678ijkl", inner={"api_key": "abcdefgh12345678ijkl", "other": "kept"})]
    )
    log.close()
    assert "abcdefgh12345678" not in path.read_text() and "kept" in path.read_text()


def test_a_full_disk_is_reported_and_leaves_whole_lines(path: Path) -> None:
    log = RunLog(path)
    log.write(a_run(3))
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, hard))
    try:
        with pytest.raises(CodePilotError, match=re.escape(str(path))) as full:
            log.write([turn(4)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert full.value.kind is FailureKind.DISK_FULL
    assert path.read_bytes() == before
    log.write([turn(4)])
    log.close()
    assert seqs(path) == [1, 2, 3, 4]


def test_a_log_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    with pytest.raises(CodePilotError) as refused:
        RunLog(tmp_path / "logs" / "r-1.jsonl")
    assert refused.value.kind is FailureKind.STORE_UNAVAILABLE


def test_times_are_rfc3339() -> None:
    assert rfc3339(0) == "1970-01-01T00:00:00.000Z"
    assert rfc3339(AT) == "2025-10-15T14:23:01.123Z"
