"""The figures of each iteration of a run. An iteration starts at IMPLEMENT; number 0 is everything before the first."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from codepilot.core.artifacts import TestResult
from codepilot.core.contract import Contract
from codepilot.core.events import (
    ContextCondensed,
    Event,
    EventType,
    ModelAnswered,
    ModelAsked,
    PatchProposed,
    ProofRecorded,
    RunBlocked,
    RunFinished,
    RunPaused,
    State,
    StepFailed,
    StepQueued,
    StepStarted,
    TurnStarted,
    Usage,
    Verdict,
)
from codepilot.core.failures import Failure
from codepilot.core.run import ASKED, UNCHARGED, Spent, charge, paid


class StateFigures(Contract):
    """One stay in a state. Pauses and time without a worker do not count."""

    state: State
    attempt: int
    entered_at: int
    exited_at: int | None = None
    duration_sec: float = 0.0


class IterationFigures(Contract):
    """`tokens` has also what calls without a reply were charged; input and output are what the replies say."""

    number: int
    states: tuple[StateFigures, ...]
    duration_sec: float
    turns: int
    tokens: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    """Null if the price of some tokens is unknown."""
    files: tuple[str, ...]
    tests_passed: int | None
    tests_failed: int | None
    pass_rate: float | None
    errors: tuple[str, ...]


class Figures(Contract):
    """A run in numbers. `success_rate` is the share of its test runs that were green."""

    run_id: str
    state: State
    verdict: Verdict | None
    total_iterations: int
    duration_sec: float
    turns: int
    tokens: int
    cost_usd: float | None
    """Null if the price of some tokens is unknown."""
    success_rate: float | None
    iterations: tuple[IterationFigures, ...]


@dataclass(kw_only=True)
class Stopwatch:
    """The time that a step was worked on, in microseconds: from a start to the step's last event."""

    worked_us: int = 0
    open_since: int | None = None
    last_at: int = 0

    def start(self, at: int) -> None:
        """A start without a rest before it follows a crash."""
        self.rest(self.last_at)
        self.open_since = at

    def rest(self, at: int) -> None:
        if self.open_since is not None:
            self.worked_us += max(0, at - self.open_since)
            self.open_since = None


@dataclass
class _Stay(Stopwatch):
    state: State
    attempt: int
    entered_at: int
    exited_at: int | None = None


@dataclass
class _Iteration:
    number: int
    stays: list[_Stay] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    input_tokens: int = 0
    output_tokens: int = 0
    files: dict[str, None] = field(default_factory=dict)
    passed: int | None = None
    failed: int | None = None
    errors: list[str] = field(default_factory=list)


@dataclass
class _Reading:
    """A run while its events are read."""

    run_id: str = ""
    state: State = State.INIT
    verdict: Verdict | None = None
    iterations: list[_Iteration] = field(default_factory=lambda: [_Iteration(0)])
    judged: list[bool] = field(default_factory=list)
    asked: Usage | None = None
    """As of a run: what the last call of a model was charged, until its reply tells what it used."""
    calls: dict[str, Usage] = field(default_factory=dict)
    """The same of calls through the model gateway, by their names."""


_RESTS = frozenset({EventType.STEP_SUCCEEDED, EventType.STEP_FAILED, EventType.STEP_SKIPPED, EventType.RUN_FINISHED})
_WAITS = frozenset({EventType.RUN_PAUSED, EventType.RUN_BLOCKED})
BREAKS = ASKED | {EventType.STEP_QUEUED, EventType.STEP_STARTED, EventType.RUN_PAUSED, EventType.RUN_FINISHED}
COUNTED = (
    _RESTS
    | _WAITS
    | BREAKS
    | {EventType.MODEL_ASKED, EventType.MODEL_ANSWERED, EventType.TURN_STARTED}
    | {EventType.PATCH_PROPOSED, EventType.TESTS_JUDGED, EventType.PROOF_RECORDED}
)
"""Events that figures are made of. Of the others only the time counts, and only of a run's last and of those right
before one of BREAKS: until then the step before was at work."""


def figures(events: Iterable[Event]) -> Figures | None:
    """The figures that the events of one run tell, at least those that `COUNTED` names; None if there are none."""
    reading = _Reading()
    for event in events:
        reading.run_id = event.run_id
        _read(reading, event)
    if not reading.run_id:
        return None
    iterations = tuple(_figures_of(iteration) for iteration in reading.iterations)
    costs = [one.cost_usd for one in iterations]
    return Figures(
        run_id=reading.run_id,
        state=reading.state,
        verdict=reading.verdict,
        total_iterations=len(iterations) - 1,
        duration_sec=round(sum(one.duration_sec for one in iterations), 3),
        turns=sum(one.turns for one in iterations),
        tokens=sum(one.tokens for one in iterations),
        cost_usd=None if None in costs else round(sum(cost or 0.0 for cost in costs), 9),
        success_rate=sum(reading.judged) / len(reading.judged) if reading.judged else None,
        iterations=iterations,
    )


def _read(reading: _Reading, event: Event) -> None:
    if isinstance(event.data, StepQueued):
        if event.data.state is State.IMPLEMENT and event.attempt == 1 and not event.data.again:
            reading.iterations.append(_Iteration(len(reading.iterations)))
        reading.state = event.data.state
        stay = _Stay(event.data.state, event.attempt, event.at, last_at=event.at)
        reading.iterations[-1].stays.append(stay)
        return
    iteration = reading.iterations[-1]
    match event.data:
        case StepStarted():
            reading.asked = None
            reading.calls.clear()
        case ModelAsked(estimate=estimate, call=call) if call:
            reading.calls[call] = paid(estimate)
            iteration.spent = charge(iteration.spent, paid(estimate))
        case ModelAnswered(call=call, usage=usage) if call in reading.calls:
            iteration.spent = charge(iteration.spent, paid(usage), reading.calls.pop(call))
            iteration.input_tokens += usage.input_tokens
            iteration.output_tokens += usage.output_tokens
        case ModelAsked(estimate=estimate):
            reading.asked = paid(estimate)
            iteration.spent = charge(iteration.spent, reading.asked)
        case TurnStarted(usage=usage):
            iteration.spent = charge(iteration.spent, usage, reading.asked)
            iteration.input_tokens += usage.input_tokens
            iteration.output_tokens += usage.output_tokens
            reading.asked = None
        case ContextCondensed() if reading.asked is not None:
            iteration.spent = charge(iteration.spent, Usage(), reading.asked)
            reading.asked = None
        case PatchProposed(patch=patch):
            iteration.files.update(dict.fromkeys(patch.touched_files))
        case TestResult() as result:
            iteration.passed = result.summary.passed
            iteration.failed = len(result.summary.failed or result.failed_tests_after) + len(result.summary.errors)
            reading.judged.append(result.passed)
        case RunBlocked(failure=None):
            pass
        case StepFailed(failure=Failure() as failure) | RunBlocked(failure=Failure() as failure):
            if reading.asked is not None and failure.details.get(UNCHARGED) is True:
                iteration.spent = charge(iteration.spent, Usage(), reading.asked)
                reading.asked = None
            iteration.errors.append(failure.message)
        case ProofRecorded(verdict=verdict):
            reading.verdict = verdict
        case RunFinished(state=state, failure=ended):
            reading.state = state
            if ended is not None and ended.message not in iteration.errors:
                iteration.errors.append(ended.message)
    if iteration.stays:
        _time(iteration.stays[-1], event)


def _time(stay: _Stay, event: Event) -> None:
    if event.type is EventType.STEP_STARTED:
        stay.start(event.at)
    elif event.type in _RESTS | _WAITS:
        unattended = isinstance(event.data, RunPaused | RunFinished) and event.data.unattended
        stay.rest(stay.last_at if unattended else event.at)
        if event.type in _RESTS and stay.exited_at is None:
            stay.exited_at = event.at
    if event.type not in ASKED:
        stay.last_at = event.at


def _figures_of(iteration: _Iteration) -> IterationFigures:
    stays = tuple(
        StateFigures(
            state=stay.state,
            attempt=stay.attempt,
            entered_at=stay.entered_at,
            exited_at=stay.exited_at,
            duration_sec=round((stay.worked_us + _unfinished(stay)) / 1e6, 3),
        )
        for stay in iteration.stays
    )
    counted = None if iteration.passed is None or iteration.failed is None else iteration.passed + iteration.failed
    return IterationFigures(
        number=iteration.number,
        states=stays,
        duration_sec=round(sum(stay.duration_sec for stay in stays), 3),
        turns=iteration.spent.turns,
        tokens=iteration.spent.tokens,
        input_tokens=iteration.input_tokens,
        output_tokens=iteration.output_tokens,
        cost_usd=iteration.spent.known_cost_usd,
        files=tuple(iteration.files),
        tests_passed=iteration.passed,
        tests_failed=iteration.failed,
        pass_rate=iteration.passed / counted if counted and iteration.passed is not None else None,
        errors=tuple(iteration.errors),
    )


def _unfinished(stay: _Stay) -> int:
    """A step that is still open has worked until its last event."""
    return 0 if stay.open_since is None else max(0, stay.last_at - stay.open_since)
