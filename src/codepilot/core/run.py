"""The heart: which events follow from an outcome, and what a run looks like after them.

`decide` holds every transition, retry, backtrack, budget stop and termination rule; `evolve` only applies
what was decided. Both are pure: clocks and identities come in through the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from codepilot.core.artifacts import PatchCandidate, Reflection, RepoMap, Review, TestResult
from codepilot.core.contract import Contract
from codepilot.core.events import (
    TERMINAL,
    WAITING,
    BaselineRecorded,
    BasePinned,
    BudgetWarned,
    Event,
    EventDraft,
    EventType,
    GuardrailBlocked,
    PatchProposed,
    PlanCreated,
    ProofRecorded,
    ReflectionRecorded,
    RepoMapped,
    ReviewRecorded,
    RunBlocked,
    RunFinished,
    RunPaused,
    RunResumed,
    SandboxChosen,
    SnapshotTaken,
    State,
    StepFailed,
    StepQueued,
    StepSkipped,
    StepSucceeded,
    TaskSpecRecorded,
    TestsJudged,
    TurnStarted,
    Usage,
    Verdict,
)
from codepilot.core.failures import HANDLING, Failure, FailureKind, Origin
from codepilot.core.plan import Plan
from codepilot.core.task import TaskKind, TaskSpec

MAX_ATTEMPTS = 2
RED_CYCLES_BEFORE_REPLAN = 2
SAME_FAILURE_LIMIT = 3
CRASH_LIMIT = 10
BUILD_WARNING_ITERATION = 12
RESUMABLE = frozenset(
    kind
    for kind, handling in HANDLING.items()
    if handling.origin is Origin.PLATFORM and kind is not FailureKind.CRASH_LOOP
) | {FailureKind.MODEL_BAD_REPLY}
"""Failures of surroundings that may be well again when someone asks for the run to go on."""

BOOKKEEPING = frozenset(
    {
        EventType.STEP_STARTED,
        EventType.SNAPSHOT_RESTORED,
        EventType.SANDBOX_CHOSEN,
        EventType.NETWORK_ALLOWED,
        EventType.WORKSPACE_CREATED,
        EventType.PAUSE_REQUESTED,
        EventType.CANCEL_REQUESTED,
    }
)
"""Events that every start of a step records again: they are no progress."""

NEXT: dict[State, State] = {
    State.INIT: State.MAP_REPO,
    State.MAP_REPO: State.PLAN,
    State.PLAN: State.IMPLEMENT,
    State.IMPLEMENT: State.TEST,
    State.TEST: State.REVIEW,
    State.REFLECT: State.IMPLEMENT,
    State.REVIEW: State.FINALIZE,
    State.FINALIZE: State.DONE,
}


class Spent(Contract):
    """What a run has used. `wall_us` counts only time in which a step was open."""

    iterations: int = 0
    turns: int = 0
    step_turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    wall_us: int = 0


class Run(Contract):
    """One attempt at a task, as its events tell it."""

    run_id: str
    task: TaskSpec
    state: State = State.INIT
    resume_state: State | None = None
    step_id: str | None = None
    attempt: int = 1
    steps_queued: int = 0
    spent: Spent = Spent()
    grants: int = 1
    red_cycles: int = 0
    signatures: tuple[str, ...] = ()
    violations: int = 0
    idle_starts: int = 0
    narrowed: bool = False
    pause_requested: bool = False
    cancel_requested: bool = False
    base: BasePinned | None = None
    base_snapshot: str | None = None
    sandbox_level: str | None = None
    executor: str | None = None
    baseline: BaselineRecorded | None = None
    repo_map: RepoMap | None = None
    plan: Plan | None = None
    proposal: PatchProposed | None = None
    test_result: TestResult | None = None
    reflection: Reflection | None = None
    review: Review | None = None
    proof: ProofRecorded | None = None
    verdict: Verdict | None = None
    confidence: float = 0.0
    bundle: str | None = None
    failure: Failure | None = None
    failures: tuple[Failure, ...] = ()
    attempted: tuple[PatchCandidate, ...] = ()
    created_at: int = 0
    updated_at: int = 0
    step_open_since: int | None = None
    last_seq: int = 0

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL


# What a step reports --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Succeeded:
    """The step did its work; what it produced is already among its events."""

    note: str = ""


@dataclass(frozen=True)
class Skipped:
    """The agent has no such role."""

    reason: str


@dataclass(frozen=True)
class Red:
    """The gates ran and did not hold: an outcome, not a failed attempt."""

    result: TestResult


@dataclass(frozen=True)
class Refused:
    """The review asked for changes, or the proof did not hold."""

    failure: Failure


@dataclass(frozen=True)
class Failed:
    """The step could not do its work."""

    failure: Failure


@dataclass(frozen=True)
class Paused:
    """The step stopped at a safe point because it was asked to."""

    reason: str = ""


Outcome = Succeeded | Skipped | Red | Refused | Failed | Paused


# decide ---------------------------------------------------------------------------------------------


def start(task: TaskSpec, run_id: str) -> list[EventDraft]:
    """The first events of a run."""
    fresh = Run(run_id=run_id, task=task)
    return [
        EventDraft(type=EventType.TASK_SPEC_RECORDED, data=TaskSpecRecorded(task=task)),
        _queue(fresh, State.INIT, "submitted"),
    ]


def decide(run: Run, outcome: Outcome, now: int) -> list[EventDraft]:
    """Everything that follows when the open step of `run` ends with `outcome` at `now`."""
    if run.terminal:
        return []
    run = run.model_copy(update=_close_step(run, now))
    if run.cancel_requested and run.bundle is None:
        return _finish(run, State.ABORTED, cancelled())
    match outcome:
        case Paused(reason):
            return [_draft(run, EventType.RUN_PAUSED, RunPaused(reason=reason))]
        case Succeeded(note):
            done = _draft(run, EventType.STEP_SUCCEEDED, StepSucceeded(state=run.state, note=note))
            return [done, *_advance(run)]
        case Skipped(reason):
            skipped = _draft(run, EventType.STEP_SKIPPED, StepSkipped(state=run.state, reason=reason))
            return [skipped, *_advance(run)]
        case Red(result):
            return _after_red(run, result)
        case Refused(failure):
            ended = _draft(run, EventType.STEP_FAILED, StepFailed(state=run.state, failure=failure))
            return [ended, *_again(run, State.IMPLEMENT, failure)]
        case Failed(failure):
            ended = _draft(run, EventType.STEP_FAILED, StepFailed(state=run.state, failure=failure))
            return [ended, *_after_failure(run, failure)]


def decide_start(run: Run) -> Failure | None:
    """Why the open step may not be started again, if it may not."""
    if run.idle_starts >= CRASH_LIMIT:
        return Failure(
            kind=FailureKind.CRASH_LOOP,
            message=f"The worker died {run.idle_starts} times in {run.state} without recording anything new.",
        )
    return exhausted(run)


def decide_cancel(run: Run) -> list[EventDraft]:
    """Cancel a run that no worker holds."""
    return [] if run.terminal else _finish(run, State.ABORTED, cancelled())


def decide_resume(run: Run) -> list[EventDraft]:
    """Reopen a run that waits, has spent its budget, or met a platform that may be well again."""
    if run.state in WAITING:
        return [_draft(run, EventType.RUN_RESUMED, RunResumed())]
    if run.failure is None or run.resume_state is None:
        return []
    if run.failure.kind is FailureKind.BUDGET_EXCEEDED:
        resumed = _draft(run, EventType.RUN_RESUMED, RunResumed(granted=True))
        return [resumed, _queue(run, run.resume_state, "another budget was granted")]
    if run.failure.kind in RESUMABLE:
        resumed = _draft(run, EventType.RUN_RESUMED, RunResumed())
        return [resumed, _queue(run, run.resume_state, "tried again")]
    return []


def exhausted(run: Run, now: int | None = None) -> Failure | None:
    """The first budget of the run that is spent, if any. `now` also counts the step that is open."""
    budget, spent = run.task.budget, run.spent
    wall_us = spent.wall_us
    if now is not None and run.step_open_since is not None:
        wall_us += max(0, now - run.step_open_since)
    limits: Iterable[tuple[str, float, float | None]] = (
        ("wall_sec", wall_us / 1e6, budget.wall_sec * run.grants),
        ("turns", spent.turns, None if budget.turns is None else budget.turns * run.grants),
        ("tokens", spent.tokens, budget.tokens * run.grants),
        ("cost_usd", spent.cost_usd, budget.cost_usd * run.grants),
    )
    for name, used, limit in limits:
        if limit is not None and (used > limit or used == limit > 0):
            return over_budget(name, used, limit)
    return None


def over_budget(name: str, used: float, limit: float) -> Failure:
    """The failure that says which budget is spent."""
    return Failure(
        kind=FailureKind.BUDGET_EXCEEDED,
        message=f"The run's budget {name}={limit:g} is spent ({used:g} used).",
        details={"budget": name, "used": used, "limit": limit},
    )


def _advance(run: Run) -> list[EventDraft]:
    following = NEXT[run.state]
    if following is State.DONE:
        return _finish(run, State.DONE, None)
    return _enter(run, following, f"after {run.state}")


def _after_red(run: Run, result: TestResult) -> list[EventDraft]:
    failure = Failure(
        kind=FailureKind.TESTS_FAILED,
        message=_red_message(result),
        details={"failed": list(result.failed_tests_after), "regressions": list(result.regressions)},
    )
    ended = _draft(run, EventType.STEP_FAILED, StepFailed(state=run.state, failure=failure))
    same = run.signatures.count(result.signature)
    if result.signature and same >= SAME_FAILURE_LIMIT:
        stopped = Failure(
            kind=FailureKind.REPEATED_FAILURE,
            message=f"The same failure came back {same} times: {failure.message}",
            details=failure.details,
        )
        return [ended, *_finish(run, State.FAILED, stopped)]
    return [ended, *_enter(run, State.REFLECT, failure.message)]


def _red_message(result: TestResult) -> str:
    if result.regressions:
        return f"{len(result.regressions)} test(s) that passed before now fail: {', '.join(result.regressions[:3])}"
    if result.failed_tests_after:
        return f"{len(result.failed_tests_after)} test(s) still fail: {', '.join(result.failed_tests_after[:3])}"
    return "The gates did not hold."


def _after_failure(run: Run, failure: Failure) -> list[EventDraft]:
    kind, handling = failure.kind, failure.handling
    if kind is FailureKind.BUDGET_EXCEEDED or kind is FailureKind.CANCELLED:
        return _finish(run, State.ABORTED, failure)
    if (spent := exhausted(run)) is not None:
        return _finish(run, State.ABORTED, spent)
    if (
        kind is FailureKind.POLICY_VIOLATION
        and run.violations < run.task.policy.violations
        and run.state is not State.INIT
    ):
        return _again(run, State.REFLECT, failure)
    if kind is FailureKind.TOOL_MISSING and run.state not in (State.INIT, State.MAP_REPO):
        return _again(run, State.MAP_REPO, failure)
    if kind is FailureKind.SUITE_TIMEOUT and not run.narrowed and (run.task.tests or run.baseline):
        return [_queue(run, run.state, "the suite took too long: only the named tests from here", narrowed=True)]
    if handling.origin is Origin.PERSON:
        return [_draft(run, EventType.RUN_BLOCKED, RunBlocked(failure=failure))]
    if handling.retryable and run.attempt < MAX_ATTEMPTS:
        return [_queue(run, run.state, failure.message, attempt=run.attempt + 1)]
    if handling.agent_fixable and run.state is State.IMPLEMENT:
        return _again(run, State.REFLECT, failure)
    return _finish(run, State.FAILED, failure)


def _again(run: Run, state: State, failure: Failure) -> list[EventDraft]:
    same = sum(1 for past in run.failures if (past.kind, past.message) == (failure.kind, failure.message))
    if same + 1 >= SAME_FAILURE_LIMIT:
        stopped = Failure(
            kind=FailureKind.REPEATED_FAILURE,
            message=f"The same failure came back {same + 1} times: {failure.message}",
            details=failure.details,
        )
        return _finish(run, State.FAILED, stopped)
    return _enter(run, state, failure.message)


def _enter(run: Run, state: State, reason: str) -> list[EventDraft]:
    """Queue `state`, unless a budget is spent or two red cycles ask for a new plan first."""
    if state is State.IMPLEMENT and run.state is State.REFLECT and _wants_new_plan(run):
        state, reason = State.PLAN, f"{run.red_cycles} red cycles in a row"
    spent = exhausted(run)
    limit = run.task.budget.iterations * run.grants
    if spent is None and state is State.IMPLEMENT and run.spent.iterations >= limit:
        spent = over_budget("iterations", run.spent.iterations, limit)
    if spent is not None:
        return _finish(run, State.ABORTED, spent)
    queued = _queue(run, state, reason)
    upcoming = run.spent.iterations + 1
    if state is State.IMPLEMENT and run.task.kind is TaskKind.BUILD and upcoming == BUILD_WARNING_ITERATION:
        warned = BudgetWarned(budget="iterations", used=upcoming, limit=limit)
        return [_draft(run, EventType.BUDGET_WARNED, warned), queued]
    return [queued]


def _wants_new_plan(run: Run) -> bool:
    if run.red_cycles < RED_CYCLES_BEFORE_REPLAN:
        return False
    repeated = len(run.signatures) != len(set(run.signatures))
    return repeated or run.task.kind is not TaskKind.BUILD


def _queue(run: Run, state: State, reason: str, attempt: int = 1, narrowed: bool = False) -> EventDraft:
    return EventDraft(
        type=EventType.STEP_QUEUED,
        data=StepQueued(state=state, reason=reason, narrowed=run.narrowed or narrowed),
        step_id=run.step_id if attempt > 1 else f"s-{run.run_id.removeprefix('r-')}-{run.steps_queued + 1:04d}",
        attempt=attempt,
    )


def _finish(run: Run, state: State, failure: Failure | None) -> list[EventDraft]:
    return [_draft(run, EventType.RUN_FINISHED, RunFinished(state=state, failure=failure))]


def cancelled() -> Failure:
    """The failure of a run that someone ended."""
    return Failure(kind=FailureKind.CANCELLED, message="The run was cancelled.")


def _draft(run: Run, kind: EventType, data: Contract) -> EventDraft:
    return EventDraft(type=kind, data=data, step_id=run.step_id, attempt=run.attempt)


# evolve ---------------------------------------------------------------------------------------------


def begin(event: Event) -> Run:
    """The run as its first event leaves it."""
    if not isinstance(event.data, TaskSpecRecorded):
        raise ValueError(f"a run begins with {EventType.TASK_SPEC_RECORDED}, not {event.type}")
    return Run(run_id=event.run_id, task=event.data.task, created_at=event.at, updated_at=event.at, last_seq=event.seq)


def evolve(run: Run, event: Event) -> Run:
    """The run after `event`."""
    changes: dict[str, object] = {"updated_at": event.at, "last_seq": event.seq}
    if event.type not in BOOKKEEPING and not (run.state is State.INIT and event.type is EventType.SNAPSHOT_TAKEN):
        changes["idle_starts"] = 0
    changes.update(_changes(run, event))
    return run.model_copy(update=changes)


def replay(events: Sequence[Event]) -> Run:
    """The run that its whole log tells."""
    run = begin(events[0])
    for event in events[1:]:
        run = evolve(run, event)
    return run


def _changes(run: Run, event: Event) -> dict[str, object]:
    data = event.data
    match data:
        case StepQueued():
            return _on_queued(run, event, data)
        case TurnStarted(usage=usage):
            return {"spent": _charge(run.spent, usage)}
        case BasePinned():
            return {"base": data}
        case SandboxChosen(level=level, executor=executor):
            return {"sandbox_level": level, "executor": executor}
        case SnapshotTaken(snapshot=snapshot) if run.state is State.INIT:
            return {"base_snapshot": snapshot}
        case BaselineRecorded():
            return {"baseline": data}
        case RepoMapped(repo_map=repo_map):
            return {"repo_map": repo_map}
        case PlanCreated(plan=plan):
            return {"plan": plan}
        case PatchProposed(patch=patch):
            return {"proposal": data, "attempted": (*run.attempted, patch)}
        case TestsJudged(result=result):
            return _on_judged(run, result)
        case ReflectionRecorded(reflection=reflection):
            return {"reflection": reflection}
        case ReviewRecorded(review=review):
            return {"review": review}
        case ProofRecorded():
            return {"proof": data, "verdict": data.verdict, "confidence": data.confidence}
        case GuardrailBlocked():
            return {"violations": run.violations + 1}
        case StepFailed(failure=failure):
            return {**_close_step(run, event.at), "failures": (*run.failures, failure)}
        case _:
            return _on_control(run, event)


def _on_control(run: Run, event: Event) -> dict[str, object]:
    match event.type, event.data:
        case EventType.STEP_STARTED, _:
            carried = _close_step(run, run.updated_at)
            return {**carried, "step_open_since": event.at, "idle_starts": run.idle_starts + 1}
        case ((EventType.STEP_SUCCEEDED | EventType.STEP_SKIPPED), _):
            return _close_step(run, event.at)
        case EventType.BUNDLE_WRITTEN, data:
            return {"bundle": getattr(data, "path", None)}
        case EventType.PAUSE_REQUESTED, _:
            return {"pause_requested": True}
        case EventType.CANCEL_REQUESTED, _:
            return {"cancel_requested": True}
        case _, RunPaused():
            return {**_close_step(run, event.at), **_wait(run, State.PAUSED), "pause_requested": False}
        case _, RunBlocked(failure=failure):
            return {**_close_step(run, event.at), **_wait(run, State.BLOCKED), "failure": failure}
        case _, RunResumed(granted=granted):
            back = run.resume_state or run.state
            grants = run.grants + (1 if granted else 0)
            return {"state": back, "resume_state": None, "failure": None, "grants": grants, "pause_requested": False}
        case _, RunFinished(state=state, failure=failure):
            resume_state = None if run.state in TERMINAL else run.resume_state or run.state
            return {
                **_close_step(run, event.at),
                "state": state,
                "failure": failure,
                "resume_state": resume_state,
                "pause_requested": False,
                "cancel_requested": False,
            }
        case _:
            return {}


def _on_queued(run: Run, event: Event, data: StepQueued) -> dict[str, object]:
    spent = run.spent.model_copy(update={"step_turns": 0})
    if data.state is State.IMPLEMENT and event.attempt == 1:
        spent = spent.model_copy(update={"iterations": spent.iterations + 1})
    return {
        "state": data.state,
        "step_id": event.step_id,
        "attempt": event.attempt,
        "steps_queued": run.steps_queued + (1 if event.attempt == 1 else 0),
        "red_cycles": 0 if data.state is State.PLAN else run.red_cycles,
        "spent": spent,
        "narrowed": data.narrowed,
    }


def _on_judged(run: Run, result: TestResult) -> dict[str, object]:
    if result.passed:
        return {"test_result": result, "red_cycles": 0}
    return {
        "test_result": result,
        "red_cycles": run.red_cycles + 1,
        "signatures": (*run.signatures, result.signature),
    }


def _wait(run: Run, state: State) -> dict[str, object]:
    return {"state": state, "resume_state": run.resume_state if run.state in WAITING else run.state}


def _charge(spent: Spent, usage: Usage) -> Spent:
    return spent.model_copy(
        update={
            "turns": spent.turns + usage.turns,
            "step_turns": spent.step_turns + usage.turns,
            "tokens": spent.tokens + usage.tokens,
            "cost_usd": spent.cost_usd + usage.cost_usd,
        }
    )


def _close_step(run: Run, until: int) -> dict[str, object]:
    """Charge the open step's time. A step whose worker died is charged up to its last event."""
    if run.step_open_since is None:
        return {}
    wall = max(0, until - run.step_open_since)
    spent = run.spent.model_copy(update={"wall_us": run.spent.wall_us + wall})
    return {"spent": spent, "step_open_since": None}
