"""Contract locks of runs: a second run waits for the first, or its agent gets a message; the end gives them back."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from engine_kit import APPROVE, CHEAP, CODE, DONE, MAP, PLAN, checkout, code, runtime, until

from codepilot.agents import CodeActAgent
from codepilot.core.events import EventType, State
from codepilot.core.failures import FailureKind
from codepilot.core.interactive import InteractiveSettings
from codepilot.core.run import Run
from codepilot.engine import Request, Runtime, Worker, make_task, submit

__all__ = ["checkout", "runtime"]

FIX = code("write_file('shapes.py', read_file('shapes.py').replace('width + height', 'width * height', 1))")
Conflict = Literal["wait", "tell"]


def fixed(runtime: Runtime, checkout: Path, conflict: Conflict) -> Run:
    task = make_task(Request(repo=str(checkout)), CHEAP)
    run = submit(runtime, task.model_copy(update={"interactive": InteractiveSettings(lock_conflict=conflict)}))
    agent = CodeActAgent(until(MAP, PLAN, FIX, DONE, APPROVE))
    ended = Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
    runtime.store.check(run.run_id)
    return ended


@pytest.mark.parametrize("conflict", ["wait", "tell"])
def test_a_run_that_meets_anothers_lock(runtime: Runtime, checkout: Path, conflict: Conflict) -> None:
    (checkout / "codepilot.toml").write_text('[locks]\nshapes = ["shapes.py"]\n')
    (checkout / "shapes.py").write_text(CODE)
    first = fixed(runtime, checkout, conflict)
    assert first.state is State.DONE and first.base is not None, first.failure
    assert [event.type for event in runtime.store.events(first.run_id)].count(EventType.LOCK_TAKEN) == 1
    assert runtime.store.locks.rows() == []
    other = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    runtime.store.locks.take(first.base.lineage, ["shapes"], other.run_id, 3_600_000_000)
    second = fixed(runtime, checkout, conflict)
    if conflict == "wait":
        assert second.state is State.BLOCKED and second.failure is not None
        assert (second.failure.kind, second.failure.details["holder"]) == (FailureKind.LOCK_HELD, other.run_id)
        assert second.waiting_for is not None and second.waiting_for.kind == "lock"
        assert second.waiting_for.until == second.parked_until is not None
    else:
        assert second.state is not State.DONE
        text = " ".join(str(event.data) for event in runtime.store.events(second.run_id))
        assert "lock_held" in text
