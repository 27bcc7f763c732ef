"""Whatever a worker inside says, the host reads it or takes the worker for lost; nothing else comes of it."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repair_kit import Bench

from codepilot.repair.client import evidence_of, rulings_of, trace_of
from codepilot.repair.trial import Trial
from codepilot.repair.wire import MAX_NUMBER, MAX_TEXT, Garbled, Outflow, message

Open = Callable[[Mapping[str, str | bytes]], Bench]

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -1, float("inf"), float("nan"), 1e308, "\ud800", "x" * 20_000]),
    st.floats(),
    st.text(),
)
ANYTHING = st.recursive(ODD, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
NAMES = (
    "test",
    "outcome",
    "cpu",
    "wall",
    "lines",
    "ways",
    "exception",
    "message",
    "frames",
    "promised",
    "held",
    "behaviour",
)
SAID = st.fixed_dictionaries({}, optional=dict.fromkeys((*NAMES, "kept", "broken", "retyped", "verdicts"), ANYTHING))
VERDICT = st.fixed_dictionaries(
    {"n": ANYTHING, "verdict": st.sampled_from(["passed", "failed"])},
    optional=dict.fromkeys(("test", "kind", "passed", "lines"), ANYTHING),
)


@pytest.mark.parametrize(
    "line", [b"[" * 200_000, b'{"a":' * 200_000, b"1", b"", b'{"a": NaN}', b'{"a": -Infinity}', b"\xff", b"null"]
)
def test_what_is_no_message_is_garbled(line: bytes) -> None:
    with pytest.raises(Garbled):
        message(line)


@given(SAID)
def test_traces_and_evidence_are_bounded_or_garbled(said: dict[str, object]) -> None:
    with contextlib.suppress(Garbled):
        trace = trace_of(said)
        assert 0 <= trace.cpu_sec <= MAX_NUMBER and 0 <= trace.wall_sec <= MAX_NUMBER
        assert all(0 <= line <= MAX_NUMBER for _, line in trace.frames)
        assert all(0 <= line <= MAX_NUMBER for ways in trace.ways.values() for way in ways for line in way)
        assert len(f"{trace.test}{trace.message}".encode()) <= 8 * MAX_TEXT
    with contextlib.suppress(Garbled):
        evidence = evidence_of(said, 3)
        assert 0 <= evidence.held <= evidence.promised <= 3
        assert 0 <= evidence.kept <= 1 and 0 <= evidence.broken <= 1 and len(evidence.behaviour) <= 64


@given(st.lists(VERDICT | ANYTHING))
def test_verdicts_are_bounded_or_garbled(verdicts: list[object]) -> None:
    with contextlib.suppress(Garbled):
        for ruling in rulings_of({"verdicts": verdicts}):
            assert 0 <= ruling.number <= MAX_NUMBER and len(ruling.reach) <= 8
            assert all(0 <= place <= MAX_NUMBER for place in ruling.reach)


def test_more_kept_examples_than_there_are_count_as_all() -> None:
    assert evidence_of({"promised": 1, "held": 1_000_000, "kept": 1}, 1).held == 1


def outflow(lines: int, most: int) -> tuple[Outflow, threading.Event]:
    """What hears a process that says so many lines of 1,000 bytes."""
    reading, writing = os.pipe()
    ended = threading.Event()

    def say() -> None:
        with contextlib.suppress(OSError), os.fdopen(writing, "wb") as out:
            for _ in range(lines):
                out.write(b"x" * 999 + b"\n")

    pipe = os.fdopen(reading, "rb")
    heard = Outflow(pipe, lambda: (pipe.close(), ended.set())[1], most)
    threading.Thread(target=say, daemon=True).start()
    return heard, ended


def test_a_flood_that_nobody_reads_ends_the_worker() -> None:
    heard, ended = outflow(lines=2000, most=100_000)
    assert ended.wait(20) and heard.flooded
    waiting = 0
    while heard.get(5) is not None:
        waiting += 1
    assert waiting == 100


def test_as_much_may_be_said_if_it_is_read() -> None:
    heard, ended = outflow(lines=200, most=400_000)
    read = 0
    with contextlib.suppress(queue.Empty):
        while heard.get(5) is not None:
            read += 1
    assert read == 200 and not heard.flooded and not ended.is_set()


GARBLING = """import sys

SAYS = {
    "test_frames": {"frames": 1},
    "test_huge": {"cpu": 10**400},
    "test_lines": {"lines": {"m.py": "all"}},
}
channel = sys.modules["codepilot_inside.calling"].Channel if "codepilot_inside.calling" in sys.modules else None
if channel:
    send = channel.send

    def garbled(self, **message):
        name = str(message.get("test")).rpartition("::")[2]
        send(self, **{**message, **SAYS.get(name, {})})

    channel.send = garbled
"""


def test_a_project_that_speaks_for_the_worker_gains_nothing(bench: Open) -> None:
    names = ("frames", "huge", "lines", "plain")
    tests = "from m import f\n" + "".join(f"\n\ndef test_{name}():\n    assert f(1) == 1\n" for name in names)
    project = bench({"m.py": "def f(a):\n    return a\n", "test_m.py": tests, "conftest.py": GARBLING})
    collected, deadline = project.baseline.collected, time.monotonic() + 100.0
    with Trial(project.executor, "w", project.project, collected, deadline, lambda: None) as trial:
        trial.start()
        traces = trial.trace(collected)
        assert trial.losses == 3
    assert [trace.test for trace in traces] == ["test_m.py::test_plain"]
