"""What a person watching a run wants to know, folded from its events, and each event in a line. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codepilot.cli.options import counted
from codepilot.cli.output import plain
from codepilot.core.artifacts import Gate, RegressionTest
from codepilot.core.commit import CommitRecorded
from codepilot.core.contract import JsonObject
from codepilot.core.events import (
    BaselineRecorded,
    BasePinned,
    BudgetWarned,
    ContextCondensed,
    DependencyDegraded,
    Event,
    EventType,
    GuardrailBlocked,
    ModelAsked,
    ModelSwitched,
    PatchProposed,
    PlanCreated,
    ProofRecorded,
    ReflectionRecorded,
    RepairsSought,
    RepoMapped,
    ReviewRecorded,
    RunBlocked,
    RunFinished,
    SandboxChosen,
    SearchProgressed,
    State,
    StepFailed,
    StepQueued,
    StepSkipped,
    StepSucceeded,
    TestsJudged,
    TurnFinished,
    TurnStarted,
    Usage,
    WorkspaceCreated,
)
from codepilot.core.notify import NotificationFailed, NotificationSent

ROAD = (State.INIT, State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.TEST, State.REVIEW, State.FINALIZE)


@dataclass(frozen=True)
class StepLine:
    """One step as a line: `mark` is waiting, running, done or failed."""

    state: State
    mark: str = "waiting"
    started_at: int | None = None
    ended_at: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Progress:
    steps: tuple[StepLine, ...] = ()
    iterations: int = 0
    turns: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    unpriced: bool = False
    """Whether some of the tokens have a price that is not known."""
    asked: Usage | None = None
    """The estimate of a call whose reply is not there: what the next call finds here is spent."""
    sandbox: str = ""
    warning: str = ""
    """That a budget nears its end."""
    finished: RunFinished | None = None
    gates: tuple[Gate, ...] = ()
    """The gates as they were judged last."""

    @property
    def upcoming(self) -> tuple[State, ...]:
        """The states that normally follow the newest step."""
        if self.finished is not None or not self.steps:
            return ()
        newest = self.steps[-1].state
        return ROAD[ROAD.index(newest) + 1 :] if newest in ROAD else ROAD[ROAD.index(State.IMPLEMENT) :]


def advance(progress: Progress, event: Event) -> Progress:
    """The view after one more event."""
    data = event.data
    match data:
        case StepQueued(state=state, again=again):
            entered = 1 if state is State.IMPLEMENT and event.attempt == 1 and not again else 0
            line = StepLine(state)
            return replace(progress, steps=(*progress.steps, line), iterations=progress.iterations + entered)
        case StepSucceeded(note=note):
            return _close(progress, event, "done", note)
        case StepSkipped():  # the agent has no such role: nothing to see
            return replace(progress, steps=progress.steps[:-1])
        case StepFailed(failure=failure):
            return _close(progress, event, "failed", failure.message)
        case SandboxChosen(level=level):
            return replace(progress, sandbox=level)
        case ModelAsked(estimate=estimate):
            lost = progress.asked or Usage()
            return replace(_used(_note(progress, describe(event)), lost), asked=estimate)
        case TurnStarted(usage=usage):
            doing = describe(event) or "working"
            return replace(_used(_note(progress, doing), usage), turns=progress.turns + 1, asked=None)
        case TestsJudged(result=result):
            return replace(_note(progress, describe(event)), gates=result.gates)
        case BudgetWarned():
            return replace(progress, warning=describe(event))
        case RunFinished():
            return replace(progress, finished=data)
        case _ if event.type is EventType.STEP_STARTED:
            return _newest(progress, mark="running", started_at=event.at, ended_at=None)
        case _:
            note = describe(event)
            return _note(progress, note) if note else progress


def _used(progress: Progress, usage: Usage) -> Progress:
    return replace(
        progress,
        tokens=progress.tokens + usage.tokens,
        cost_usd=progress.cost_usd + usage.cost_usd,
        unpriced=progress.unpriced or usage.unpriced_tokens > 0,
    )


def _note(progress: Progress, note: str) -> Progress:
    return _newest(progress, note=plain(note))


def _close(progress: Progress, event: Event, mark: str, note: str) -> Progress:
    newest = progress.steps[-1] if progress.steps else None
    kept = newest.note if newest and newest.note and newest.note != "working" else note
    return _newest(progress, mark=mark, ended_at=event.at, note=plain(note if mark == "failed" else kept))


def _newest(progress: Progress, **changes: object) -> Progress:
    if not progress.steps:
        return progress
    newest = replace(progress.steps[-1], **changes)  # type: ignore[arg-type]
    return replace(progress, steps=(*progress.steps[:-1], newest))


def describe(event: Event) -> str:
    """One line about an event that is worth a line, or nothing."""
    match event.data:
        case BasePinned(commit=commit) as base:
            return f"base {commit[:12]}{' with uncommitted changes' if base.dirty else ''}"
        case WorkspaceCreated():
            return "running the tests before anything is changed"
        case BaselineRecorded(before=before, targets=targets):
            red = len(before.failed) + len(before.errors)
            return f"{before.passed} pass, {red} fail before; repairing {', '.join(targets)}"
        case SearchProgressed() as search:
            best = f" · best: {search.best}" if search.best else ""
            left = f" · at most {search.left_sec:.0f} s left" if search.left_sec is not None else ""
            return f"{search.tried} candidates · {search.per_sec:.0f}/s{left} · {search.plausible} plausible{best}"
        case PatchProposed(patch=patch, refused_by=refused_by):
            refused = f" — refused: {refused_by}" if refused_by else ""
            return f"{', '.join(patch.touched_files) or 'no file'} changed{refused}"
        case TestsJudged(result=result):
            red = len(result.failed_tests_after) + len(result.regressions)
            return f"{result.summary.passed} pass, {red} fail after"
        case ReviewRecorded(review=review):
            held = sum(1 for check in review.policy_checks if check.ok)
            refused = f"; changes are asked for: {'; '.join(review.reasons)}" if review.verdict != "APPROVE" else ""
            return f"{held} of {len(review.policy_checks)} checks hold{refused}"
        case ProofRecorded(verdict=verdict, ok=ok, regression_test=test):
            return f"proved on a clean copy: {verdict}{_with_test(test)}" if ok else "the proof did not hold"
        case CommitRecorded(branch=branch, commit=commit):
            return f"proved on a clean copy, and committed to {branch} as {commit[:12]}"
        case BudgetWarned(budget=budget, used=used, limit=limit):
            return f"the budget is nearly spent: {budget} {used:g} of {limit:g}"
        case _:
            return _thinking(event)


def gate_line(gate: Gate) -> str:
    """One gate in a line: its name, what was seen before and after, and whether it holds."""
    outcome = {True: "holds", False: "does not hold", None: "not judged"}[gate.ok]
    seen = " → ".join(plain(side) for side in (gate.before, gate.after) if side)
    return f"{gate.name:<12}  {seen or plain(gate.evidence)}  {outcome}"


def _with_test(test: RegressionTest | None) -> str:
    if test is None:
        return ""
    return f", with a regression test: {test.test}" if test.written else f"; no regression test: {test.reason}"


def _thinking(event: Event) -> str:
    """What a model is doing, and what came of it."""
    match event.data:
        case ModelAsked(model=model):
            return f"asking {model}"
        case TurnStarted(turn=turn, action=action):
            return _action(turn, action)
        case TurnFinished(turn=turn, observation=observation):
            return _outcome(turn, observation)
        case RepoMapped(repo_map=found):
            return f"{found.build_system}, tested by {' '.join(found.test_cmd)}"
        case PlanCreated(plan=plan):
            return "; ".join(part for part in (plan.root_cause, plan.approach) if part) or counted(
                len(plan.nodes), "part"
            )
        case ReflectionRecorded(reflection=thought):
            return f"{thought.root_cause}; next: {thought.fix_hypothesis}"
        case ModelSwitched(to=to, reason=reason):
            return f"{to} takes over: {reason}"
        case DependencyDegraded(failure=failure, consequence=consequence):
            return f"{consequence}: {failure.message}"
        case ContextCondensed(turns=turns, before=before, after=after):
            return f"{counted(len(turns), 'old observation')} shortened: {before} tokens become {after}"
        case RepairsSought(tried=tried, found=found):
            return f"the model-free engine tried {tried} repairs and found {found}"
        case GuardrailBlocked(rule=rule, attempt=attempt):
            return f"refused by {rule}: {attempt}"
        case NotificationSent(of=of, status=status):
            return f"of event {of}, answered by {status}"
        case RunBlocked(failure=failure) | StepFailed(failure=failure) | NotificationFailed(failure=failure):
            return failure.message
        case _:
            return ""


def _action(turn: int, action: JsonObject) -> str:
    """Who does what: the action's first line, or that the result is given."""
    role = action.get("role")
    if not isinstance(role, str):
        return ""
    lines = [line.strip() for line in str(action.get("code") or "").splitlines()]
    code = next((line for line in lines if line and not line.startswith("#")), "")
    doing = code or ("gives its result" if action.get("result") is not None else "said nothing that can be run")
    return f"{role}, turn {turn}: {doing}"


def _outcome(turn: int, observation: JsonObject) -> str:
    """Only what went wrong is worth a line."""
    status = observation.get("status")
    if status in (None, "ok", "accepted"):
        return ""
    said = str(observation.get("error") or observation.get("message") or "").strip().splitlines()
    return f"turn {turn}: {status}{f', {said[-1]}' if said else ''}"
