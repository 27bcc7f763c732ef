"""Runs to store: small drafts and a clock that tests share with the processes they start."""

from __future__ import annotations

from codepilot.core.contract import Contract
from codepilot.core.decide import Succeeded, ask_pause, decide, decide_pause, start
from codepilot.core.events import EventDraft, EventType, TurnFinished, TurnStarted, Usage
from codepilot.core.run import Run
from codepilot.core.task import Goal, TaskSpec
from codepilot.store import Claim, Store, new_id


def task(goal: str = "Make the failing test pass", priority: int = 0) -> TaskSpec:
    return TaskSpec(task_id=new_id("t"), goal=Goal(natural=goal), repo="/somewhere/project", priority=priority)


def new_run(store: Store, goal: str = "Make the failing test pass", priority: int = 0) -> str:
    run_id = new_id("r")
    store.create_run(run_id, start(task(goal, priority), run_id))
    return run_id


def paused_run(store: Store) -> str:
    run_id = new_run(store)
    for asked in (ask_pause, decide_pause):
        store.control(run_id, asked)
    return run_id


def draft(claim: Claim, kind: EventType, data: Contract) -> EventDraft:
    return EventDraft(type=kind, data=data, step_id=claim.step_id, attempt=claim.attempt)


def turn(claim: Claim, number: int, text: str = "fine") -> list[EventDraft]:
    usage = Usage(turns=1, tokens=10, cost_usd=0.001)
    return [
        draft(claim, EventType.TURN_STARTED, TurnStarted(turn=number, action={"tool": "read_file"}, usage=usage)),
        draft(claim, EventType.TURN_FINISHED, TurnFinished(turn=number, observation={"stdout": text})),
    ]


def take(store: Store, worker: str = "w-one", run_id: str | None = None) -> Claim:
    start = store.claim_next(worker, run_id)
    assert start is not None
    return start.claim


def succeed(run: Run) -> list[EventDraft]:
    return decide(run, Succeeded(), now=run.updated_at)
