"""The state machine: every transition, retry, backtrack, budget stop and termination rule.

A worker runs a step and reports an `Outcome`; `decide` returns the events that follow from it, among them the next
step, and `evolve` in `run.py` applies them. `ask_…` and `decide_…` do the same for the requests of a user. Every
function is pure: the time and the run are arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from codepilot.core.approval import ApprovalDecided, ApprovalRequested, expired, expiry_of
from codepilot.core.artifacts import Gate, TestResult
from codepilot.core.breaker import halts_a_part, tripped
from codepilot.core.checkpoint import MessageSent, ModeChanged
from codepilot.core.contract import Contract
from codepilot.core.events import (
    WAITING,
    BudgetWarned,
    DependencyDegraded,
    EventDraft,
    EventType,
    ModelSwitched,
    Requested,
    RunBlocked,
    RunFinished,
    RunPaused,
    RunResumed,
    State,
    StepFailed,
    StepQueued,
    StepSkipped,
    StepSucceeded,
    TaskSpecRecorded,
)
from codepilot.core.failures import HANDLING, Failure, FailureKind, Origin
from codepilot.core.interactive import ModeSwitch
from codepilot.core.pipeline import pipeline_for, pipeline_of
from codepilot.core.replan import revision
from codepilot.core.run import Run, close_step, without_refused_call
from codepilot.core.spending import exhausted, forbidden_too_often, must_stop, no_iteration_left, total
from codepilot.core.task import TaskSpec

MAX_ATTEMPTS = 2
RED_CYCLES_BEFORE_REPLAN = 2
SAME_FAILURE_LIMIT = 3
CRASH_LIMIT = 10
COMPILER_ERRORS = frozenset({"CompilationError", "SyntaxError", "IndentationError", "TabError"})
LONGEST_BACKOFF_SEC = 60
"""The longest wait of a parked run for which no reset time is known, or whose reset time was wrong."""
OUTAGE_PARKINGS = 60
"""How often an outage of the artifact store parks a run: for most of an hour in all."""
RESUMABLE = frozenset(
    kind
    for kind, handling in HANDLING.items()
    if handling.origin is Origin.PLATFORM and kind is not FailureKind.CRASH_LOOP
) | {FailureKind.MODEL_BAD_REPLY, FailureKind.CONTEXT_EXCEEDED}
"""Failures of the environment, which may have passed when a user resumes the run."""

ENTERING = "entering"
"""The failure detail of a spent budget that names the state which could not be entered. Resuming enters that state: the
step before it was complete."""
NARROWED = "narrowed"
"""The failure detail that keeps `Run.narrowed` for that state."""


# Outcomes of a step ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Succeeded:
    """The step is complete; its results are recorded events."""

    note: str = ""


@dataclass(frozen=True)
class Skipped:
    """The agent does not have the role of this state."""

    reason: str


@dataclass(frozen=True)
class Red:
    """A gate is red. This is a result of the step, not a failed attempt."""

    result: TestResult


@dataclass(frozen=True)
class Refused:
    """The review asked for changes, or the proof did not hold."""

    failure: Failure


@dataclass(frozen=True)
class Failed:
    """The step could not be completed."""

    failure: Failure


@dataclass(frozen=True)
class Paused:
    """The step stopped at a safe point."""

    reason: str = ""
    requested: bool = False
    """True for a pause on request: if the request was withdrawn meanwhile, the run continues."""


ASKED_TO_PAUSE = Paused("asked to pause", requested=True)
LEFT = Paused("its worker stopped", requested=True)
"""The worker stopped in order. Another worker continues the run, unless a pause was requested."""


@dataclass(frozen=True)
class NeedsApproval:
    """The step needs the answer of a person."""

    request: ApprovalRequested


@dataclass(frozen=True)
class AwaitsChildren:
    """The step goes on when child runs have ended; `failure` says why none can go on without a person."""

    children: tuple[str, ...]
    failure: Failure | None = None


Outcome = Succeeded | Skipped | Red | Refused | Failed | Paused | NeedsApproval | AwaitsChildren


# decide ---------------------------------------------------------------------------------------------


def start(task: TaskSpec, run_id: str, by: str = "user") -> list[EventDraft]:
    """Return the first events of a run; raise if its kind of task has no pipeline."""
    pipeline_of(task.kind)
    fresh = Run(run_id=run_id, task=task)
    return [
        EventDraft(type=EventType.TASK_SPEC_RECORDED, data=TaskSpecRecorded(task=task, by=by)),
        _queue(fresh, State.INIT, "submitted"),
    ]


def decide(run: Run, outcome: Outcome, now: int) -> list[EventDraft]:
    """Return the events that follow when the open step of `run` ends with `outcome` at `now`.

    A requested cancel or pause takes effect here, before the next step is queued.
    """
    if run.terminal:
        return []
    if isinstance(outcome, Failed):
        run = without_refused_call(run, outcome.failure)
    run = run.model_copy(update=close_step(run, now))
    if run.cancel_requested and run.bundle is None:
        return _finish(run, State.ABORTED, cancelled())
    following = _following(run, outcome, now)
    last = following[-1]
    if run.pause_requested and last.type is EventType.STEP_QUEUED:
        paused = RunPaused(reason=ASKED_TO_PAUSE.reason)
        return [*following, last.model_copy(update={"type": EventType.RUN_PAUSED, "data": paused})]
    return following


def _following(run: Run, outcome: Outcome, now: int) -> list[EventDraft]:
    """Return what follows from the outcome alone."""
    match outcome:
        case Paused(reason, requested):
            asked = ASKED_TO_PAUSE.reason if run.pause_requested else reason
            paused = _draft(run, EventType.RUN_PAUSED, RunPaused(reason=asked))
            withdrawn = requested and not run.pause_requested
            return [paused, _draft(run, EventType.RUN_RESUMED, RunResumed())] if withdrawn else [paused]
        case Succeeded(note):
            done = _draft(run, EventType.STEP_SUCCEEDED, StepSucceeded(state=run.state, note=note))
            if (too_slow := _suite_cut_short(run)) is not None:
                return [_draft(run, EventType.DEPENDENCY_DEGRADED, too_slow), done, *_advance(_narrowed(run))]
            return [done, *_advance(run)]
        case Skipped(reason):
            skipped = _draft(run, EventType.STEP_SKIPPED, StepSkipped(state=run.state, reason=reason))
            return [skipped, *_advance(run)]
        case Red(result):
            return _after_red(run, result)
        case Refused(failure):
            back = State.PLAN if run.state is State.PLAN else State.IMPLEMENT
            return [_failed(run, failure), *_again(run, back, failure)]
        case Failed(failure):
            return [_failed(run, failure), *_after_failure(run, failure, now)]
        case NeedsApproval(request):
            return _ask_person(run, request)
        case AwaitsChildren(children, waiting):
            if run.pause_requested:
                return [_draft(run, EventType.RUN_PAUSED, RunPaused(reason=ASKED_TO_PAUSE.reason))]
            return [_draft(run, EventType.RUN_BLOCKED, RunBlocked(failure=waiting, children=children))]


def decide_start(run: Run) -> Failed | Paused | None:
    """Return the outcome that ends a step right after its start, or None if the step may run."""
    if run.cancel_requested and run.bundle is None:
        return Failed(cancelled())
    if run.pause_requested:
        return ASKED_TO_PAUSE
    crashes = run.idle_starts - 1
    if crashes >= CRASH_LIMIT:
        message = f"The worker died {crashes} times in {run.state} without recording anything new."
        return Failed(Failure(kind=FailureKind.CRASH_LOOP, message=message))
    return Failed(spent) if (spent := must_stop(run)) is not None else None


def ask_cancel(run: Run, by: str = "user") -> list[EventDraft]:
    """Request that the worker which holds the run ends it."""
    return [] if run.terminal or run.cancel_requested else [_draft(run, EventType.CANCEL_REQUESTED, Requested(by=by))]


def ask_pause(run: Run, by: str = "user") -> list[EventDraft]:
    """Request a pause. A run that waits for no certain time, or is to be cancelled, gets no request."""
    waits = run.state in WAITING and run.parked_until is None and not run.awaits_children
    if run.terminal or waits or run.pause_requested or run.cancel_requested:
        return []
    return [_draft(run, EventType.PAUSE_REQUESTED, Requested(by=by))]


def decide_cancel(run: Run) -> list[EventDraft]:
    """Cancel a run that no worker holds. A run whose bundle is written is DONE, as with a worker."""
    if run.terminal:
        return []
    aborted = run.bundle is None
    ended = RunFinished(
        state=State.ABORTED if aborted else State.DONE, failure=cancelled() if aborted else None, unattended=True
    )
    return [*_undelivered(run), _draft(run, EventType.RUN_FINISHED, ended)]


def decide_pause(run: Run) -> list[EventDraft]:
    """Pause a run that no worker holds, if that is still requested. A requested cancel comes first."""
    if run.cancel_requested:
        return decide_cancel(run)
    paused = RunPaused(reason=ASKED_TO_PAUSE.reason, unattended=True)
    return [_draft(run, EventType.RUN_PAUSED, paused)] if run.pause_requested else []


def decide_resume(
    run: Run, by: str = "user", limits: Mapping[str, float] | None = None, mode: ModeSwitch | None = None
) -> list[EventDraft]:
    """Continue a run that waits, has spent its budget, or failed because of its environment.

    `limits` are new values of budgets, which then replace the grant of a whole further budget. `mode` is another
    execution mode or strategy from here on.
    """
    resumed = _resumed(run, by, limits)
    changed = _mode_changed(run, by, mode) if resumed and mode is not None else []
    return [*changed, *resumed]


def _mode_changed(run: Run, by: str, mode: ModeSwitch) -> list[EventDraft]:
    wanted = mode.execution_mode or run.task.execution_mode
    if wanted == run.task.execution_mode and mode.strategy in (None, run.task.strategy):
        return []
    changed = ModeChanged(execution_mode=wanted, strategy=mode.strategy, reason=f"{by} resumed it so", by=by)
    return [_draft(run, EventType.MODE_CHANGED, changed)]


def _resumed(run: Run, by: str, limits: Mapping[str, float] | None) -> list[EventDraft]:
    given = dict(limits or {})
    if run.state in WAITING or run.pause_requested:
        return [_draft(run, EventType.RUN_RESUMED, RunResumed(by=by, limits=given))]
    if run.failure is None or run.resume_state is None:
        return []
    if run.failure.kind is FailureKind.BUDGET_EXCEEDED:
        resumed = _draft(run, EventType.RUN_RESUMED, RunResumed(granted=not given, limits=given, by=by))
        reason = "another budget was granted"
        details = run.failure.details
        if ENTERING in details:
            entering = State(str(details[ENTERING]))
            return [resumed, _queue(_narrowed(run) if details.get(NARROWED) else run, entering, reason)]
        return [resumed, _queue(run, run.resume_state, reason, again=True)]
    if run.failure.kind in RESUMABLE:
        resumed = _draft(run, EventType.RUN_RESUMED, RunResumed(by=by, limits=given))
        return [resumed, _queue(run, run.resume_state, "tried again", again=True)]
    return []


def decide_approval(run: Run, decided: ApprovalDecided, now: int | None = None) -> list[EventDraft]:
    """Record a person's answer and continue the run; the step that asked finds it in `run.approvals`.

    An answer to a request that does not exist or is answered already changes nothing. One that comes after the request
    has expired at `now` is a denial.
    """
    open_requests = {one.request.approval_id: one.request for one in run.approvals if one.decided is None}
    request = open_requests.get(decided.approval_id)
    if run.terminal or request is None:
        return []
    if now is not None and expired(request, now):
        decided = expiry_of(request)
    waits = run.waiting_for is not None and run.waiting_for.approval_id == decided.approval_id
    resumed = decide_resume(run) if waits else []
    if resumed and request.operation == "spend" and decided.decision != "denied":
        resumed = [_draft(run, EventType.RUN_RESUMED, RunResumed(granted=True))]
    return [_draft(run, EventType.APPROVAL_DECIDED, decided), *resumed]


def decide_due(run: Run, now: int) -> list[EventDraft]:
    """Continue a parked run whose time has come, unless a pause was requested meanwhile. A request that nobody has
    answered by then is denied.
    """
    if run.state is not State.BLOCKED or run.parked_until is None or run.parked_until > now:
        return []
    if not run.pause_requested and (request := run.open_request) is not None:
        return decide_approval(run, expiry_of(request))
    return decide_pause(run) or decide_resume(run)


def _parked_until(run: Run, failure: Failure, now: int) -> int | None:
    """Return when the run continues by itself: at a quota's reset, or after a growing wait for a lock or the store."""
    before = len(list(itertools.takewhile(lambda past: past.kind is failure.kind, reversed(run.failures))))
    backoff = now + min(1 << before, LONGEST_BACKOFF_SEC) * 1_000_000
    reset_at = failure.details.get("reset_at")
    if failure.kind is FailureKind.MODEL_QUOTA and isinstance(reset_at, int):
        return max(reset_at, backoff)
    if failure.kind is FailureKind.LOCK_HELD:
        return backoff
    passing = failure.details.get("passing") is True
    if failure.kind is FailureKind.ARTIFACT_STORE_UNAVAILABLE and passing and before < OUTAGE_PARKINGS:
        return backoff
    return None


def _ask_person(run: Run, request: ApprovalRequested) -> list[EventDraft]:
    """Block the run, and record the request unless it is recorded already."""
    asked = any(one.request.approval_id == request.approval_id for one in run.approvals)
    message = f"A person has to approve: {request.operation} {request.details}".rstrip()
    failure = Failure(kind=FailureKind.DENIED, message=message, details={"approval_id": request.approval_id})
    request = next((one.request for one in run.approvals if one.request.approval_id == request.approval_id), request)
    blocked = _draft(run, EventType.RUN_BLOCKED, RunBlocked(failure=failure, until=request.expires_at))
    return [blocked] if asked else [_draft(run, EventType.APPROVAL_REQUESTED, request), blocked]


def _advance(run: Run) -> list[EventDraft]:
    following = pipeline_for(run.task).after(run.state)
    if following is State.DONE:
        return _finish(run, State.DONE, None)
    return _enter(run, following, f"after {run.state}")


def _suite_cut_short(run: Run) -> DependencyDegraded | None:
    """Return the event that narrows the tests, the first time that the suite proves too slow to run whole."""
    if run.narrowed or run.baseline is None:
        return None
    message, left = "", "the named tests are run"
    if run.state is State.INIT:
        message, left = run.baseline.cut_short, f"{left}, and those that had ended in time"
    elif run.state is State.TEST and run.baseline.suite == "full" and run.test_result is not None:
        cut = run.test_result.passed and run.test_result.suite != "full"
        message = "The suite did not come to its end with the change." if cut else ""
    if not message:
        return None
    failure = Failure(kind=FailureKind.SUITE_TIMEOUT, message=message)
    return DependencyDegraded(dependency="suite", consequence=f"from here on only {left}", failure=failure)


def _narrowed(run: Run) -> Run:
    return run.model_copy(update={"narrowed": True})


def _after_red(run: Run, result: TestResult) -> list[EventDraft]:
    failure = Failure(
        kind=_red_kind(result),
        message=_red_message(result),
        details={"failed": list(result.failed_tests_after), "regressions": list(result.regressions)},
    )
    times = run.signatures.count(result.signature) if result.signature else 0
    return [_failed(run, failure), *_return_or_stop(run, State.REFLECT, failure, times)]


def _red_kind(result: TestResult) -> FailureKind:
    if _uncompiled(result):
        return FailureKind.COMPILE_ERROR
    return FailureKind.GATE_FAILED if _red_gates(result) else FailureKind.TESTS_FAILED


def _red_gates(result: TestResult) -> list[Gate]:
    """The red gates other than those of the tests and the compiler."""
    return [gate for gate in result.gates if gate.ok is False and gate.name in _NAMED_GATES]


_NAMED_GATES = ("lint", "command", "base_tests", "own_tests", "security")


def _uncompiled(result: TestResult) -> bool:
    """True if every error is a compiler error."""
    return bool(result.errors) and all(error.error_type in COMPILER_ERRORS for error in result.errors)


def _red_message(result: TestResult) -> str:
    if _uncompiled(result):
        return f"The change does not compile: {result.errors[0].message[:1000]}"
    if result.regressions:
        named = ", ".join(result.regressions[:3])
        return f"{len(result.regressions)} test(s) that passed before {_now(result)}: {named}"
    if result.failed_tests_after and not _red_gates(result):
        return f"{len(result.failed_tests_after)} test(s) still fail: {', '.join(result.failed_tests_after[:3])}"
    if red := _red_gates(result):
        return f"The gate {red[0].name} does not hold: {red[0].evidence[:1000]}"
    return "The gates did not hold."


def _now(result: TestResult) -> str:
    """What became of the tests that passed before."""
    ends = {error.error_type for error in result.errors if error.test in result.regressions}
    return {"Lost": "are not collected any more", "Skipped": "are skipped now"}.get("".join(ends), "now fail")


def _after_failure(run: Run, failure: Failure, now: int) -> list[EventDraft]:
    kind, handling = failure.kind, failure.handling
    if kind is FailureKind.BUDGET_EXCEEDED or kind is FailureKind.CANCELLED:
        return _finish(run, State.ABORTED, failure)
    if kind is FailureKind.CONTEXT_EXCEEDED:
        return _finish(run, State.FAILED, failure)
    if (spent := exhausted(run)) is not None:
        return _finish(run, State.ABORTED, spent)
    if kind is FailureKind.REPEATED_FAILURE:
        return _after_repetition(run, failure)
    broken = tripped(run.failed_calls) if handling.origin is Origin.WORK else None
    if broken is not None and not _repeated_before(run):
        return _after_repetition(run, broken)
    if kind is FailureKind.POLICY_VIOLATION and forbidden_too_often(run) is None and run.state is not State.INIT:
        return _again(run, State.REFLECT, failure)
    if kind is FailureKind.TOOL_MISSING and run.state not in (State.INIT, State.MAP_REPO):
        return _again(run, State.MAP_REPO, failure)
    if kind is FailureKind.DENIED and run.state is State.PLAN:
        return _again(run, State.PLAN, failure)
    until = _parked_until(run, failure, now)
    if handling.origin is Origin.PERSON or until is not None:
        return [_draft(run, EventType.RUN_BLOCKED, RunBlocked(failure=failure, until=until))]
    if handling.retryable and run.attempt < MAX_ATTEMPTS:
        return [_queue(run, run.state, failure.message, attempt=run.attempt + 1)]
    if handling.agent_fixable and run.state is State.IMPLEMENT:
        return _again(run, State.REFLECT, failure)
    return _finish(run, State.FAILED, failure)


def _after_repetition(run: Run, failure: Failure) -> list[EventDraft]:
    """Reflect once on a part of the plan that keeps failing; any other repetition ends the run."""
    if run.state is State.IMPLEMENT and halts_a_part(run.plan, failure) and not _repeated_before(run):
        return _return_to(run, State.REFLECT, failure)
    return _finish(run, State.FAILED, failure)


def _repeated_before(run: Run) -> bool:
    return any(past.kind is FailureKind.REPEATED_FAILURE for past in run.failures)


def _again(run: Run, state: State, failure: Failure) -> list[EventDraft]:
    """Return to `state`, unless the run failed with this kind and message too often."""
    same = sum(1 for past in run.failures if (past.kind, past.message) == (failure.kind, failure.message))
    return _return_or_stop(run, state, failure, same + 1)


def _return_or_stop(run: Run, state: State, failure: Failure, times: int) -> list[EventDraft]:
    """Return to `state`; a failure that came back `times` times ends the run at the limit."""
    if times < SAME_FAILURE_LIMIT:
        return _return_to(run, state, failure)
    message = f"The same failure came back {times} times: {failure.message}"
    builds = pipeline_for(run.task).keeps_files
    if builds and run.task.model and run.task.fallback_model and not run.fell_back:
        reason = f"the same failure came back {times} times"
        switched = ModelSwitched(model=run.task.model, to=run.task.fallback_model, reason=reason, whole_run=True)
        return [_draft(run, EventType.MODEL_SWITCHED, switched), *_return_to(run, state, failure)]
    advice = SPLIT_IT if builds else ""
    stopped = Failure(kind=FailureKind.REPEATED_FAILURE, message=message, next_action=advice, details=failure.details)
    return _finish(run, State.FAILED, stopped)


SPLIT_IT = (
    "Split the task: build one part of it first, then the next in the same directory. Or correct the files there"
    " yourself and build again with --out."
)


def _return_to(run: Run, state: State, failure: Failure) -> list[EventDraft]:
    """Go back to the first state from `state` on that this kind of task has; without one, the run ends."""
    back = pipeline_for(run.task).back_to(state)
    return _finish(run, State.FAILED, failure) if back is None else _enter(run, back, failure.message)


def _enter(run: Run, state: State, reason: str) -> list[EventDraft]:
    """Queue `state`, or PLAN before IMPLEMENT after two red cycles; a spent budget ends the run instead."""
    if state is State.IMPLEMENT and run.state is State.REFLECT and _wants_new_plan(run):
        state, reason = State.PLAN, f"{run.red_cycles} red cycles in a row"
    spent = exhausted(run)
    if spent is None and state is State.IMPLEMENT:
        spent = no_iteration_left(run)
    if spent is not None:
        kept = {**spent.details, ENTERING: state.value, NARROWED: run.narrowed}
        return _finish(run, State.ABORTED, spent.model_copy(update={"details": kept}))
    queued = _queue(run, state, reason)
    upcoming = run.spent.iterations + 1
    limit = total(run, "iterations")
    warn_at = pipeline_for(run.task).warn_at_iteration
    if state is State.IMPLEMENT and warn_at is not None and upcoming == limit - run.task.budget.iterations + warn_at:
        warned = BudgetWarned(budget="iterations", used=upcoming, limit=limit)
        return [_draft(run, EventType.BUDGET_WARNED, warned), *_revised(run, state, reason), queued]
    return [*_revised(run, state, reason), queued]


def _revised(run: Run, state: State, reason: str) -> list[EventDraft]:
    """The plan of another iteration, where parts of it stay."""
    revised = revision(run, reason) if state is State.IMPLEMENT and run.state is not State.PLAN else None
    return [] if revised is None else [_draft(run, EventType.PLAN_REVISED, revised)]


def _wants_new_plan(run: Run) -> bool:
    pipeline = pipeline_for(run.task)
    if State.PLAN not in pipeline.states or run.red_cycles < RED_CYCLES_BEFORE_REPLAN:
        return False
    return pipeline.replan == "red_cycles" or len(run.signatures) != len(set(run.signatures))


def _queue(run: Run, state: State, reason: str, attempt: int = 1, again: bool = False) -> EventDraft:
    queued = StepQueued(state=state, reason=reason, narrowed=run.narrowed, again=again)
    step_id = run.step_id if attempt > 1 else f"s-{run.run_id.removeprefix('r-')}-{run.steps_queued + 1:04d}"
    return EventDraft(type=EventType.STEP_QUEUED, data=queued, step_id=step_id, attempt=attempt)


def _finish(run: Run, state: State, failure: Failure | None) -> list[EventDraft]:
    return [*_undelivered(run), _draft(run, EventType.RUN_FINISHED, RunFinished(state=state, failure=failure))]


def _undelivered(run: Run) -> list[EventDraft]:
    """Record the messages that no agent will get, because none works on the run any more."""
    waiting = [one for one in run.asked_of_session if one.kind == "message"]
    return [
        _draft(
            run,
            EventType.MESSAGE_SENT,
            MessageSent(type="user", content=one.text, by=one.by, delivered=False, request_id=one.request_id),
        )
        for one in waiting
    ]


def _failed(run: Run, failure: Failure) -> EventDraft:
    return _draft(run, EventType.STEP_FAILED, StepFailed(state=run.state, failure=failure))


def cancelled() -> Failure:
    """The failure of a cancelled run."""
    return Failure(kind=FailureKind.CANCELLED, message="The run was cancelled.")


def _draft(run: Run, kind: EventType, data: Contract) -> EventDraft:
    return EventDraft(type=kind, data=data, step_id=run.step_id, attempt=run.attempt)
