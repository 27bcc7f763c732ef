"""Prometheus metrics of runs and steps."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from codepilot.core.events import (
    TERMINAL,
    WAITING,
    Event,
    GuardrailBlocked,
    RunFinished,
    State,
    StepFailed,
    StepQueued,
    StepSkipped,
    StepSucceeded,
    TurnFinished,
    TurnStarted,
)
from codepilot.core.run import Run
from codepilot.skills.host_call import Caller
from codepilot.telemetry import METRICS

LONG = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)

_runs = METRICS.counter("codepilot_run_total", "Runs that ended.", ["status"])
_first_time = METRICS.gauge(
    "codepilot_pass_at_1_ratio",
    "Share of tasks whose first change was right: of the newest sweep of a set, and of this process's own runs.",
    ["set"],
)
_run_seconds = METRICS.histogram(
    "codepilot_run_duration_seconds", "Time from submission to the end of a run.", buckets=LONG
)
_step_seconds = METRICS.histogram(
    "codepilot_step_duration_seconds", "Time from the start to the end of a step.", ["role", "status"], LONG
)
_retries = METRICS.counter("codepilot_step_retries_total", "Attempts after the first.", ["role"])
_backtracks = METRICS.counter("codepilot_backtrack_total", "Returns to PLAN after red cycles.")
_turns = METRICS.counter("codepilot_agent_turns_total", "Agent turns.", ["role"])
_calls = METRICS.counter(
    "codepilot_tool_calls_total", "Skills and commands called by agents' actions.", ["tool", "status"]
)
_violations = METRICS.counter(
    "codepilot_sandbox_violations_total", "Actions and files refused by policy.", ["violation_type"]
)
SNAPSHOT_SECONDS = METRICS.histogram("codepilot_workspace_snapshot_duration_seconds", "Time to take a snapshot.")

Caller(METRICS)
"""Declares the metrics of skills, so that scrapers see them before the first call."""

OWN_RUNS = "runs"
"""The set of the runs that this process worked on."""


def show_sweeps(ratios: Mapping[str, float]) -> None:
    """Set the pass rates of benchmark sweeps, by set."""
    for name, ratio in ratios.items():
        _first_time.set(ratio, set=name)


def declare() -> None:
    """Begin with zeros where a rate is asked for: a counter that appears with its first count has none yet."""
    for status in _STATUS.values():
        _runs.inc(0, status=status)
    for state in sorted(set(State) - TERMINAL - WAITING):
        _retries.inc(0, role=state)
    for status in ("success", "error", "timeout"):
        _calls.inc(0, tool="run_command", status=status)


_STATUS = {State.DONE: "success", State.FAILED: "failed", State.ABORTED: "aborted"}
_ENDINGS = {StepSucceeded: "succeeded", StepFailed: "failed", StepSkipped: "skipped"}
_COUNTED = frozenset({*_ENDINGS, StepQueued, TurnStarted, TurnFinished, GuardrailBlocked, RunFinished})


def count(run: Run, events: Sequence[Event]) -> None:
    """Count the events; `run` is the run before them."""
    role = str(run.state)
    for event in events:
        if type(event.data) not in _COUNTED:
            continue
        match event.data:
            case StepSucceeded() | StepFailed() | StepSkipped():
                since = run.step_open_since or event.at
                _step_seconds.observe((event.at - since) / 1e6, role=role, status=_ENDINGS[type(event.data)])
            case StepQueued(state=state):
                if event.attempt > 1:
                    _retries.inc(role=str(state))
                if state is State.PLAN and run.state is State.REFLECT:
                    _backtracks.inc()
            case TurnStarted():
                _turns.inc(role=role)
            case TurnFinished(calls=calls):
                for call in calls:
                    _calls.inc(tool=call.skill, status=call.status)
            case GuardrailBlocked(rule=rule):
                _violations.inc(violation_type=rule)
            case RunFinished(state=state):
                _runs.inc(status=_STATUS[state])
                if state in (State.DONE, State.FAILED):
                    _count_first_time(state is State.DONE and run.spent.iterations <= 1)
                _run_seconds.observe((event.at - run.created_at) / 1e6)


_ended = [0, 0]
_guard = threading.Lock()


def _count_first_time(passed: bool) -> None:
    with _guard:
        _ended[0] += passed
        _ended[1] += 1
        _first_time.set(_ended[0] / _ended[1], set=OWN_RUNS)
