"""A quota that is used up parks the run until it is whole again; a worker goes on by itself, from the last turn."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, DONE, MAP, PLAN, RIGHT, checkout, runtime

from codepilot.agents import CodeActAgent
from codepilot.core.events import EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine import Request, Runtime, Worker, WorkerPool, make_task, resume, submit
from codepilot.models import Reply, ScriptedModel
from codepilot.telemetry import now_us

__all__ = ["checkout", "runtime"]


def quota_before(number: int, seconds: float | None, *script: str) -> tuple[ScriptedModel, list[int]]:
    """A model whose quota is used up before reply `number`, and available again after so many seconds."""
    replies = list(script)
    resets: list[int] = []

    def reply(messages: object) -> str | Reply:
        if len(replies) == len(script) - number and not resets:
            resets.append(now_us() + int((seconds or 0.0) * 1e6))
            message = {} if seconds is None else {"reset_at": resets[0]}
            raise CodePilotError(FailureKind.MODEL_QUOTA, "The quota of scripted is used up.", **message)
        if not replies:
            raise CodePilotError(FailureKind.MODEL_REFUSED, "The script is over.")
        return replies.pop(0)

    return ScriptedModel(reply), resets


def test_a_worker_goes_on_when_the_quota_is_whole_again(runtime: Runtime, checkout: Path) -> None:
    model, resets = quota_before(3, 1.5, MAP, PLAN, RIGHT, DONE, APPROVE)
    agent = CodeActAgent(model)
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    pool = WorkerPool(runtime, Worker(runtime, agent_for=lambda task: agent), concurrency=1)
    working = threading.Thread(target=pool.run)
    working.start()
    try:
        deadline = time.monotonic() + 60
        while not runtime.store.load(run.run_id).terminal and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        pool.stop()
        working.join()
    ended = runtime.store.load(run.run_id)
    assert ended.state is State.DONE
    assert ended.parked_until is None
    events = runtime.store.events(run.run_id)
    blocked = next(event for event in events if event.type is EventType.RUN_BLOCKED)
    resumed = next(event for event in events if event.type is EventType.RUN_RESUMED)
    assert resets[0] <= resumed.at < resets[0] + 5_000_000
    asked = [event for event in events if event.type is EventType.TURN_STARTED and event.step_id == blocked.step_id]
    assert [event.data.model_dump()["turn"] for event in asked] == [1, 2], "the turn before is not repeated"
    assert ended.spent.wall_us < ended.updated_at - ended.created_at - 1_000_000, "parked time is free"
    runtime.store.check(run.run_id)


@pytest.mark.variants
@pytest.mark.parametrize("seconds", [600.0, None])
def test_a_person_need_not_wait(runtime: Runtime, checkout: Path, seconds: float | None) -> None:
    model, resets = quota_before(1, seconds, MAP, PLAN)
    agent = CodeActAgent(model)
    worker = Worker(runtime, agent_for=lambda task: agent)
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    waiting = worker.drive(run.run_id)
    assert waiting.state is State.BLOCKED
    assert waiting.failure is not None
    assert waiting.failure.kind is FailureKind.MODEL_QUOTA
    assert waiting.parked_until == (resets[0] if seconds else None)
    assert runtime.store.due(now_us()) == []
    assert runtime.store.due(now_us() + 700_000_000) == ([run.run_id] if seconds else [])
    resume(runtime, run.run_id)
    assert runtime.store.due(now_us() + 700_000_000) == []
    assert worker.drive(run.run_id).plan is not None, "it goes on with the reply that the quota refused"
    runtime.store.check(run.run_id)
