"""The store and the state machine together, with a failure at any write: nothing is lost, torn or done twice."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from cutting_proxy import CuttingProxy, Moment
from faulty_disk import Fuse, fail_by
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sample_runs import draft, task, turn

from codepilot.core.artifacts import TestResult
from codepilot.core.decide import Failed, Outcome, Paused, Red, Succeeded, decide, decide_cancel, decide_resume, start
from codepilot.core.events import Event, EventDraft, EventType, Requested, State, StepSucceeded
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Run
from codepilot.store import Claim, LostLease, StepStatus, Store, database, new_id
from servers import PostgresServer

Answer = TypeVar("Answer")
WORKERS = ("w-one", "w-two")
workers = st.sampled_from(WORKERS)
numbers = itertools.count()
outcomes = st.sampled_from(["good", "good", "good", "red", "tool_failed", "auth", "paused"])


def outcome(kind: str, note: str) -> Outcome:
    match kind:
        case "red":
            return Red(TestResult(passed=False, cmd=("x",), exit_code=1, signature=note))
        case "tool_failed":
            return Failed(Failure(kind=FailureKind.TOOL_TIMEOUT, message=note))
        case "auth":
            return Failed(Failure(kind=FailureKind.MODEL_AUTH, message=note))
        case "paused":
            return Paused(note)
        case _:
            return Succeeded(note)


class StoreMachine(RuleBasedStateMachine):
    """Each rule does one thing, perhaps with a failure in it, and goes on from there as a worker that died would.

    Every worker has a store of its own, as if it were a process: closing it is its death.
    """

    open_store: ClassVar[Callable[[], Store]]
    arm: ClassVar[Callable[[Store, object], None]]
    faults: ClassVar[st.SearchStrategy[object]]

    def __init__(self) -> None:
        super().__init__()
        self.stores = {worker: self.opened(worker) for worker in WORKERS}
        self.runs: list[str] = []
        self.claims: dict[str, Claim] = {}
        self.noted: dict[str, str] = {}
        """What was recorded, by what must be found once in the log of which run."""

    @property
    def store(self) -> Store:
        """Anybody's, to look with."""
        return self.stores[WORKERS[0]]

    def opened(self, worker: str) -> Store:
        store = type(self).open_store()
        store.register_worker(worker)
        return store

    def attempt(self, worker: str, fault: object, do: Callable[[Store], Answer]) -> tuple[Answer | None, bool]:
        """What `do` gives, and whether it came to an end; if not, the worker has died of it and come back."""
        store = self.stores[worker]
        if fault is not None:
            type(self).arm(store, fault)
        try:
            return do(store), True
        except LostLease:
            raise
        except CodePilotError as error:
            assert fault is not None, error
            assert error.kind is FailureKind.STORE_UNAVAILABLE, error
            store.close()
            self.stores[worker] = self.opened(worker)
            return None, False
        finally:
            type(self).arm(self.stores[worker], None)

    def insist(self, worker: str, fault: object, do: Callable[[Store], Answer]) -> Answer:
        """What `do` gives, a second time if it has to be."""
        answer, done = self.attempt(worker, fault, do)
        return answer if done else do(self.stores[worker])  # type: ignore[return-value]

    # runs and their steps ---------------------------------------------------------------------------

    @rule(data=st.data(), worker=workers)
    def submit(self, data: st.DataObject, worker: str) -> None:
        run_id = new_id("r")
        drafts = start(task(), run_id)
        self.insist(worker, data.draw(self.faults), lambda store: store.create_run(run_id, drafts))
        assert len(self.store.events(run_id)) == 2
        self.runs.append(run_id)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), worker=workers)
    def take(self, data: st.DataObject, worker: str) -> None:
        if worker in self.claims:
            return
        begun, done = self.attempt(worker, data.draw(self.faults), lambda store: store.claim_next(worker))
        held = self.at_work(worker)
        assert len(held) <= 1
        if done:
            assert ([begun.claim.step_id] if begun else []) == held
        elif held:
            self.let_go(worker)
        if begun is not None:
            self.claims[worker] = begun.claim

    @rule(data=st.data(), worker=workers, many=st.booleans())
    def record(self, data: st.DataObject, worker: str, many: bool) -> None:
        if (claim := self.claims.get(worker)) is None:
            return
        note = f"turn {next(numbers)}"
        drafts = [item for _ in range(40 if many else 0) for item in turn(claim, 1)] + turn(claim, 1, note)
        _, done = self.attempt(worker, data.draw(self.faults), lambda store: store.append(claim, drafts))
        if not done and not self.found(claim.run_id, note):
            self.stores[worker].append(claim, drafts)
        self.noted[note] = claim.run_id

    @rule(data=st.data(), worker=workers, kind=outcomes, go_on=st.booleans())
    def finish(self, data: st.DataObject, worker: str, kind: str, go_on: bool) -> None:
        if (claim := self.claims.pop(worker, None)) is None:
            return
        note = f"outcome {next(numbers)}"

        def decided(run: Run) -> list[EventDraft]:
            return decide(run, outcome(kind, note), now=run.updated_at + 1)

        def write(store: Store) -> Claim | None:
            if go_on:
                following = store.commit(claim, decided, claim_next=True).claimed
                return following.claim if following else None
            store.commit(claim, decided)
            return None

        if kind == "red":
            judged = TestResult(passed=False, cmd=("x",), exit_code=1, signature=note)
            self.stores[worker].append(claim, [draft(claim, EventType.TESTS_JUDGED, judged)])
        before = self.store.load(claim.run_id).last_seq
        following, done = self.attempt(worker, data.draw(self.faults), write)
        if not done:
            try:
                following = write(self.stores[worker])
            except LostLease:
                assert self.store.load(claim.run_id).last_seq > before, "it was lost because it was done"
                if self.at_work(worker):
                    self.let_go(worker)
        if following is not None:
            self.claims[worker] = following
        with pytest.raises(LostLease):
            self.store.commit(claim, decided)
        ends = [e for e in self.store.events(claim.run_id, after=before) if e.step_id == claim.step_id and ended(e)]
        assert len(ends) <= 2, ends
        if kind == "good":
            notes = [e.data.note for e in self.store.events(claim.run_id) if isinstance(e.data, StepSucceeded)]
            assert notes.count(note) == (0 if self.store.load(claim.run_id).state is State.ABORTED else 1)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), worker=workers, kind=st.sampled_from(["pause", "resume", "cancel"]))
    def ask(self, data: st.DataObject, worker: str, kind: str) -> None:
        run_id = data.draw(st.sampled_from(self.runs))
        note = f"asked {next(numbers)}"

        def decided(run: Run) -> list[EventDraft]:
            if kind == "pause" and not run.terminal:
                asked = Requested(reason=note)
                return [EventDraft(type=EventType.PAUSE_REQUESTED, data=asked, step_id=run.step_id)]
            return decide_resume(run) if kind == "resume" else decide_cancel(run) if kind == "cancel" else []

        before = self.store.load(run_id)
        _, done = self.attempt(worker, data.draw(self.faults), lambda store: store.control(run_id, decided))
        if not done:
            added = self.store.events(run_id, after=before.last_seq)
            assert added == [] or len(added) == len(decided(before))
        for holder, claim in list(self.claims.items()):
            if claim.run_id == run_id and self.store.load(run_id).terminal:
                self.is_lost(claim)
                del self.claims[holder]

    # workers ----------------------------------------------------------------------------------------

    @rule(data=st.data(), worker=workers)
    def give_back(self, data: st.DataObject, worker: str) -> None:
        if (claim := self.claims.pop(worker, None)) is not None:
            self.insist(worker, data.draw(self.faults), lambda store: store.give_back(claim))
            self.is_lost(claim)
            assert not self.at_work(worker)

    @rule(data=st.data(), worker=workers, gently=st.booleans())
    def die(self, data: st.DataObject, worker: str, gently: bool) -> None:
        """Or leave in order; the other one then has what it had."""
        other = next(one for one in WORKERS if one != worker)
        claim = self.claims.pop(worker, None)
        if gently:
            with suppress(CodePilotError):
                type(self).arm(self.stores[worker], data.draw(self.faults))
                self.stores[worker].release_worker(worker)
            type(self).arm(self.stores[worker], None)
        self.stores[worker].close()
        deadline = time.monotonic() + 60
        while self.stores[other].queue.alive(worker) and time.monotonic() < deadline:
            time.sleep(0.01)  # a busy server takes a moment to see that a session is over
        reclaimed = self.insist(other, data.draw(self.faults), lambda store: store.reclaim(wait=True))
        assert set(reclaimed) <= ({claim.step_id} if claim else set()), "nobody else's"
        assert not self.stores[other].queue.alive(worker)
        assert not self.at_work(worker)
        if claim is not None:
            self.is_lost(claim)
        self.stores[worker] = self.opened(worker)

    @rule(data=st.data(), worker=workers)
    def live(self, data: st.DataObject, worker: str) -> None:
        """A worker that says so keeps what it has."""
        self.insist(worker, data.draw(self.faults), lambda store: store.register_worker(worker))
        self.insist(worker, data.draw(self.faults), lambda store: store.beat(worker))
        assert self.insist(worker, data.draw(self.faults), lambda store: store.reclaim(wait=True)) == []

    # views ------------------------------------------------------------------------------------------

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), worker=workers)
    def rebuild(self, data: st.DataObject, worker: str) -> None:
        """Anyone who has a step keeps it."""
        run_id = data.draw(st.sampled_from(self.runs))
        before = self.store.load(run_id), self.store.steps(run_id)
        self.insist(worker, data.draw(self.faults), lambda store: store.rebuild(run_id))
        assert (self.store.load(run_id), self.store.steps(run_id)) == before

    # what holds -------------------------------------------------------------------------------------

    @invariant()
    def every_run_is_what_its_log_tells(self) -> None:
        for run_id in self.runs[-2:]:
            self.store.check(run_id)

    def teardown(self) -> None:
        assert self.store.check_all() == {}
        for worker, claim in self.claims.items():
            assert self.at_work(worker) == [claim.step_id], "nobody took it from whom it was given to"
        for note, run_id in self.noted.items():
            assert self.found(run_id, note) == 1
        for store in self.stores.values():
            store.close()

    def found(self, run_id: str, note: str) -> int:
        return sum(note == getattr(e.data, "observation", {}).get("stdout") for e in self.store.events(run_id))

    def at_work(self, worker: str) -> list[str]:
        """The steps that the worker has."""
        every = [step for run_id in self.runs for step in self.store.steps(run_id)]
        return [one.step_id for one in every if one.status is StepStatus.RUNNING and one.worker == worker]

    def is_lost(self, claim: Claim) -> None:
        with pytest.raises(LostLease):
            self.store.append(claim, turn(claim, 1))

    def let_go(self, worker: str) -> None:
        """A step that was claimed in a transaction whose end nobody saw comes back by way of its dead worker."""
        (step_id,) = self.at_work(worker)
        store = self.stores[worker]
        store.release_worker(worker)
        assert store.reclaim(wait=True) == [step_id]
        store.register_worker(worker)


def ended(event: Event) -> bool:
    return event.type.value.startswith(("step_succeeded", "step_failed", "run_paused", "run_blocked", "run_finished"))


@pytest.mark.slow
def test_on_sqlite_a_failure_at_any_statement_loses_nothing() -> None:
    fuse = Fuse()
    folder = Path(tempfile.mkdtemp())
    files = itertools.count()

    class OnSqlite(StoreMachine):
        faults = st.none() | st.integers(0, 5) | st.integers(0, 24)

        def __init__(self) -> None:
            self.file = folder / f"{next(files)}" / "codepilot.db"
            type(self).open_store = self.open_faulty
            super().__init__()

        def open_faulty(self) -> Store:
            store = Store.open(self.file)
            fail_by(store, fuse)
            return store

        @staticmethod
        def arm(_: Store, fault: object) -> None:
            fuse.left = fault if isinstance(fault, int) else None

    run_state_machine_as_test(
        OnSqlite,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    shutil.rmtree(folder)
    assert fuse.blown > 30
    assert fuse.written <= fuse.guarded, "a write got past the fuse"


@pytest.mark.slow
def test_on_postgres_a_wire_that_is_cut_anywhere_loses_nothing(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxied: CuttingProxy
) -> None:
    monkeypatch.setattr(database, "RETRY_SEC", 0.02)
    cuts: list[list[Moment]] = [["before"], ["after"], ["before", "before"], ["after", "before"], [0], [1], [2], [1, 1]]

    class OnPostgres(StoreMachine):
        faults = st.none() | st.sampled_from(cuts)

        def __init__(self) -> None:
            place = postgres.store().replace(str(postgres.directory), str(tmp_path))
            type(self).open_store = lambda: Store.open(place)
            super().__init__()

        @staticmethod
        def arm(_: Store, fault: object) -> None:
            proxied.cut(*(fault if isinstance(fault, list) else []))

    run_state_machine_as_test(
        OnPostgres,
        settings=settings(
            max_examples=4,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert proxied.cuts > 2


@pytest.fixture
def proxied(tmp_path: Path, postgres: PostgresServer) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(tmp_path, postgres.directory)
    yield proxy
    proxy.close()
