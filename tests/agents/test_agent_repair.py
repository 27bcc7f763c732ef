from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from codepilot.agents import RepairAgent
from codepilot.core.artifacts import ArtifactRef, ArtifactType, PatchCandidate
from codepilot.core.events import Event, EventDraft, EventType, PatchProposed, SearchProgressed, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.repair import Candidate, Progress, SearchRequest, SearchResult

if TYPE_CHECKING:
    from conftest import Harness

PATH = "shop/price.py"


class Crash(Exception):
    """Stands for a killed worker."""


def never(request: SearchRequest) -> SearchResult:
    raise AssertionError("nothing should be searched")


def finds(*replacements: tuple[str, str], tried: int = 3) -> object:
    """A search that offers the file with these replacements, for what its own tests do not cover."""

    def search(request: SearchRequest) -> SearchResult:
        original = request.executor.read_file(request.workspace, PATH)
        offered = [original.replace(old.encode(), new.encode()) for old, new in replacements]
        kept = [patched for patched in offered if patched not in request.refused]
        return SearchResult(
            candidates=tuple(
                Candidate(PATH, original, patched, "constant", f"candidate {harness}", 0.5, harness)
                for harness, patched in enumerate(kept)
            ),
            tried=tried,
            exhausted=True,
            seconds=1.0,
        )

    return search


def test_the_search_repairs_a_bug_and_the_workspace_holds_it(harness: Harness) -> None:
    patch = RepairAgent().perform(State.IMPLEMENT, harness.context())
    assert isinstance(patch, PatchCandidate)
    assert patch.touched_files == (PATH,)
    assert patch.rationale
    assert 0.0 <= patch.confidence <= 1.0
    assert len(patch.alternatives) <= 5
    assert harness.passes()
    assert harness.patch().startswith("diff --git a/shop/price.py b/shop/price.py")
    kinds = [event.type for event in harness.events]
    assert kinds[-2:] == [EventType.TURN_STARTED, EventType.TURN_FINISHED]
    assert EventType.SEARCH_PROGRESSED in kinds
    assert harness.run.spent.turns == 1
    first = harness.patch()
    harness.rewind()
    harness.run = harness.run.model_copy(update={"attempted": (patch.model_copy(update={"diff": first}),)})
    harness.events = []
    try:
        RepairAgent().perform(State.IMPLEMENT, harness.context())
        assert harness.patch() not in ("", first)
    except CodePilotError as error:
        assert error.kind is FailureKind.STUCK


def test_what_was_turned_down_is_not_offered_again(harness: Harness) -> None:
    first = ("// 10", "// 100")
    agent = RepairAgent(search=finds(first, ("* discount", "* 0")))  # type: ignore[arg-type]
    agent.perform(State.IMPLEMENT, harness.context())
    offered = PatchCandidate(diff=harness.patch(), touched_files=(PATH,), rationale="r")
    harness.rewind()
    harness.run = harness.run.model_copy(update={"attempted": (offered,)})
    harness.events = []
    second = agent.perform(State.IMPLEMENT, harness.context())
    assert second.rationale == "candidate 0"
    assert "// 100" not in harness.text(PATH)
    assert "* 0" in harness.text(PATH)


def test_a_search_that_ignores_refusals_is_held_to_them(harness: Harness) -> None:
    stubborn = finds(("// 10", "// 100"))
    agent = RepairAgent(search=lambda request: stubborn(replace(request, refused=())))  # type: ignore[operator]
    agent.perform(State.IMPLEMENT, harness.context())
    offered = PatchCandidate(diff=harness.patch(), touched_files=(PATH,), rationale="r")
    harness.rewind()
    harness.run = harness.run.model_copy(update={"attempted": (offered,)})
    harness.events = []
    with pytest.raises(CodePilotError, match="1 earlier repair was turned down"):
        agent.perform(State.IMPLEMENT, harness.context())


def test_nothing_found_says_how_far_the_search_came(harness: Harness) -> None:
    with pytest.raises(CodePilotError, match="No repair found: 42 candidates tried in 1 s; nothing was left") as caught:
        RepairAgent(search=finds(tried=42)).perform(State.IMPLEMENT, harness.context())  # type: ignore[arg-type]
    assert caught.value.kind is FailureKind.STUCK
    assert caught.value.failure.details == {"tried": 42, "exhausted": True}
    assert "The test fails with AssertionError" in caught.value.failure.message
    assert "--prompt" not in caught.value.failure.advice and "codepilot fix --all" in caught.value.failure.advice


def out_of_time(request: SearchRequest) -> SearchResult:
    return SearchResult((), tried=42, exhausted=False, seconds=51.0, reason="the time was used up")


@pytest.mark.parametrize(
    ("budget", "name", "limit"),
    [
        ({"wall_sec": 1000.0, "step_wall_sec": 90.0}, "step_wall_sec", 90.0),
        ({"wall_sec": 80.0, "step_wall_sec": 90.0}, "wall_sec", 80.0),
    ],
)
def test_time_that_ran_out_is_a_spent_budget(
    harness: Harness, budget: dict[str, float], name: str, limit: float
) -> None:
    with pytest.raises(CodePilotError) as caught:
        RepairAgent(search=out_of_time).perform(State.IMPLEMENT, harness.context(**budget))
    failure = caught.value.failure
    assert failure.kind is FailureKind.BUDGET_EXCEEDED
    assert (
        f"in the 51 s that the search had: 42 candidates tried; {limit - 60:.0f} s of the budget {name}="
        in failure.message
    )
    assert failure.details == {"budget": name, "used": limit - 60.0, "limit": limit}
    assert "42 candidates" in failure.advice and "codepilot resume" in failure.advice


def test_a_granted_budget_counts_for_the_run_and_not_for_the_step(harness: Harness) -> None:
    spent = harness.run.spent.model_copy(update={"wall_us": 100_000_000})
    harness.run = harness.run.model_copy(update={"grants": 2, "spent": spent})
    for step, name, limit in ((150.0, "wall_sec", 200.0), (95.0, "step_wall_sec", 95.0)):
        with pytest.raises(CodePilotError) as caught:
            RepairAgent(search=out_of_time).perform(
                State.IMPLEMENT, harness.context(wall_sec=100.0, step_wall_sec=step)
            )
        assert caught.value.failure.details == {"budget": name, "used": limit - 60.0, "limit": limit}


@pytest.mark.parametrize(("suite_sec", "at_most"), [(1.0, 170.0), (15.0, 110.0), (100.0, 100.0)])
def test_a_search_leaves_a_slow_suite_the_time_to_prove_what_is_found(
    harness: Harness, suite_sec: float, at_most: float
) -> None:
    asked: list[SearchRequest] = []

    def spend(request: SearchRequest) -> SearchResult:
        asked.append(request)
        return out_of_time(request)

    context = harness.context(wall_sec=200.0, step_wall_sec=500.0)
    context = replace(context, baseline=replace(context.baseline, duration_sec=suite_sec))
    context = replace(context, seconds_left=lambda: 200.0)
    with pytest.raises(CodePilotError):
        RepairAgent(search=spend).perform(State.IMPLEMENT, context)
    assert asked[0].seconds == at_most


def test_alternatives_are_readable_diffs(harness: Harness) -> None:
    agent = RepairAgent(search=finds(("// 10", "// 100"), ("amount = 0", "amount = 1")))  # type: ignore[arg-type]
    patch = agent.perform(State.IMPLEMENT, harness.context())
    assert len(patch.alternatives) == 1
    assert "-    amount = 0\n+    amount = 1\n" in patch.alternatives[0]


def test_bytes_are_written_exactly(harness: Harness) -> None:
    odd = b"# caf\xe9\r\nx = 1\r\nno newline"

    def search(request: SearchRequest) -> SearchResult:
        original = request.executor.read_file(request.workspace, PATH)
        return SearchResult((Candidate(PATH, original, odd, "t", "r", 7.0, 0),), 1, True, 0.1)

    patch = RepairAgent(search=search).perform(State.IMPLEMENT, harness.context())
    assert harness.executor.read_file(harness.workspace, PATH) == odd
    assert patch.confidence == 1.0


@pytest.mark.parametrize("lost", [EventType.TURN_STARTED, EventType.TURN_FINISHED])
def test_a_choice_survives_a_crash_and_is_carried_out_once(harness: Harness, lost: EventType) -> None:
    def die(draft: EventDraft) -> None:
        if draft.type is lost:
            raise Crash

    found = finds(("// 10", "// 100"))
    harness.on_record = die
    with pytest.raises(Crash):
        RepairAgent(search=found).perform(State.IMPLEMENT, harness.context())  # type: ignore[arg-type]
    harness.on_record = lambda draft: None
    harness.rewind()
    again = found if lost is EventType.TURN_STARTED else never
    patch = RepairAgent(search=again).perform(State.IMPLEMENT, harness.context())  # type: ignore[arg-type]
    assert patch.rationale == "candidate 0"
    assert harness.passes()
    assert len(harness.of(EventType.TURN_STARTED)) == len(harness.of(EventType.TURN_FINISHED)) == 1


def test_a_finished_turn_whose_files_were_put_back_is_written_again(harness: Harness) -> None:
    RepairAgent(search=finds(("// 10", "// 100"))).perform(State.IMPLEMENT, harness.context())  # type: ignore[arg-type]
    harness.rewind()
    RepairAgent(search=never).perform(State.IMPLEMENT, harness.context())
    assert "// 100" in harness.text(PATH)
    assert len(harness.of(EventType.TURN_FINISHED)) == 1


def test_progress_is_recorded_for_each_new_find_and_the_search_goes_on_from_it(harness: Harness) -> None:
    states: list[object] = []

    def search(request: SearchRequest) -> SearchResult:
        states.append(request.state)
        for plausible in (0, 1, 1, 2):
            request.on_progress(Progress(plausible, 10, plausible, 5.0, "best", "search", {"position": plausible}))
        raise Crash

    for _ in range(2):
        with pytest.raises(Crash):
            RepairAgent(search=search).perform(State.IMPLEMENT, harness.context())
    seen = [event.data.plausible for event in harness.events if isinstance(event.data, SearchProgressed)]
    assert seen == [1, 2, 1, 2]
    assert states == [{}, {"position": 2}]


@pytest.mark.parametrize(
    ("own", "earlier", "expected"),
    [
        ([], [], {}),
        ([], [1, 2], {"position": 2}),
        ([3], [1, 2], {"position": 3}),
        ([], [1, "patch"], {"position": 1}),
        ([], [1, "patch", 2], {"position": 2}),
        ([3], [1, "patch"], {"position": 3}),
    ],
)
def test_a_resumed_search_goes_on_where_an_earlier_step_left_it(
    harness: Harness, own: list[int | str], earlier: list[int | str], expected: dict[str, int]
) -> None:
    def logged(marks: list[int | str]) -> tuple[Event, ...]:
        harness.events = []
        for mark in marks:
            harness.record(proposal() if isinstance(mark, str) else progress(mark))
        return tuple(harness.events)

    states: list[object] = []

    def search(request: SearchRequest) -> SearchResult:
        states.append(request.state)
        raise Crash

    before = logged(earlier)
    logged(own)
    with pytest.raises(Crash):
        RepairAgent(search=search).perform(State.IMPLEMENT, replace(harness.context(), earlier=before))
    assert states == [expected]


def progress(position: int) -> EventDraft:
    data = SearchProgressed(position=position, tried=position, plausible=0, state={"position": position})
    return EventDraft(type=EventType.SEARCH_PROGRESSED, data=data)


def proposal() -> EventDraft:
    patch = PatchCandidate(diff="", touched_files=(PATH,), rationale="r")
    diff = ArtifactRef(type=ArtifactType.PATCH, sha256="0" * 64, size_bytes=0)
    data = PatchProposed(patch=patch, diff=diff, tree="0" * 64, snapshot="s")
    return EventDraft(type=EventType.PATCH_PROPOSED, data=data)


def test_a_request_to_stop_reaches_the_search(harness: Harness) -> None:
    def raise_if_stopped() -> None:
        raise Crash

    harness.raise_if_stopped = raise_if_stopped
    with pytest.raises(Crash):
        RepairAgent().perform(State.IMPLEMENT, harness.context())
    assert harness.patch() == ""
