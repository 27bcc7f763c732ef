"""The rows that follow from a run's events: approvals, artifacts, memories, and the figures of its iterations."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from raw_sql import raw_sql
from sample_runs import draft, new_run, succeed, take, turn

from codepilot.core.approval import ApprovalDecided, ApprovalRequested
from codepilot.core.artifacts import ArtifactRef, ArtifactType, PatchCandidate, TestResult, TestSummary
from codepilot.core.decide import Paused, Red, decide, decide_resume
from codepilot.core.events import (
    EventType,
    ModelAsked,
    PatchProposed,
    State,
    Usage,
)
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import MemoryRecorded, PatternMemory
from codepilot.store import Claim, Home, Store
from codepilot.telemetry import figures


def asked(claim: Claim, name: str, risk: str = "high") -> object:
    data = ApprovalRequested(approval_id=name, operation="network", details="import \x00 requests", risk=risk)
    return draft(claim, EventType.APPROVAL_REQUESTED, data)


def decided(claim: Claim, name: str, decision: str) -> object:
    data = ApprovalDecided(approval_id=name, decision=decision, by="someone")
    return draft(claim, EventType.APPROVAL_DECIDED, data)


def test_an_approval_is_asked_once_and_answered_once(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    first, second = store.append(claim, [asked(claim, "a-1"), asked(claim, "a-2", "low")])
    assert [row.approval_id for row in store.approvals(waiting=True)] == ["a-1", "a-2"]
    (answer,) = store.control(run_id, lambda _: [decided(claim, "a-1", "always")]).events
    reported = store.approvals(run_id)
    assert [(row.decision, row.decided_by, row.decided_at) for row in reported] == [
        ("always", "someone", answer.at),
        (None, None, None),
    ]
    assert [(row.seq, row.requested_at, row.risk) for row in reported] == [
        (first.seq, first.at, "high"),
        (second.seq, second.at, "low"),
    ]
    assert [row.approval_id for row in store.approvals(waiting=True)] == ["a-2"]
    for again in ("a-1", "a-9"):
        with pytest.raises(CodePilotError, match="not waiting") as refused:
            store.control(run_id, lambda _, again=again: [decided(claim, again, "denied")])
        assert refused.value.kind is FailureKind.INVALID_SPEC
    with pytest.raises(CodePilotError):
        store.append(claim, [asked(claim, "a-1")])
    assert len(store.events(run_id)) == 6
    store.check(run_id)


def test_two_people_who_answer_at_once_are_not_both_received(store: Store) -> None:
    from concurrent.futures import ThreadPoolExecutor

    run_id = new_run(store)
    claim = take(store)
    store.append(claim, [asked(claim, "a-1")])

    def answer(decision: str) -> bool:
        try:
            return bool(store.control(run_id, lambda _: [decided(claim, "a-1", decision)]).events)
        except CodePilotError:
            return False

    with ThreadPoolExecutor(4) as pool:
        received = list(pool.map(answer, ["once", "always", "denied", "once"]))
    assert received.count(True) == 1
    store.check(run_id)


LIES = [
    ("UPDATE approvals SET decision = 'once'", "approvals"),
    ("DELETE FROM approvals", "approvals"),
    ("DELETE FROM artifacts", "artifacts"),
    ("UPDATE artifacts SET size_bytes = 9", "artifacts"),
    ("DELETE FROM memories", "memories"),
    ("UPDATE memories SET repo = 'another'", "memories"),
    ("UPDATE steps SET state = 'TEST'", "steps"),
    ("UPDATE steps SET fence = 0, status = 'SUCCEEDED'", "steps"),
    ("DELETE FROM steps", "steps"),
    ("DELETE FROM views", "no view"),
    ("UPDATE views SET view = '{}'", ""),
    ("UPDATE views SET view = '5'", "view"),
    ("UPDATE runs SET state = 'DONE', verdict = 'confirmed'", "state"),
    ("UPDATE runs SET goal = 'x', repo = 'y', created_at = 1", "goal"),
    ("UPDATE steps SET priority = 9", "priority"),
]


def test_lies_are_found_and_written_anew_from_the_log(place: str, store: Store) -> None:
    other = new_run(store)
    lies = {new_run(store): lie for lie in LIES}
    held = {}
    for run_id in lies:
        claim = held[run_id] = take(store, run_id=run_id)
        ref = ArtifactRef(type=ArtifactType.LOG, sha256="ab" * 32, size_bytes=5)
        store.append(claim, [item.model_copy(update={"artifacts": (ref,)}) for item in turn(claim, 1)])
        learnt = MemoryRecorded(repo="x", language="python", memory=PatternMemory(task="t", solution="s"))
        store.append(claim, [asked(claim, "a-1"), draft(claim, EventType.MEMORY_RECORDED, learnt)])
    assert store.check_all() == {}
    before = {run_id: store.load(run_id) for run_id in lies}
    raw_sql(place, *(f"{lie} WHERE run_id = '{run_id}'" for run_id, (lie, _) in lies.items()))
    problems = store.check_all()
    assert set(problems) == set(lies) and store.repair(problems) == {}
    assert [lie for run_id, (lie, reported) in lies.items() if reported not in problems[run_id]] == []
    assert store.check_all() == {}
    assert {run_id: store.load(run_id) for run_id in lies} == before
    assert {row.goal for row in store.history()} == {run.task.goal.natural for run in before.values()}
    store.reclaim(wait=True)
    for run_id, claim in held.items():
        begun = store.claim_next("w-two", run_id)
        successor = begun.claim if begun else claim
        assert successor == claim or successor.fence > claim.fence, "a claim from before cannot come back"
        store.commit(successor, succeed)
        store.check(run_id)
    store.check(other)


def test_a_log_that_is_damaged_itself_stays_a_problem(place: str, store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    store.append(claim, turn(claim, 1))
    trigger = "events_no_change ON events" if place.startswith("postgresql") else "events_no_delete"
    raw_sql(place, f"DROP TRIGGER {trigger}", "DELETE FROM events WHERE seq = 3")
    assert "event 3 is missing" in store.repair([run_id])[run_id]
    assert "event 3 is missing" in store.check_all()[run_id]


@pytest.mark.parametrize("damage", ["at = 'soon'", "data = '{}'", "attempt = x'00'"])
def test_an_event_that_holds_what_it_cannot_is_named(tmp_path: Path, damage: str) -> None:
    """A database file keeps anything anywhere."""
    place = tmp_path / "codepilot.db"
    store = Store.open(place)
    run_id = new_run(store)
    claim = take(store)
    store.append(claim, turn(claim, 1))
    raw_sql(f"sqlite:///{place}", "DROP TRIGGER events_no_update", f"UPDATE events SET {damage} WHERE seq = 3")
    assert "cannot be read: event 3" in store.check_all()[run_id]
    store.close()


def red(passed: int, failed: tuple[str, ...]) -> TestResult:
    summary = TestSummary(passed=passed, failed=failed)
    return TestResult(passed=not failed, cmd=("x",), exit_code=1, failed_tests_after=failed, summary=summary)


def test_the_figures_of_every_iteration_are_reported(store: Store) -> None:
    run_id = new_run(store)
    ref = ArtifactRef(type=ArtifactType.LOG, sha256="ab" * 32, size_bytes=5)
    for _ in range(3):
        claim = take(store)
        store.append(claim, [*turn(claim, 1)])
        store.commit(claim, succeed)
    for number, failed in enumerate([("t::a", "t::b"), ()]):
        claim = take(store)
        patch = PatchCandidate(diff="", touched_files=(f"f{number}.py", "same.py"), rationale="")
        proposed = PatchProposed(patch=patch, diff=ref, tree="t", snapshot="s")
        store.append(claim, [*turn(claim, 1), draft(claim, EventType.PATCH_PROPOSED, proposed)])
        store.commit(claim, succeed)
        claim = take(store)
        judged = red(8, failed)
        store.append(claim, [draft(claim, EventType.TESTS_JUDGED, judged)])
        if failed:
            store.commit(claim, lambda run, judged=judged: decide(run, Red(judged), now=run.updated_at))
            store.commit(take(store), succeed)
        else:
            store.commit(claim, succeed)
    reported = store.iterations(run_id)
    assert [one.number for one in reported.iterations] == [0, 1, 2]
    assert [[stay.state for stay in one.states] for one in reported.iterations] == [
        [State.INIT, State.MAP_REPO, State.PLAN],
        [State.IMPLEMENT, State.TEST, State.REFLECT],
        [State.IMPLEMENT, State.TEST, State.REVIEW],
    ]
    assert [one.tokens for one in reported.iterations] == [30, 10, 10]
    assert [(one.tests_passed, one.tests_failed, one.pass_rate) for one in reported.iterations] == [
        (None, None, None),
        (8, 2, 0.8),
        (8, 0, 1.0),
    ]
    assert reported.iterations[1].files == ("f0.py", "same.py")
    assert "still fail" in reported.iterations[1].errors[0]
    assert reported.iterations[2].errors == ()
    assert (reported.total_iterations, reported.turns, reported.tokens, reported.success_rate) == (2, 5, 50, 0.5)
    run = store.load(run_id)
    assert reported.total_iterations == run.spent.iterations
    assert reported.duration_sec == pytest.approx(run.spent.wall_us / 1e6, abs=0.01)
    assert all(stay.exited_at for one in reported.iterations for stay in one.states[:-1])
    with pytest.raises(CodePilotError, match="r-none"):
        store.iterations("r-none")


def test_the_figures_need_not_every_event(place: str, home: Home) -> None:
    """A step of a worker that died has worked until its last event, whatever that was."""
    ticks = itertools.count(1_000_000, 1_000_000)
    store = Store.open(place, locks=home.locks, clock=lambda: next(ticks))
    run_id = new_run(store)
    claim = take(store)
    store.append(claim, turn(claim, 1))
    for one in turn(claim, 2):
        store.append(claim, [one])
    unanswered = ModelAsked(model="m", estimate=Usage(turns=1, tokens=700, cost_usd=0.7))
    store.append(claim, [draft(claim, EventType.MODEL_ASKED, unanswered)])
    store.release_worker("w-one")
    store.reclaim(wait=True)
    claim = take(store, "w-two")
    store.append(claim, turn(claim, 3))
    store.commit(claim, lambda run: decide(run, Paused("asked"), now=run.updated_at))
    store.control(run_id, decide_resume)
    store.commit(take(store), succeed)
    claim = take(store)
    store.append(claim, turn(claim, 1))
    reported = store.iterations(run_id)
    assert reported == figures(store.events(run_id))
    assert reported.turns == 4 and reported.duration_sec > 5
    spent = store.load(run_id).spent
    assert (reported.tokens, reported.cost_usd) == (spent.tokens, spent.cost_usd) == (740, 0.704)
    store.close()
