"""A new run from any point of an old one ends as well as the old one did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_kit import APPROVE, DONE, MAP, PLAN, RIGHT, drive, make_checkout

from codepilot.agents import CodeActAgent
from codepilot.core.events import Event, EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.engine import Runtime, Worker, fork_run
from codepilot.models import ScriptedModel
from configured import configured

EVERYTHING = [MAP, PLAN, RIGHT, DONE, APPROVE]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runtime, Run, list[Event]]]:
    """A run that ended well; nothing is left of its workspace."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CODEPILOT_PROJECT_RUNNER", "unittest")
        root = tmp_path_factory.mktemp("fork")
        with Runtime.open(configured({"CODEPILOT_HOME": str(root / "home")})) as runtime:
            run, events = drive(runtime, make_checkout(root / "shapes"), ScriptedModel(EVERYTHING))
            assert run.state is State.DONE
            yield runtime, run, events


def place(events: list[Event], kind: EventType, which: int = 0) -> int:
    return [event.seq for event in events if event.type is kind][which]


def go_on(runtime: Runtime, run_id: str, replies: list[str]) -> Run:
    model = ScriptedModel(replies)
    ended = Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(run_id)
    runtime.store.check(run_id)
    return ended


@pytest.mark.variants
@pytest.mark.parametrize(
    ("kind", "which", "replies"),
    [
        (EventType.TASK_SPEC_RECORDED, 0, EVERYTHING),
        (EventType.SNAPSHOT_TAKEN, 0, EVERYTHING),  # before the baseline
        (EventType.STEP_SUCCEEDED, 0, EVERYTHING),  # between two steps
        (EventType.TURN_STARTED, 2, [RIGHT, DONE, APPROVE]),  # in the middle of a turn
        (EventType.TURN_FINISHED, 2, [RIGHT, DONE, APPROVE]),  # whose files are gone: its step begins again
        (EventType.PATCH_PROPOSED, 0, [APPROVE]),
        (EventType.REVIEW_RECORDED, 0, []),
        (EventType.BUNDLE_WRITTEN, 0, []),
        (EventType.STEP_SUCCEEDED, -1, []),
    ],
)
def test_a_fork_of_a_finished_run_ends_well(
    finished: tuple[Runtime, Run, list[Event]], kind: EventType, which: int, replies: list[str]
) -> None:
    runtime, old, events = finished
    assert list(runtime.home.workspaces.iterdir()) == [], "nothing is left of its files"
    forked = fork_run(runtime, old.run_id, place(events, kind, which))
    run = go_on(runtime, forked.run_id, replies)
    assert (run.state, run.verdict) == (State.DONE, old.verdict), run.failure
    assert run.proposal is not None
    assert old.proposal is not None
    assert run.proposal.patch.diff == old.proposal.patch.diff
    reported = runtime.store.events(run.run_id)
    assert [event.type for event in reported].count(EventType.BUNDLE_WRITTEN) == 1
    assert run.bundle == str(runtime.home.bundles / run.run_id), "it has a bundle of its own"
    assert runtime.store.events(old.run_id) == events, "the old run is not touched"
    assert list(runtime.home.workspaces.iterdir()) == []


def test_a_fork_goes_on_from_a_turn_whose_files_are_there(runtime: Runtime, checkout: Path) -> None:
    old, events = drive(runtime, checkout, ScriptedModel([MAP, PLAN, RIGHT]))
    assert old.state in (State.FAILED, State.BLOCKED), old.failure
    forked = fork_run(runtime, old.run_id, place(events, EventType.TURN_FINISHED, 2) + 1)
    run = go_on(runtime, forked.run_id, [DONE, APPROVE])
    assert (run.state, run.failure) == (State.DONE, None), "what the turn had written was not written again"


@pytest.mark.variants
def test_what_cannot_be_forked_is_refused_with_a_way_out(finished: tuple[Runtime, Run, list[Event]]) -> None:
    runtime, old, events = finished
    known = len(runtime.store.history())
    end = place(events, EventType.RUN_FINISHED)
    for at, reported in ((0, "There is no event 0"), (999, "There is no event 999"), (end, f"Event {end - 1}")):
        with pytest.raises(CodePilotError, match=reported) as refused:
            fork_run(runtime, old.run_id, at)
        assert refused.value.kind is FailureKind.INVALID_SPEC
        assert "show RUN --events" in refused.value.failure.next_action
    assert len(runtime.store.history()) == known, "a refusal leaves nothing"
