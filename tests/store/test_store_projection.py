"""Whatever a run goes through, its rows and its view are what its log tells."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_runs import draft, new_run, take, turn

from codepilot.core.artifacts import ArtifactRef, ArtifactType, TestResult
from codepilot.core.decide import (
    Failed,
    Outcome,
    Paused,
    Red,
    Refused,
    Skipped,
    Succeeded,
    decide,
    decide_cancel,
    decide_resume,
)
from codepilot.core.events import EventType, GuardrailBlocked, ProofRecorded, Requested, State
from codepilot.core.failures import Failure, FailureKind
from codepilot.store import Store
from codepilot.store.schema import artifacts as artifact_rows

KINDS = sorted(FailureKind)


@pytest.fixture(scope="module")
def shared() -> Iterator[Store]:
    """One store for all examples: each makes a run of its own."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "codepilot.db")
        yield store
        store.close()


def result(signature: str) -> TestResult:
    return TestResult(passed=False, cmd=("pytest",), exit_code=1, failed_tests_after=("t",), signature=signature)


failures = st.builds(
    lambda kind, message: Failure(kind=kind, message=message), st.sampled_from(KINDS), st.sampled_from(["a", "b"])
)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.just(Succeeded()),
    st.just(Succeeded()),
    st.just(Skipped("no such role")),
    st.builds(lambda signature: Red(result(signature)), st.sampled_from(["s1", "s2", "s3"])),
    st.builds(Refused, failures),
    st.builds(Failed, failures),
    st.just(Paused("asked")),
)
moves = st.one_of(
    outcomes,
    st.sampled_from(["crash", "turns", "guard", "proof", "ask_pause", "ask_cancel", "cancel", "many_turns"]),
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(moves, max_size=14))
def test_rows_and_view_are_what_the_log_tells(shared: Store, path: list[Outcome | str]) -> None:
    run_id = new_run(shared)
    for move in path:
        walk(shared, run_id, move)
    shared.check(run_id)
    run = shared.load(run_id)
    row = next(row for row in shared.history(100_000) if row.run_id == run_id)
    assert (row.state, row.verdict, row.updated_at) == (run.state, run.verdict, run.updated_at)
    waiting_or_over = run.terminal or run.state in (State.PAUSED, State.BLOCKED)
    assert (shared.claim_next("w-one", run_id) is None) == waiting_or_over


def walk(store: Store, run_id: str, move: Outcome | str) -> None:
    start = store.claim_next("w-one", run_id)
    if start is None:
        store.control(run_id, decide_resume)
        return
    claim = start.claim
    asked = store.queue.held_claims("w-one")[claim]
    assert (asked.pause, asked.cancel) == (start.run.pause_requested, start.run.cancel_requested)
    assert start.run == store.load(run_id)
    match move:
        case "turns":
            store.append(claim, turn(claim, 1))
        case "many_turns":
            for number in range(34):
                store.append(claim, turn(claim, number))
        case "guard":
            blocked = GuardrailBlocked(skill="run_command", rule="no network", attempt="curl")
            store.append(claim, [draft(claim, EventType.GUARDRAIL_BLOCKED, blocked)])
        case "proof":
            proof = ProofRecorded(ok=True, verdict="plausible", confidence=0.5)
            store.append(claim, [draft(claim, EventType.PROOF_RECORDED, proof)])
        case "ask_pause":
            store.control(run_id, lambda _: [draft(claim, EventType.PAUSE_REQUESTED, Requested())])
        case "ask_cancel":
            store.control(run_id, lambda _: [draft(claim, EventType.CANCEL_REQUESTED, Requested())])
        case "cancel":
            store.control(run_id, decide_cancel)
            return
    if isinstance(move, Red):
        store.append(claim, [draft(claim, EventType.TESTS_JUDGED, move.result)])
    if isinstance(move, str):
        store.release_worker("w-one")
        assert store.reclaim(run_id) == [claim.step_id]
    else:
        store.commit(claim, lambda run: decide(run, move, now=run.updated_at + 1))


def test_an_event_is_read_back_as_it_was_written(store: Store) -> None:
    run_id = new_run(store)
    claim = take(store)
    ref = ArtifactRef(type=ArtifactType.LOG, sha256="ab" * 32, size_bytes=5)
    odd = "naïve \x00 \u2028 \U0001f40d " + "\ud7ff"
    observation = {"stdout": odd, "z": [1, 2.5, None, True, {"b": 1, "a": 2}], "big": 2**60}
    drafts = [item.model_copy(update={"artifacts": (ref, ref)}) for item in turn(claim, 1, odd)]
    finished = drafts[1].model_copy(update={"data": drafts[1].data.model_copy(update={"observation": observation})})
    written = store.append(claim, [drafts[0], finished])
    assert store.events(run_id, after=3) == written
    assert [event.event_id for event in written] == [f"e-{run_id[2:]}-000004", f"e-{run_id[2:]}-000005"]
    with store._database.read() as connection:
        kept = connection.execute(artifact_rows.select()).all()
    assert [(row.seq, row.sha256) for row in kept] == [(4, ref.sha256), (5, ref.sha256)]


def test_a_goal_with_odd_characters_is_kept_whole(store: Store) -> None:
    goal = "fix \x00 'quotes' \" %s ; DROP TABLE runs; \U0001f40d"
    run_id = new_run(store, goal)
    assert store.load(run_id).task.goal.natural == goal
    assert store.history()[0].goal == goal.replace("\x00", "\ufffd")
