"""Artifacts that are away for a while park a run wherever it is; it goes on by itself, and does nothing twice."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, DONE, MAP, PLAN, RIGHT, checkout, until

from codepilot.agents import CodeActAgent
from codepilot.core.events import Event, EventType, RunBlocked, State, StepStarted
from codepilot.core.failures import FailureKind
from codepilot.engine import Request, Runtime, Worker, WorkerPool, make_task, pause, submit
from codepilot.store import new_id
from configured import configured
from servers import PostgresServer, S3Server

__all__ = ["checkout"]

ONCE = (
    EventType.BASELINE_RECORDED,
    EventType.PATCH_PROPOSED,
    EventType.TESTS_JUDGED,
    EventType.REVIEW_RECORDED,
    EventType.PROOF_RECORDED,
    EventType.BUNDLE_WRITTEN,
    EventType.RUN_FINISHED,
)


@pytest.mark.variants
@pytest.mark.parametrize(
    ("breaks", "where"),
    [
        (EventType.TURN_FINISHED, State.IMPLEMENT),
        pytest.param(EventType.PROOF_RECORDED, State.FINALIZE, marks=pytest.mark.slow),
    ],
)
def test_an_outage_of_the_artifacts_parks_the_run_and_loses_nothing(
    tmp_path: Path,
    checkout: Path,
    postgres: PostgresServer,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    breaks: EventType,
    where: State,
) -> None:
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    broken: list[State] = []
    runtime = Runtime.open(
        configured(home=tmp_path / "home", store=postgres.store(), artifacts=f"{s3.url}/outages/{new_id('a')}")
    )
    state = [State.INIT]

    def listen(event: Event) -> None:
        if isinstance(event.data, StepStarted):
            state[0] = runtime.store.load(event.run_id).state
        if event.type is breaks and state[0] is where and not broken:
            broken.append(where)
            s3.stop()

    agent = CodeActAgent(until(MAP, PLAN, RIGHT, DONE, APPROVE))
    with runtime:
        run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
        pool = WorkerPool(runtime, Worker(runtime, listen, agent_for=lambda task: agent), concurrency=1)
        working = threading.Thread(target=pool.run)
        working.start()
        try:
            wait_for(runtime, run.run_id, lambda events: any(isinstance(one.data, RunBlocked) for one in events))
            s3.start()
            wait_for(runtime, run.run_id, lambda events: events[-1].type is EventType.RUN_FINISHED)
        finally:
            pool.stop()
            working.join()
            if s3.process is None:
                s3.start()
        ended, events = runtime.store.load(run.run_id), runtime.store.events(run.run_id)
        assert (ended.state, ended.attempt) == (State.DONE, 1), ended.failure
        assert broken == [where]
        kinds = Counter(event.type for event in events)
        assert {once: kinds[once] for once in ONCE} == dict.fromkeys(ONCE, 1)
        assert (kinds[EventType.TURN_STARTED], kinds[EventType.MEMORY_RECORDED]) == (5, 2)
        blocked = [event.data for event in events if isinstance(event.data, RunBlocked)]
        assert {one.failure.kind for one in blocked} == {FailureKind.ARTIFACT_STORE_UNAVAILABLE}
        assert all(one.until is not None for one in blocked)
        runtime.store.check(run.run_id)
        log = (runtime.home.logs / f"{run.run_id}.jsonl").read_text().splitlines()
        levels = {line["event"]: line["level"] for line in map(json.loads, log)}
        assert levels["run_blocked"] == "WARN"


@pytest.mark.slow
@pytest.mark.parametrize(("pausing", "ends"), [(False, State.DONE), (True, State.PAUSED)])
def test_a_command_waits_for_the_artifacts_unless_it_is_asked_to_pause(
    tmp_path: Path,
    checkout: Path,
    postgres: PostgresServer,
    s3: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    pausing: bool,
    ends: State,
) -> None:
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    reported: list[EventType] = []
    blocked = threading.Event()

    def listen(event: Event) -> None:
        reported.append(event.type)
        if event.type is EventType.RUN_BLOCKED:
            blocked.set()

    runtime = Runtime.open(
        configured(home=tmp_path / "home", store=postgres.store(), artifacts=f"{s3.url}/outages/{new_id('a')}")
    )
    agent = CodeActAgent(until(MAP, PLAN, RIGHT, DONE, APPROVE))
    with runtime, ThreadPoolExecutor(1) as command:
        run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
        s3.stop()
        try:
            driven = command.submit(Worker(runtime, listen, agent_for=lambda task: agent).drive, run.run_id, after=0)
            assert blocked.wait(60)
            if pausing:
                pause(runtime, run.run_id)
        finally:
            s3.start()
        driven.result()
        ended, events = runtime.store.load(run.run_id), runtime.store.events(run.run_id)
        assert ended.state is ends, ended.failure
        if not pausing:
            assert EventType.RUN_RESUMED in reported
            assert reported == [event.type for event in events]


def wait_for(runtime: Runtime, run_id: str, holds: object) -> None:
    deadline = time.monotonic() + 120
    while not holds(runtime.store.events(run_id)):  # type: ignore[operator]
        assert time.monotonic() < deadline, runtime.store.events(run_id)[-3:]
        time.sleep(0.1)
