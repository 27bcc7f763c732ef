"""What is asked of a run while its worker is about to stop, dead or another's: it holds, and all of it is reported."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from engine_kit import runtime

from codepilot.core.decide import Failed, Outcome, Paused, Succeeded, ask_pause, start
from codepilot.core.events import Event, EventType, State
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import Goal, TaskSpec
from codepilot.engine import Runtime, Worker, pause, resume
from codepilot.engine import worker as corridor
from codepilot.engine.monitor import StopRequested
from codepilot.engine.work import Work
from codepilot.store import StepStatus, new_id

__all__ = ["runtime"]

Step = Callable[[Work], Outcome]


@pytest.fixture
def run_id(runtime: Runtime) -> str:
    task = TaskSpec(task_id=new_id("t-"), goal=Goal(natural="Nothing"), repo="/nowhere", sandbox_level="none")
    run_id = new_id("r-")
    runtime.store.create_run(run_id, start(task, run_id))
    return run_id


@pytest.fixture
def worker(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Callable[[Step], Worker]:
    """A worker whose steps are given; the messages are kept next to it."""

    def make(step: Step, listen: Callable[[Event], None] = lambda event: None) -> Worker:
        monkeypatch.setattr(corridor, "STEPS", dict.fromkeys(State, step))
        return Worker(runtime, listen, agent_for=lambda task: None)  # type: ignore[arg-type,return-value]

    return make


def kinds(runtime: Runtime, run_id: str) -> list[EventType]:
    runtime.store.check(run_id)
    return [event.type for event in runtime.store.events(run_id)]


def until(seen: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_request_that_a_dead_worker_left_holds_before_anything_is_done(
    runtime: Runtime, run_id: str, worker: Callable[[Step], Worker]
) -> None:
    done: list[State] = []

    def step(work: Work) -> Outcome:
        done.append(work.run.state)
        return Failed(Failure(kind=FailureKind.REPO_UNREACHABLE, message="It fails at once."))

    runtime.store.control(run_id, ask_pause)
    assert worker(step).drive(run_id).state is State.PAUSED
    assert done == []
    resume(runtime, run_id)
    assert worker(step).drive(run_id).state is State.FAILED
    assert done == [State.INIT]


def test_a_step_that_ended_after_the_request_is_the_last(
    runtime: Runtime, run_id: str, worker: Callable[[Step], Worker]
) -> None:
    def step(work: Work) -> Outcome:
        if work.run.state is State.MAP_REPO:
            assert pause(runtime, run_id).pause_requested, "it is held, and only asked"
        return Succeeded()

    run = worker(step).drive(run_id)
    assert (run.state, run.resume_state) == (State.PAUSED, State.PLAN)
    assert kinds(runtime, run_id)[-2:] == [EventType.STEP_QUEUED, EventType.RUN_PAUSED]
    resume(runtime, run_id)
    assert worker(lambda work: Succeeded()).drive(run_id).state is State.DONE


def test_a_request_that_is_withdrawn_while_the_step_stops_costs_only_the_step(
    runtime: Runtime, run_id: str, worker: Callable[[Step], Worker]
) -> None:
    tries: list[State] = []

    def step(work: Work) -> Outcome:
        tries.append(work.run.state)
        if len(tries) > 1:
            return Succeeded()
        pause(runtime, run_id)
        try:
            until(lambda: work.step.raise_if_stopped())
        except StopRequested:
            resume(runtime, run_id)
            raise
        return Succeeded()

    assert worker(step).drive(run_id).state is State.DONE
    assert tries[:2] == [State.INIT, State.INIT]
    reported = kinds(runtime, run_id)
    stopped = reported.index(EventType.RUN_PAUSED)
    assert reported[stopped + 1] is EventType.RUN_RESUMED


def test_who_follows_is_shown_what_another_does_once_and_in_order(
    runtime: Runtime, run_id: str, worker: Callable[..., Worker]
) -> None:
    following = threading.Event()

    def step(work: Work) -> Outcome:
        following.wait(30)
        return Paused("enough") if work.run.state is State.PLAN else Succeeded()

    other = threading.Thread(target=worker(step).drive, args=(run_id,))
    other.start()
    until(lambda: runtime.store.steps(run_id)[0].status is StepStatus.RUNNING)
    reported: list[int] = []
    ended: list[Run] = []
    follower = threading.Thread(
        target=lambda: ended.append(worker(step, lambda event: reported.append(event.seq)).drive(run_id, after=0))
    )
    follower.start()
    until(lambda: reported)
    following.set()
    follower.join(30)
    other.join(30)
    assert ended[0] == runtime.store.load(run_id)
    assert ended[0].state is State.PAUSED
    assert reported == [event.seq for event in runtime.store.events(run_id)]


def test_who_follows_goes_on_with_what_the_other_leaves(
    runtime: Runtime, run_id: str, worker: Callable[..., Worker]
) -> None:
    leaving = threading.Event()

    def step(work: Work) -> Outcome:
        if work.run.state is State.MAP_REPO and not leaving.is_set():
            leaving.wait(30)
            until(lambda: work.step.raise_if_stopped())
        return Succeeded()

    first = worker(step)
    other = threading.Thread(target=_work, args=(runtime, first, run_id))
    other.start()
    until(lambda: len(runtime.store.steps(run_id)) == 2)
    reported: list[Event] = []
    follower = threading.Thread(target=lambda: worker(step, reported.append).drive(run_id, after=0))
    follower.start()
    until(lambda: reported)
    first.abort()
    leaving.set()
    follower.join(30)
    other.join(30)
    assert runtime.store.load(run_id).state is State.DONE
    assert reported == runtime.store.events(run_id)
    workers = [event.data.model_dump()["worker"] for event in reported if event.type is EventType.STEP_STARTED]
    assert workers[:2] == [first.name] * 2
    assert first.name not in workers[2:]


def _work(runtime: Runtime, worker: Worker, run_id: str) -> None:
    """As a pool does: a run that was left is not looked at again."""
    with worker.monitor:
        begun = runtime.store.claim_next(worker.name, run_id)
        assert begun is not None
        worker.execute(begun)
