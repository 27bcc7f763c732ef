"""The report of a run: the document that `--json` prints and `report.json` stores."""

from collections.abc import Sequence
from typing import Literal

from codepilot.core.approval import ApprovalRequested, WaitingFor
from codepilot.core.artifacts import Concern, Gate, RegressionTest, TestSummary
from codepilot.core.commit import CommitRecorded
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import TERMINAL, PatchApplied, State, Verdict
from codepilot.core.failures import Failure, FailureKind, Origin
from codepilot.core.landing import Landed, LandingQueued, LandingRefused
from codepilot.core.run import Run
from codepilot.core.suspect import SuspectTest, suspect_of
from codepilot.core.task import FollowUp, TaskKind
from codepilot.telemetry.figures import IterationFigures
from codepilot.telemetry.plan import PlanPart, plan_parts
from codepilot.telemetry.redact import Clean, redact, redact_json

SCHEMA_VERSION: Literal[1] = 1

EXIT_VERIFIED = 0
EXIT_NOT_FOUND = 1
EXIT_INPUT = 2
EXIT_BLOCKED = 3
EXIT_PLATFORM = 4
EXIT_PLAUSIBLE = 5
EXIT_PAUSED = 130


class ReportedFailure(Contract):
    kind: FailureKind
    message: str
    next_action: str


class ReportedNotification(Contract):
    """The state of one end of the run that is posted to the webhook. Times are RFC 3339."""

    event: int
    """The event that ended the run."""
    at: str
    state: Literal["pending", "sent", "failed"]
    tries: int
    """Attempts so far."""
    not_before: str | None
    """When a pending one may be tried again."""
    settled_at: str | None
    reason: str | None
    """The status of the answer that was taken, or why no further attempt is made."""


class Report(Contract):
    """A stable format for programs. Paths are absolute; null if there is no such thing."""

    schema_version: Literal[1] = SCHEMA_VERSION
    run_id: str | None
    status: State
    activity: Literal["queued", "working", "interrupted"] | None = None
    """The activity of a run that has neither ended nor waits."""
    verdict: Verdict | None
    confidence: float
    """Computed from the evidence of the proof; never the agent's own claim."""
    confidence_parts: dict[str, float] = {}
    """The ingredients of the confidence, each from 0 to 1."""
    claimed_confidence: float | None = None
    """The agent's own description of its change. It does not affect the verdict."""
    reason: str = ""
    """Why the verdict is what it is."""
    concerns: tuple[Concern, ...] = ()
    """The reasons to doubt that the change is general."""
    failure: ReportedFailure | None
    test_suspect: SuspectTest | None = None
    """The evidence that the named test may be wrong, if the run ended with that failure."""
    patch: str | None
    bundle: str | None
    workspace: str | None
    log: str | None
    base_commit: str | None
    base_dirty: bool
    tests_before: TestSummary | None
    tests_after: TestSummary | None
    suite: Literal["full", "partial", "none"]
    regression_test: RegressionTest | None = None
    """The test that was added with the change, or why none was; null if none was asked for."""
    gates: tuple[Gate, ...] = ()
    """The gates, as they were judged last."""
    waiting_for: WaitingFor | None = None
    approval: ApprovalRequested | None = None
    """What a person is asked, if that is what the run waits for."""
    commit: CommitRecorded | None = None
    landing: LandingQueued | Landed | LandingRefused | None = None
    """The commit on a branch of the user's own repository."""
    applied: PatchApplied | None = None
    """The checkout that the change was written into, and its files there."""
    notifications: tuple[ReportedNotification, ...] = ()
    """One for each time that the run came to an end, if the task asks for it."""
    documents: dict[str, str] = {}
    """Documents of the run for people, by name: the answer to a question; plan, commands and diff of a dry run."""
    answer: str | None = None
    """The answer to a question about the repository."""
    iterations: int
    turns: int
    tokens: int
    cost_usd: float | None
    """Null if the price of some tokens is unknown."""
    duration_sec: float
    undelivered: tuple[str, ...] = ()
    """Messages of people that no agent got before the run ended."""
    nodes: tuple[PlanPart, ...] = ()
    """The parts of the plan, and what became of each."""
    next_steps: tuple[FollowUp, ...] = ()
    iterations_detail: tuple[IterationFigures, ...] = ()
    """The figures of each iteration; number 0 is everything before the first."""


def report(
    run: Run,
    *,
    patch: str | None = None,
    bundle: str | None = None,
    workspace: str | None = None,
    log: str | None = None,
    applied: PatchApplied | None = None,
    next_steps: Sequence[FollowUp] = (),
    iterations_detail: Sequence[IterationFigures] = (),
    status: State | None = None,
) -> Report:
    """How `run` stands. `status` and `bundle` say what will hold once the bundle being written is in its place."""
    failure = run.failure
    proof, tested = run.proof if run.proof and run.proof.ok else None, run.test_result
    return Report(
        run_id=run.run_id,
        status=status or run.state,
        verdict=run.verdict if State.DONE in (status, run.state) else None,
        confidence=run.confidence,
        confidence_parts=proof.confidence_parts if proof else {},
        claimed_confidence=run.proposal.patch.confidence if run.proposal and not run.proposal.patch.searched else None,
        reason=proof.reason if proof else "",
        concerns=proof.concerns if proof else (),
        failure=None if failure is None else reported(failure),
        test_suspect=suspect_of(failure),
        patch=patch,
        bundle=bundle or run.bundle,
        workspace=workspace,
        log=log,
        base_commit=run.base.commit if run.base else None,
        base_dirty=run.base.dirty if run.base else False,
        tests_before=run.baseline.before if run.baseline else None,
        tests_after=proof.after if proof else tested.summary if tested else None,
        suite=proof.suite if proof else tested.suite if tested else run.baseline.suite if run.baseline else "none",
        gates=tested.gates if tested else (),
        waiting_for=run.waiting_for,
        approval=run.open_request,
        regression_test=proof.regression_test if proof else None,
        commit=run.committed,
        landing=run.landing,
        applied=applied,
        documents={name: ref.uri for name, ref in run.documents.items()},
        iterations=run.spent.iterations,
        turns=run.spent.turns,
        tokens=run.spent.tokens,
        cost_usd=run.spent.known_cost_usd,
        duration_sec=round(run.spent.wall_us / 1e6, 3),
        undelivered=_undelivered(run, status or run.state),
        nodes=plan_parts(run.plan, run.children),
        next_steps=tuple(next_steps),
        iterations_detail=tuple(iterations_detail),
    )


def _undelivered(run: Run, status: State) -> tuple[str, ...]:
    waiting = [one.text for one in run.asked_of_session if one.kind == "message"]
    return (*run.undelivered, *(waiting if status in TERMINAL else ()))


def reported(failure: Failure) -> ReportedFailure:
    return ReportedFailure(kind=failure.kind, message=failure.message, next_action=failure.advice)


def refusal(failure: Failure) -> Report:
    """The document of a command that ended without a run."""
    return Report(
        run_id=None,
        status=State.FAILED,
        verdict=None,
        confidence=0.0,
        failure=reported(failure),
        patch=None,
        bundle=None,
        workspace=None,
        log=None,
        base_commit=None,
        base_dirty=False,
        tests_before=None,
        tests_after=None,
        suite="none",
        iterations=0,
        turns=0,
        tokens=0,
        cost_usd=0.0,
        duration_sec=0.0,
    )


_PLACES = ("run_id", "patch", "bundle", "workspace", "log", "base_commit", "commit", "applied")
"""Where things are to be found: programs go there, so that nothing in them is taken for a secret."""


def report_json(document: Report, clean: Clean = redact) -> JsonObject:
    """The document as plain JSON without secrets, in the order in which its keys are documented."""
    dumped: JsonObject = document.model_dump(mode="json", by_alias=False)
    return redact_json(dumped, clean) | {name: dumped[name] for name in _PLACES}


def exit_code(run: Run, *, accept_plausible: bool = False) -> int:
    """The exit code for a run that is no longer at work."""
    match run.state:
        case State.DONE:
            if run.task.kind is TaskKind.QUESTION:
                return EXIT_VERIFIED if "answer" in run.documents else EXIT_NOT_FOUND
            if run.task.kind is TaskKind.PROMPT:
                return EXIT_VERIFIED
            if run.proposal is None or run.verdict is None:
                return EXIT_NOT_FOUND
            return EXIT_VERIFIED if run.verdict == "confirmed" or accept_plausible else EXIT_PLAUSIBLE
        case State.PAUSED:
            return EXIT_PAUSED
        case State.BLOCKED:
            return EXIT_BLOCKED
        case State.FAILED | State.ABORTED:
            return exit_code_of(run.failure) if run.failure else EXIT_PLATFORM
        case _:
            return EXIT_PLATFORM


def exit_code_of(failure: Failure, *, found: bool = False) -> int:
    """What the command line returns when this failure ended it; `found` if a change was verified all the same."""
    match failure.handling.origin:
        case Origin.INPUT:
            return EXIT_INPUT
        case Origin.PLATFORM:
            return EXIT_PLATFORM
        case Origin.PERSON if failure.kind is not FailureKind.CANCELLED:
            return EXIT_BLOCKED
        case Origin.WORK | Origin.PERSON:
            return EXIT_PLATFORM if found else EXIT_NOT_FOUND
