"""What a fork takes over: whole decisions, nothing that was asked of the old run, and nothing that is its own."""

from __future__ import annotations

import pytest
from run_kit import Log

from codepilot.core.commit import CommitRecorded
from codepilot.core.decide import Failed, Paused, Skipped, Succeeded
from codepilot.core.events import BundleWritten, EventDraft, EventType, Requested, State, WorkspaceCreated
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.fork import fork, taken_over
from codepilot.core.run import Run, replay


def forked(log: Log, at: int) -> tuple[list[EventDraft], Run]:
    drafts = fork(taken_over(log.events, at), "r-2")
    new = Log()
    new.events, new.run = [], None
    new.add(drafts)
    return drafts, replay(new.events)


def finished() -> Log:
    log = Log()
    for outcome in (Succeeded(), Skipped("none"), Skipped("none"), Succeeded(), Succeeded(), Succeeded()):
        log.ends(outcome)
    log.started()
    made = CommitRecorded(checkout="/x", branch="mend", commit="b" * 40, parent="a" * 40)
    log.record(EventType.COMMIT_RECORDED, made)
    log.record(EventType.BUNDLE_WRITTEN, BundleWritten(path="/old", sha256="0" * 64))
    log.add(_ended(log))
    return log


def _ended(log: Log) -> list[EventDraft]:
    from codepilot.core.decide import decide

    return decide(log.now, Succeeded(), log.clock)


def test_every_event_of_a_finished_run_leaves_a_step_to_do() -> None:
    log = finished()
    assert log.now.state is State.DONE
    for at in range(1, len(log.events)):
        drafts, run = forked(log, at)
        steps = [draft.step_id for draft in drafts if draft.type is EventType.STEP_QUEUED]
        closed = {draft.step_id for draft in drafts if draft.type in (EventType.STEP_SUCCEEDED, EventType.STEP_SKIPPED)}
        assert run.step_id == steps[-1], f"a step is queued after event {at}"
        assert run.step_id not in closed
        assert all(step is not None and step.startswith("s-2-") for step in steps)
        assert EventType.BUNDLE_WRITTEN not in {draft.type for draft in drafts}
        assert (run.bundle, run.committed) == (None, None)


def test_a_run_that_ended_says_where_it_can_be_forked() -> None:
    log = finished()
    end = len(log.events)
    for at, reported in ((end, f"Event {end - 1} is the last"), (0, "no event 0"), (end + 1, f"no event {end + 1}")):
        with pytest.raises(CodePilotError, match=reported):
            taken_over(log.events, at)


def test_requests_stay_with_the_old_run() -> None:
    log = Log()
    log.started()
    log.record(EventType.WORKSPACE_CREATED, WorkspaceCreated(workspace="r-1", path="/home/r-1/tree"))
    log.record(EventType.CANCEL_REQUESTED, Requested())
    drafts, run = forked(log, len(log.events))
    assert (run.cancel_requested, run.state) == (False, State.INIT)
    made = next(draft.data for draft in drafts if draft.type is EventType.WORKSPACE_CREATED)
    assert made == WorkspaceCreated(workspace="r-2", path="/home/r-2/tree")


def test_a_paused_run_is_awake_in_its_fork() -> None:
    log = Log()
    log.started()
    log.record(EventType.PAUSE_REQUESTED, Requested())
    log.ends(Paused())
    assert log.now.state is State.PAUSED
    _, run = forked(log, len(log.events))
    assert (run.state, run.pause_requested) == (State.INIT, False)


def test_a_failed_run_is_forked_before_its_last_step_failed() -> None:
    log = Log()
    log.ends(Failed(Failure(kind=FailureKind.NO_TEST_RUNNER, message="no tests")))
    assert log.now.state is State.FAILED
    failed = next(event.seq for event in log.events if event.type is EventType.STEP_FAILED)
    drafts, run = forked(log, failed)
    assert (run.state, run.failure) == (State.INIT, None)
    assert EventType.STEP_FAILED not in {draft.type for draft in drafts}
