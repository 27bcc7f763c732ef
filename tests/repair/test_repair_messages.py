"""Whatever a worker inside says, the host reads it or takes the worker for lost; nothing else comes of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping

from hypothesis import given
from hypothesis import strategies as st
from repair_kit import BACKEND, Bench

from codepilot.repair.messages import (
    MAX_NUMBER,
    MAX_TEXT,
    evidence_of,
    results_of,
    trace_of,
)
from codepilot.repair.trial import Trial
from codepilot.sandbox import ProtocolError

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
    "branches",
    "exception",
    "message",
    "frames",
    "examples",
    "examples_held",
    "behaviour",
    *("unchanged", "new_crashes", "new_types", "results"),
)
MESSAGES = st.fixed_dictionaries(
    {}, optional=dict.fromkeys((*NAMES, "unchanged", "new_crashes", "new_types", "results"), ANYTHING)
)
RESULT = st.fixed_dictionaries(
    {"n": ANYTHING, "outcome": st.sampled_from(["passed", "failed"])},
    optional=dict.fromkeys(("test", "kind", "passed", "lines"), ANYTHING),
)


@given(MESSAGES)
def test_traces_and_evidence_are_bounded_or_refused(message: dict[str, object]) -> None:
    with contextlib.suppress(ProtocolError):
        trace = trace_of(message)
        assert 0 <= trace.cpu_sec <= MAX_NUMBER and 0 <= trace.wall_sec <= MAX_NUMBER
        assert all(0 <= line <= MAX_NUMBER for _, line in trace.frames)
        assert all(0 <= line <= MAX_NUMBER for ways in trace.branches.values() for way in ways for line in way)
        assert len(f"{trace.test}{trace.message}".encode()) <= 8 * MAX_TEXT
    with contextlib.suppress(ProtocolError):
        evidence = evidence_of(message, 3)
        assert 0 <= evidence.examples_held <= evidence.examples <= 3
        assert 0 <= evidence.unchanged <= 1 and 0 <= evidence.new_crashes <= 1 and len(evidence.behaviour) <= 64


@given(st.lists(RESULT | ANYTHING))
def test_results_are_bounded_or_refused(results: list[object]) -> None:
    with contextlib.suppress(ProtocolError):
        for one in results_of({"results": results}):
            assert 0 <= one.number <= MAX_NUMBER and len(one.reach) <= 8
            assert all(0 <= place <= MAX_NUMBER for place in one.reach)


def test_more_kept_examples_than_there_are_count_as_all() -> None:
    assert evidence_of({"examples": 1, "examples_held": 1_000_000, "unchanged": 1}, 1).examples_held == 1


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
    with Trial(BACKEND, project.executor, "w", project.project, collected, deadline, lambda: None) as trial:
        trial.start()
        traces = trial.trace(collected)
        assert trial.losses == 3
    assert [trace.test for trace in traces] == ["test_m.py::test_plain"]
