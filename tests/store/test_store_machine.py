"""The store and the state machine together, with a failure at any write: nothing is lost, torn or done twice."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
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
from codepilot.core.events import Event, EventDraft, EventType, Requested, State, StepSucceeded, TestsJudged
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Run
from codepilot.store import Claim, LostLease, StepStatus, Store, new_id, tries
from servers import PostgresServer

Answer = TypeVar("Answer")
WORKER = "w-one"
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
    """Each rule does one thing, perhaps with a failure in it, and goes on from there as a worker that died would."""

    open_store: ClassVar[Callable[[], Store]]
    arm: ClassVar[Callable[[Store, object], None]]
    faults: ClassVar[st.SearchStrategy[object]]

    def __init__(self) -> None:
        super().__init__()
        self.store = self.opened()
        self.runs: list[str] = []
        self.claim: Claim | None = None
        self.said: dict[str, str] = {}
        """What was recorded, by what must be found once in the log of which run."""

    def opened(self) -> Store:
        store = type(self).open_store()
        store.register_worker(WORKER)
        return store

    def attempt(self, fault: object, do: Callable[[], Answer]) -> Answer | None:
        """What `do` gives; None if the failure came through, and then everything is opened anew."""
        if fault is not None:
            type(self).arm(self.store, fault)
        try:
            return do()
        except LostLease:
            raise
        except CodePilotError as error:
            assert fault is not None, error
            assert error.kind is FailureKind.STORE_UNAVAILABLE, error
            self.store.close()
            self.store = self.opened()
            return None
        finally:
            type(self).arm(self.store, None)

    @rule(data=st.data())
    def submit(self, data: st.DataObject) -> None:
        run_id = new_id("r")
        drafts = start(task(), run_id)
        if self.attempt(data.draw(self.faults), lambda: self.store.create_run(run_id, drafts)) is None:
            self.store.create_run(run_id, drafts)
        assert len(self.store.events(run_id)) == 2
        self.runs.append(run_id)

    @precondition(lambda self: self.claim is None and self.runs)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        begun = self.attempt(data.draw(self.faults), lambda: self.store.start(WORKER))
        held = [step for run_id in self.runs for step in self.store.steps(run_id) if step.status is StepStatus.RUNNING]
        assert len(held) <= 1
        if begun is None and held:
            self.store.release_worker(WORKER)
            self.store.register_worker("w-other")
            assert self.store.reclaim(wait=True) == [held[0].step_id]
            self.store.register_worker(WORKER)
            begun = self.store.start(WORKER)
        self.claim = begun.claim if begun else None

    @precondition(lambda self: self.claim is not None)
    @rule(data=st.data(), many=st.booleans())
    def record(self, data: st.DataObject, many: bool) -> None:
        assert self.claim is not None
        claim, note = self.claim, f"turn {next(numbers)}"
        drafts = [item for _ in range(40 if many else 0) for item in turn(claim, 1)] + turn(claim, 1, note)
        known = self.store.load(claim.run_id) if data.draw(st.booleans()) else None
        if self.attempt(
            data.draw(self.faults), lambda: self.store.append(claim, drafts, known)
        ) is None and not self.found(claim.run_id, note):
            self.store.append(claim, drafts)
        self.said[note] = claim.run_id

    @precondition(lambda self: self.claim is not None)
    @rule(data=st.data(), kind=outcomes, go_on=st.booleans())
    def finish(self, data: st.DataObject, kind: str, go_on: bool) -> None:
        assert self.claim is not None
        claim, note = self.claim, f"outcome {next(numbers)}"

        def decided(run: Run) -> list[EventDraft]:
            return decide(run, outcome(kind, note), now=run.updated_at + 1)

        def write() -> Claim | None:
            if go_on:
                following = self.store.commit_and_start(claim, decided)[1]
                return following.claim if following else None
            self.store.commit(claim, decided)
            return None

        if kind == "red":
            judged = TestsJudged(result=TestResult(passed=False, cmd=("x",), exit_code=1, signature=note))
            self.store.append(claim, [draft(claim, EventType.TESTS_JUDGED, judged)])
        before = self.store.load(claim.run_id).last_seq
        fault = data.draw(self.faults)
        opened = self.store
        self.claim = self.attempt(fault, write)
        if self.store is not opened:
            try:
                self.claim = write()
            except LostLease:
                assert self.store.load(claim.run_id).last_seq > before, "it was lost because it was done"
                self.let_go(claim.run_id)
        with pytest.raises(LostLease):
            self.store.commit(claim, decided)
        ends = [e for e in self.store.events(claim.run_id, after=before) if e.step_id == claim.step_id and ended(e)]
        assert len(ends) <= 2, ends
        if kind == "good":
            notes = [e.data.note for e in self.store.events(claim.run_id) if isinstance(e.data, StepSucceeded)]
            assert notes.count(note) == (0 if self.store.load(claim.run_id).state is State.ABORTED else 1)

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), kind=st.sampled_from(["pause", "resume", "cancel"]))
    def ask(self, data: st.DataObject, kind: str) -> None:
        run_id = data.draw(st.sampled_from(self.runs))
        note = f"asked {next(numbers)}"

        def decided(run: Run) -> list[EventDraft]:
            if kind == "pause" and not run.terminal:
                asked = Requested(reason=note)
                return [EventDraft(type=EventType.PAUSE_REQUESTED, data=asked, step_id=run.step_id)]
            return decide_resume(run) if kind == "resume" else decide_cancel(run) if kind == "cancel" else []

        before = self.store.load(run_id)
        if self.attempt(data.draw(self.faults), lambda: self.store.control(run_id, decided)) is None:
            added = self.store.events(run_id, after=before.last_seq)
            assert added == [] or len(added) == len(decided(before))
        if self.claim is not None and self.claim.run_id == run_id and self.store.load(run_id).terminal:
            with pytest.raises(LostLease):
                self.store.append(self.claim, turn(self.claim, 1))
            self.claim = None

    @invariant()
    def every_run_is_what_its_log_tells(self) -> None:
        for run_id in self.runs[-2:]:
            self.store.check(run_id)

    def teardown(self) -> None:
        assert self.store.check_all() == {}
        for note, run_id in self.said.items():
            assert self.found(run_id, note) == 1
        self.store.close()

    def found(self, run_id: str, note: str) -> int:
        return sum(note == getattr(e.data, "observation", {}).get("stdout") for e in self.store.events(run_id))

    def let_go(self, run_id: str) -> None:
        """A step that was claimed in a transaction whose end nobody saw comes back by way of its dead worker."""
        if any(step.status is StepStatus.RUNNING for step in self.store.steps(run_id)):
            self.store.release_worker(WORKER)
            assert self.store.reclaim(run_id, wait=True)
            self.store.register_worker(WORKER)


def ended(event: Event) -> bool:
    return event.type.value.startswith(("step_succeeded", "step_failed", "run_paused", "run_blocked", "run_finished"))


def test_on_sqlite_a_failure_at_any_statement_loses_nothing() -> None:
    fuse = Fuse()
    folder = Path(tempfile.mkdtemp())
    files = itertools.count()

    class OnSqlite(StoreMachine):
        faults = st.none() | st.integers(0, 24)

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
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    shutil.rmtree(folder)
    assert fuse.blown > 20


def test_on_postgres_a_wire_that_is_cut_anywhere_loses_nothing(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxied: CuttingProxy
) -> None:
    monkeypatch.setattr(tries, "PAUSE_SEC", 0.02)
    cuts: list[list[Moment]] = [["before"], ["after"], ["before", "before"], ["after", "before"], [0], [1], [2], [1, 1]]

    class OnPostgres(StoreMachine):
        faults = st.none() | st.sampled_from(cuts)

        def __init__(self) -> None:
            place = postgres.database().replace(str(postgres.directory), str(tmp_path))
            type(self).open_store = lambda: Store.open(place)
            super().__init__()

        @staticmethod
        def arm(_: Store, fault: object) -> None:
            proxied.cut(*(fault if isinstance(fault, list) else []))

    run_state_machine_as_test(
        OnPostgres,
        settings=settings(
            max_examples=6,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert proxied.cuts > 5


@pytest.fixture
def proxied(tmp_path: Path, postgres: PostgresServer) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(tmp_path, postgres.directory)
    yield proxy
    proxy.close()
