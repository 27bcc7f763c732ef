"""One line about an event, for people who watch a run or read it afterwards."""

from __future__ import annotations

from codepilot.core.artifacts import RegressionTest
from codepilot.core.commit import CommitRecorded
from codepilot.core.contract import JsonObject
from codepilot.core.events import (
    TERMINAL,
    WAITING,
    BaselineRecorded,
    BasePinned,
    BudgetWarned,
    ContextCondensed,
    DependencyDegraded,
    Event,
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
    SearchProgressed,
    StepFailed,
    TestsJudged,
    TurnFinished,
    TurnStarted,
    WorkspaceCreated,
)
from codepilot.core.notify import NotificationFailed, NotificationSent
from codepilot.core.run import Run


def describe(event: Event) -> str:
    """One line about an event worth telling, or nothing."""
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
            return f"proved on a clean copy: {verdict}{_test_told(test)}" if ok else "the proof did not hold"
        case CommitRecorded(branch=branch, commit=commit):
            return f"proved on a clean copy, and committed to {branch} as {commit[:12]}"
        case BudgetWarned(budget=budget, used=used, limit=limit):
            return f"the budget is nearly spent: {budget} {used:g} of {limit:g}"
        case _:
            return _thinking(event)


def requested(before: Run, now: Run, verb: str) -> str:
    """What became of a request to pause or to cancel a run."""
    if before.terminal:
        return f"{now.run_id} is {now.state} already: there is nothing to {verb}."
    if now.state in TERMINAL | WAITING:
        return f"{now.run_id} is {now.state}."
    return f"{now.run_id} {'is being cancelled' if now.cancel_requested else 'pauses after the action in hand'}."


def _test_told(test: RegressionTest | None) -> str:
    if test is None:
        return ""
    return f", with a regression test: {test.test}" if test.written else f"; no regression test: {test.reason}"


def _thinking(event: Event) -> str:
    """What a model is doing, and what came of it."""
    match event.data:
        case ModelAsked(model=model):
            return f"{model} is asked"
        case TurnStarted(turn=turn, action=action):
            return _deed(turn, action)
        case TurnFinished(turn=turn, observation=observation):
            return _outcome(turn, observation)
        case RepoMapped(repo_map=found):
            return f"{found.build_system}, tested by {' '.join(found.test_cmd)}"
        case PlanCreated(plan=plan):
            return "; ".join(part for part in (plan.root_cause, plan.approach) if part) or _counted(len(plan.nodes))
        case ReflectionRecorded(reflection=thought):
            return f"{thought.root_cause}; next: {thought.fix_hypothesis}"
        case ModelSwitched(to=to, reason=reason):
            return f"{to} goes on: {reason}"
        case DependencyDegraded(failure=failure, consequence=consequence):
            return f"{consequence}: {failure.message}"
        case ContextCondensed(turns=turns, before=before, after=after):
            return f"{len(turns)} old observation(s) in short: {before} tokens become {after}"
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


def _deed(turn: int, action: JsonObject) -> str:
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


def _counted(nodes: int) -> str:
    return f"{nodes} part(s)"
