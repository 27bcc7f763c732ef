"""Frames are hostile input: nothing in them can raise, and nothing in them can hide a failure."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.artifacts import TestStatus
from codepilot.executor import CommandResult
from codepilot.project import SuiteRun, suite_from_json, suite_to_json, summarise
from codepilot.project.report import MAX_LINE, parse
from codepilot.project.run import judge

NONCE = "f00d"


def frame(event: str, **fields: Any) -> bytes:
    return f"@codepilot:{NONCE} ".encode() + json.dumps({"event": event, **fields}).encode() + b"\n"


def passed(name: str) -> bytes:
    return frame("test", id=name, outcome="passed", phase="call", duration=0.1)


def failed(name: str, phase: str = "call") -> bytes:
    return frame("test", id=name, outcome="failed", phase=phase, error_type="ValueError", message="no")


def judged(output: bytes, exit_code: int | None = 0, status: str = "ok") -> SuiteRun:
    result = CommandResult.model_validate(
        {"status": status, "exit_code": exit_code, "stdout": b"", "stderr": b"output\xff", "duration_ms": 5.0}
    )
    return judge(result, parse(output, NONCE), ("python",), 1.0)


GREEN = frame("start") + frame("collected", ids=["a", "b"]) + passed("a") + passed("b")
END = frame("end", exit_code=0)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
fields = st.sampled_from(
    ["event", "id", "ids", "outcome", "phase", "message", "duration", "exit_code", "asked", "missing_module"]
)
words = st.sampled_from(
    ["start", "collected", "missing", "resolved", "run", "test", "collect_error", "startup", "end", "passed", "failed"]
)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_without_raising(data: bytes) -> None:
    parse(data, NONCE)
    parse(f"@codepilot:{NONCE} ".encode() + data, NONCE)
    assert judged(data).status == "cannot_start"


@given(st.lists(st.dictionaries(fields, words | json_values, max_size=6), max_size=8), st.sampled_from([0, 1, 5, None]))
def test_any_frames_are_judged_and_can_be_kept(frames: list[dict[str, Any]], exit_code: int | None) -> None:
    lines = [b"@codepilot:" + NONCE.encode() + b" " + json.dumps(one).encode() for one in frames]
    suite = judged(b"\n".join(lines), exit_code)
    assert suite_from_json(suite_to_json(suite)) == suite
    summarise(suite)


@given(st.permutations([passed("a"), failed("a"), passed("a")]), st.integers(0, 1))
def test_a_failure_once_reported_cannot_be_taken_back(reports: list[bytes], exit_code: int) -> None:
    suite = judged(frame("start") + frame("collected", ids=["a"]) + b"".join(reports) + END, exit_code)
    assert suite.red == ("a",)


@given(st.integers(0, len(GREEN + END) - 1))
def test_a_report_cut_anywhere_is_never_a_finished_one(length: int) -> None:
    assert judged((GREEN + END)[: length - 1 if length else 0]).status != "finished"


def test_a_whole_green_report_is_finished() -> None:
    suite = judged(GREEN + END)
    assert suite.status == "finished"
    assert suite.red == ()
    assert suite.collected == ("a", "b")


def test_green_words_with_a_red_exit_code_are_not_believed() -> None:
    assert judged(GREEN + END, exit_code=1).status == "interrupted"
    assert judged(GREEN + frame("end", exit_code=1), exit_code=0).status == "interrupted"


def test_a_collected_test_without_a_result_is_not_passed_over() -> None:
    suite = judged(frame("start") + frame("collected", ids=["a", "b"]) + passed("a") + END)
    assert suite.status == "interrupted"
    assert "b" in suite.message


def test_frames_with_another_nonce_are_only_output() -> None:
    forged = GREEN.replace(NONCE.encode(), b"beef")
    assert parse(forged, NONCE).cases == {}


def test_what_follows_the_end_is_ignored() -> None:
    suite = judged(GREEN + END + failed("late"))
    assert set(suite.cases) == {"a", "b"}


def test_odd_values_are_tamed() -> None:
    line = f'@codepilot:{NONCE} {{"event":"test","id":"a","outcome":"failed","phase":"call","duration":NaN,"extra":[1],'
    line += '"message":"\\ud800\\u0000' + "x" * 50_000 + '"}\n'
    report = parse(line.encode(), NONCE)
    case = report.cases["a"]
    assert case.duration_sec == 0.0
    assert len(case.message) < 20_000
    case.message.encode("utf-8")
    assert "\0" not in case.message


def test_malformed_and_endless_lines_are_skipped_with_a_note() -> None:
    bad = f"@codepilot:{NONCE} ".encode()
    report = parse(
        bad + b"{oops\n" + bad + b"[" * 100_000 + b"\n" + bad + b"9" * MAX_LINE + b"1\n" + GREEN + END, NONCE
    )
    assert set(report.cases) == {"a", "b"}
    assert len(report.notes) == 3


def test_errors_outside_the_call_are_errors() -> None:
    suite = judged(frame("start") + frame("collected", ids=["a", "b"]) + failed("a", "setup") + failed("b") + END, 1)
    assert suite.cases["a"].status is TestStatus.ERROR
    assert suite.cases["b"].status is TestStatus.FAILED


def test_ends_of_the_process_win_over_the_report() -> None:
    assert judged(GREEN + END, None, "timeout").status == "timeout"
    assert judged(GREEN + END, None, "limit").status == "limit"
    assert judged(GREEN + END, None, "interrupted").status == "interrupted"


def test_a_summary_counts_and_names() -> None:
    skipped = frame("test", id="c", outcome="skipped", phase="setup", message="why")
    ids = frame("collected", ids=["a", "b", "c"])
    summary = summarise(judged(frame("start") + ids + passed("a") + failed("b") + skipped + END, 1))
    assert (summary.passed, summary.failed, summary.errors, summary.skipped) == (1, ("b",), (), 1)


def test_signatures_ignore_addresses_only() -> None:
    one = judged(frame("test", id="a", outcome="failed", phase="call", message="<X at 0x7f00aa> is bad")).cases["a"]
    two = judged(frame("test", id="a", outcome="failed", phase="call", message="<X at 0x7f11bb> is bad")).cases["a"]
    other = judged(frame("test", id="a", outcome="failed", phase="call", message="<Y at 0x7f11bb> is bad")).cases["a"]
    assert one.signature == two.signature != other.signature
