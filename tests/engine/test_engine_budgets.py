"""Budgets of real runs: what a step used in one life is not given back to it in the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_kit import checkout, house

from codepilot.agents import Desk
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.events import EventDraft, EventType, SearchProgressed, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.engine import House, Request, Worker, make_task, request_pause, resume, submit

__all__ = ["checkout", "house"]

WORKED_SEC = 1.5


class TwoLives:
    """Works for a while and is stopped; in its next life it asks what is left."""

    name = "two lives"
    roles = frozenset({State.IMPLEMENT})
    needs = Capability.WRITE_WITH_DIFF

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self.left: list[float] = []

    def perform(self, role: State, desk: Desk) -> PatchCandidate:
        self.left.append(desk.seconds_left())
        if len(self.left) > 1:
            raise CodePilotError(FailureKind.MODEL_REFUSED, "That was all.")
        time.sleep(WORKED_SEC)
        seen = SearchProgressed(position=1, tried=1, plausible=0)
        desk.record(EventDraft(type=EventType.SEARCH_PROGRESSED, data=seen))
        self._stop()
        time.sleep(WORKED_SEC)
        desk.checkpoint()
        raise AssertionError("the step was to stop at its safe point")


@pytest.mark.parametrize("paused", [True, False])
def test_the_time_of_a_step_is_one_budget_for_all_its_lives(house: House, checkout: Path, paused: bool) -> None:
    run = submit(house, make_task(Request(repo=str(checkout), budget={"step_wall_sec": 300, "wall_sec": 9000}), {}))
    agent = TwoLives(lambda: request_pause(house, run.run_id) if paused else first.leave())
    first = Worker(house, agent_for=lambda task: agent)
    if paused:
        assert first.drive(run.run_id).state is State.PAUSED
        resume(house, run.run_id)
    else:
        start = house.store.start(first.name, run.run_id)
        assert start is not None
        first.work_on(start)
        assert house.store.load(run.run_id).state is State.IMPLEMENT
    Worker(house, agent_for=lambda task: agent).drive(run.run_id)
    before, after = agent.left
    assert 250 < before <= 300
    assert after <= before - WORKED_SEC, "what it had used is used"
    house.store.check(run.run_id)
