"""The monitor stops what must stop, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from slots_kit import at_work, ended, submitted

from codepilot.core.decide import Failed, Outcome, Succeeded, decide, start
from codepilot.core.events import EventType, State
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.task import Budget, Goal, TaskSpec
from codepilot.engine import Runtime, cancel, steps
from codepilot.engine import monitor as monitoring
from codepilot.engine.monitor import OpenStep, StepMonitor
from codepilot.engine.work import Work
from codepilot.store import Claim, ClaimedStep, Requests, Store, new_id
from codepilot.store.faults import Interrupted
from no_room import no_room_for


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "codepilot.db")
    yield opened
    opened.close()


def begun(store: Store, **budget: float) -> ClaimedStep:
    run_id = new_id("r")
    task = TaskSpec(
        task_id=new_id("t"), goal=Goal(natural="x"), repo="/somewhere", budget=Budget.model_validate(budget)
    )
    store.create_run(run_id, start(task, run_id))
    found = store.claim_next("w-one", run_id)
    assert found is not None
    return found


def step_of(store: Store, started: ClaimedStep, interrupted: threading.Event) -> OpenStep:
    return OpenStep(store, started.run, started.claim, interrupted.set, threading.Event(), pause_interrupts=True)


@contextmanager
def watched(store: Store, step: OpenStep) -> Iterator[None]:
    with StepMonitor(store, step.claim.worker) as monitor:
        monitor.hold(step.claim)
        with monitor.watching(step):
            yield
        monitor.let_go()


def test_requests_are_noticed_within_a_second() -> None:
    """A request may come right after a look, and a busy machine may be late for one."""
    assert 2 * monitoring.POLL_SEC < 1


def test_a_step_that_ended_while_it_was_looked_at_interrupts_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step's executor belongs to the next step of the run by then."""
    interrupted, looking, over = threading.Event(), threading.Event(), threading.Event()
    really = store.queue.held_claims

    def standing(worker: str) -> dict[Claim, Requests]:
        looking.set()
        over.wait(10)
        return really(worker)

    monkeypatch.setattr(store.queue, "held_claims", standing)
    started = begun(store)
    with StepMonitor(store, started.claim.worker) as monitor:
        monitor.hold(started.claim)
        with monitor.watching(step_of(store, started, interrupted)):
            assert looking.wait(10)
        written = store.commit(started.claim, lambda run: decide(run, Succeeded(), run.updated_at), claim_next=True)
        events, following = written.events, written.claimed
        assert events[0].type is EventType.STEP_SUCCEEDED
        assert following is not None
        monitor.hold(following.claim)
        over.set()
        assert not interrupted.wait(1.0)
        monitor.let_go()


def test_a_spent_budget_is_noticed_while_the_store_is_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(worker: str) -> dict[Claim, Requests]:
        raise Interrupted(FailureKind.STORE_UNAVAILABLE, "The server is away.")

    interrupted = threading.Event()
    started = begun(store, step_wall_sec=1, wall_sec=60)
    monkeypatch.setattr(store.queue, "held_claims", away)
    step = step_of(store, started, interrupted)
    with watched(store, step):
        assert interrupted.wait(5)
    assert step.spent is not None


def test_an_interruption_is_over_before_the_next_step_begins(store: Store) -> None:
    done: list[float] = []

    def slow() -> None:
        time.sleep(0.3)
        done.append(time.monotonic())

    started = begun(store)
    step = OpenStep(store, started.run, started.claim, slow, threading.Event(), pause_interrupts=True)
    with watched(store, step):
        step.cancelled = True
        step.interrupt_if_stopped()
    left = time.monotonic()
    assert done
    assert done[0] <= left


def test_a_step_that_was_interrupted_for_a_pause_stops_even_if_nobody_asks_for_it_any_more(store: Store) -> None:
    """What was interrupted has failed, and must not be judged."""
    interrupted = threading.Event()
    started = begun(store)
    step = step_of(store, started, interrupted)
    step.update({started.claim: Requests(pause=True, cancel=False)})
    step.update({started.claim: Requests(pause=False, cancel=False)})
    assert not step.stopped, "nothing was interrupted yet"
    step.update({started.claim: Requests(pause=True, cancel=False)})
    step.interrupt_if_stopped()
    step.update({started.claim: Requests(pause=False, cancel=False)})
    assert interrupted.wait(10)
    assert step.stopped


def test_a_step_is_interrupted_even_if_no_thread_can_be_started(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    refused, interrupted = no_room_for("interrupt", monkeypatch), threading.Event()
    with watched(store, step_of(store, begun(store, step_wall_sec=1, wall_sec=60), interrupted)):
        assert interrupted.wait(10)
    assert refused


def test_a_step_that_is_stuck_is_not_waited_for(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it hangs in; what it does afterwards has no effect."""
    at_it, go_on = threading.Event(), threading.Event()

    def hang(work: Work) -> Outcome:
        at_it.set()
        go_on.wait(100)
        return Succeeded()

    monkeypatch.setattr(monitoring, "STUCK_POLLS", 2)
    monkeypatch.setitem(steps.STEPS, State.INIT, hang)
    run_id = submitted(runtime)
    with at_work(runtime):
        try:
            assert at_it.wait(60)
            cancel(runtime, run_id)
            assert ended(runtime, run_id).state is State.ABORTED
            reported = runtime.store.events(run_id)
        finally:
            go_on.set()
    assert runtime.store.events(run_id) == reported
    runtime.store.check(run_id)


def test_a_stuck_slot_is_replaced(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker has another slot in its place, and ends without it."""
    at_it, go_on = threading.Event(), threading.Event()

    def hang(work: Work) -> Outcome:
        if work.run.run_id == stuck:
            at_it.set()
            go_on.wait(100)
        return Failed(Failure(kind=FailureKind.REPO_UNREACHABLE, message="there is no such repository"))

    monkeypatch.setattr(monitoring, "STUCK_POLLS", 2)
    monkeypatch.setitem(steps.STEPS, State.INIT, hang)
    stuck = submitted(runtime)
    try:
        with at_work(runtime, concurrency=1):
            assert at_it.wait(60)
            cancel(runtime, stuck)
            assert ended(runtime, submitted(runtime)).state is State.FAILED
        assert runtime.store.load(stuck).state is State.ABORTED
    finally:
        go_on.set()
        for thread in threading.enumerate():
            if thread.name == f"slot-{stuck}":
                thread.join(60)


def test_a_run_without_a_thread_is_claimed_again(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = no_room_for("slot-", monkeypatch)
    run_id = submitted(runtime)
    with at_work(runtime):
        assert ended(runtime, run_id).state is State.FAILED, "there is no such repository"
    assert refused
