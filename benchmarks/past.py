"""The first events of a long run: its base, and iterations whose tests stayed red."""

from __future__ import annotations

from functools import reduce

from codepilot.core.artifacts import ArtifactRef, PatchCandidate, TestResult, TestSummary
from codepilot.core.contract import Contract
from codepilot.core.decide import Outcome, Red, Succeeded, decide, start
from codepilot.core.events import (
    BasePinned,
    Event,
    EventDraft,
    EventType,
    PatchProposed,
    State,
    StepStarted,
    WorkspaceCreated,
)
from codepilot.core.run import Run, evolve, replay
from codepilot.core.task import TaskSpec

ITERATIONS = 4
_TREE = "t" * 40


def past(task: TaskSpec, run_id: str, diff: ArtifactRef) -> list[EventDraft]:
    """Up to where the last iteration's IMPLEMENT is queued; its earlier ones proposed `diff`."""
    drafts = start(task, run_id)
    run = replay(_placed(drafts, run_id, 0))
    while run.spent.iterations < ITERATIONS:
        message = [_draft(run, EventType.STEP_STARTED, StepStarted(worker="w-past", fence=1)), *_work(run, diff)]
        run = _after(run, message)
        ended = decide(run, _outcome(run), now=run.updated_at)
        run = _after(run, ended)
        drafts += message + ended
    return drafts


def _work(run: Run, diff: ArtifactRef) -> list[EventDraft]:
    match run.state:
        case State.INIT:
            pinned = BasePinned(repo_id="x", commit="c" * 40, commit_tree=_TREE, tree=_TREE)
            laid_out = WorkspaceCreated(workspace="w-1", path="/nowhere")
            return [_draft(run, EventType.BASE_PINNED, pinned), _draft(run, EventType.WORKSPACE_CREATED, laid_out)]
        case State.IMPLEMENT:
            patch = PatchCandidate(diff="", touched_files=("a.py", "b.py"), rationale="It should hold now.")
            proposed = PatchProposed(patch=patch, diff=diff, tree=_TREE, snapshot="s-1")
            return [_draft(run, EventType.PATCH_PROPOSED, proposed, diff)]
        case State.TEST:
            return [_draft(run, EventType.TESTS_JUDGED, _red(run))]
        case _:
            return []


def _outcome(run: Run) -> Outcome:
    return Red(_red(run)) if run.state is State.TEST else Succeeded()


def _red(run: Run) -> TestResult:
    failed = tuple(f"tests/test_a.py::test_{number}" for number in range(ITERATIONS - run.spent.iterations + 1))
    summary = TestSummary(passed=400, failed=failed)
    signature = f"{len(failed)} fail"
    return TestResult(
        passed=False, cmd=("pytest",), exit_code=1, failed_tests_after=failed, summary=summary, signature=signature
    )


def _draft(run: Run, kind: EventType, data: Contract, *artifacts: ArtifactRef) -> EventDraft:
    return EventDraft(type=kind, data=data, step_id=run.step_id, attempt=run.attempt, artifacts=artifacts)


def _after(run: Run, drafts: list[EventDraft]) -> Run:
    return reduce(evolve, _placed(drafts, run.run_id, run.last_seq), run)


def _placed(drafts: list[EventDraft], run_id: str, after: int) -> list[Event]:
    return [
        Event.placed(draft, event_id=f"e-{seq}", seq=seq, run_id=run_id, at=seq)
        for seq, draft in enumerate(drafts, start=after + 1)
    ]
