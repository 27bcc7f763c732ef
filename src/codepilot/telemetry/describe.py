"""Each event in a line for a person, and each gate. Pure; the text is neither redacted nor made safe for a terminal."""

from __future__ import annotations

from codepilot.core.approval import ApprovalDecided, ApprovalRequested, PolicyDecided
from codepilot.core.artifacts import Gate, Reflection, RegressionTest, RepoMap, Review, TestResult
from codepilot.core.attempt import AttemptEnded, KeysSent
from codepilot.core.checkpoint import (
    CheckpointFailed,
    CheckpointRecorded,
    MessageSent,
    ModeChanged,
    Promoted,
    RolledBack,
    SessionRequested,
    UserEditsFound,
    ViolationAcknowledged,
)
from codepilot.core.commit import CommitRecorded
from codepilot.core.contract import JsonObject
from codepilot.core.events import (
    AgentSwitched,
    BaselineRecorded,
    BasePinned,
    BudgetWarned,
    ChildJoined,
    ChildStarted,
    ContextCondensed,
    DependencyDegraded,
    EditsFound,
    EnvironmentPrepared,
    Event,
    GuardrailBlocked,
    ModelAsked,
    ModelSwitched,
    PatchProposed,
    PlanRevised,
    ProofRecorded,
    RepairsSought,
    RunBlocked,
    RunFinished,
    RunPaused,
    SearchProgressed,
    SessionEnded,
    SessionStarted,
    StepFailed,
    StepSucceeded,
    TurnFinished,
    TurnStarted,
    WorkspaceCreated,
)
from codepilot.core.failures import Failure
from codepilot.core.landing import Landed, LandingQueued, LandingRefused
from codepilot.core.locks import LockReleased, LockTaken
from codepilot.core.notify import NotificationFailed, NotificationSent
from codepilot.core.plan import Plan
from codepilot.core.review import HunksReviewed
from codepilot.core.text import counted

MAX_ACTION = 160
_SHOWN_FILES = 10
"""How much of an action's first line is shown."""


def describe(event: Event) -> str:
    """One line about an event that is worth a line, or nothing."""
    match event.data:
        case BasePinned() as base:
            return f"base {base.described}"
        case WorkspaceCreated():
            return "running the tests before anything is changed"
        case EnvironmentPrepared(packages=packages, files=files):
            return f"installed {', '.join((*files, *packages))}"
        case BaselineRecorded(before=before, targets=targets):
            red = len(before.failed) + len(before.errors)
            repairing = f"; repairing {', '.join(targets)}" if targets else ""
            return f"{before.passed} pass, {red} fail before{repairing}"
        case SearchProgressed() as search:
            best = f" · best: {search.best}" if search.best else ""
            left = f" · at most {search.left_sec:.0f} s left" if search.left_sec is not None else ""
            if not search.tried:
                return f"loading and tracing the failing tests{left}"
            return f"{search.tried} candidates · {search.per_sec:.0f}/s{left} · {search.plausible} plausible{best}"
        case PatchProposed(patch=patch, refused_by=refused_by):
            refused = f" — refused: {refused_by}" if refused_by else ""
            return f"{', '.join(patch.touched_files) or 'no file'} changed{refused}"
        case TestResult() as result:
            red = len(result.failed_tests_after) + len(result.regressions)
            return f"{result.summary.passed} pass, {red} fail after"
        case Review() as review:
            held = sum(1 for check in review.policy_checks if check.ok)
            refused = f"; changes are asked for: {'; '.join(review.reasons)}" if review.verdict != "APPROVE" else ""
            return f"{held} of {len(review.policy_checks)} checks hold{refused}"
        case ProofRecorded(verdict=verdict, ok=ok, regression_test=test):
            return f"proved on a clean copy: {verdict}{_with_test(test)}" if ok else "the proof did not hold"
        case CommitRecorded(branch=branch, commit=commit):
            return f"proved on a clean copy, and committed to {branch} as {commit[:12]}"
        case LockTaken(name=name):
            return f"holds the lock {name}"
        case LockReleased(names=names, reason=reason):
            return f"gave back {', '.join(names)}{': ' if reason else ''}{reason}"
        case LandingQueued(branch=branch):
            return f"waits to land on {branch}"
        case Landed(branch=branch, commit=commit):
            return f"landed on {branch} as {commit[:12]}"
        case LandingRefused(branch=branch, reason=reason):
            return f"did not land on {branch}: {reason}"
        case HunksReviewed() as reviewed:
            judged = f"; {reviewed.judged_by} judges what remains" if reviewed.judged_by else ""
            return f"{len(reviewed.of('accepted'))} of {counted(len(reviewed.decisions), 'part')} accepted{judged}"
        case BudgetWarned(budget=budget, used=used, limit=limit):
            return f"the budget is nearly spent: {budget} {used:g} of {limit:g}"
        case StepSucceeded(note=note):
            return note
        case RunPaused(reason=reason):
            return reason
        case ApprovalRequested(operation=operation, details=details):
            return f"a person is asked to allow {operation} {details}"
        case ApprovalDecided(decision=decision, by=by, reason=reason):
            return f"{decision} by {by}{f': {reason}' if reason else ''}"
        case PolicyDecided(effect=effect, kind=kind, subject=subject, rule=rule):
            return f"{effect} {kind} {subject} ({rule})"
        case RunFinished(state=state, failure=failure):
            return f"{state}: {failure.message}" if failure is not None else str(state)
        case _:
            return _session(event) or _model_work(event)


def _session(event: Event) -> str:
    """A line for what happens to an interactive agent."""
    match event.data:
        case SessionStarted(agent=agent, model=model, resumed=resumed):
            return f"{agent} {'goes on' if resumed else 'begins'}{f' with {model}' if model else ''}"
        case SessionEnded(agent=agent, failure=Failure() as failure):
            return f"{agent} failed: {failure.message}"
        case AgentSwitched(agent=agent, to=to, reason=reason):
            return f"{to} takes over from {agent}: {reason}"
        case KeysSent(answer=answer, prompt=prompt):
            return f"{answer} answers: {prompt}"
        case AttemptEnded(outcome=outcome, message=message):
            return f"{outcome}{f': {message}' if message else ''}"
        case CheckpointRecorded() as one:
            return _checkpoint(one)
        case CheckpointFailed(failure=failure, in_a_row=times):
            return f"a checkpoint failed ({times} in a row): {failure.message}"
        case ViolationAcknowledged(checkpoint_id=checkpoint, acknowledged=True, response=response):
            return f"the agent acknowledged {checkpoint}{f': {response}' if response else ''}"
        case ViolationAcknowledged(checkpoint_id=checkpoint, delivered=delivered):
            return f"the agent {'did not answer' if delivered else 'did not get the report of'} {checkpoint}"
        case Promoted(checkpoint_id=checkpoint):
            return f"{checkpoint} is the run's tree now"
        case RolledBack(failure=Failure() as failure):
            return f"nothing was rolled back: {failure.message}"
        case RolledBack(checkpoint_id=checkpoint, files=files):
            what = counted(len(files), "file") if files else "everything"
            return f"{what} put back to {checkpoint or 'the beginning of the step'}"
        case SessionRequested(kind=kind, by=by):
            return f"{by} asks for a {kind}"
        case MessageSent(content=content, by=by, delivered=delivered):
            return f"{by} to the agent: {content}{'' if delivered else ' (not delivered)'}"
        case ModeChanged(execution_mode=mode, reason=reason):
            return f"goes on in {mode} mode: {reason}"
        case EditsFound(files=files):
            rest = f" and {len(files) - _SHOWN_FILES} more" if len(files) > _SHOWN_FILES else ""
            return f"takes over your edits: {', '.join(files[:_SHOWN_FILES])}{rest}"
        case UserEditsFound(files=files, files_left_out=left_out, conflicts=conflicts):
            both = f"; the agent had changed {', '.join(conflicts[:_SHOWN_FILES])} too" if conflicts else ""
            more = len(files[_SHOWN_FILES:]) + left_out
            return f"you changed {', '.join(files[:_SHOWN_FILES])}{f' and {more} more' if more else ''}{both}"
        case _:
            return ""


def _checkpoint(one: CheckpointRecorded) -> str:
    changed = f"{counted(one.files_changed_count, 'file')} changed, {one.files_changed_total} in all"
    sampled = f"; a sample: {one.left_out} not checked" if one.left_out else ""
    broken = f": {', '.join(dict.fromkeys(f'{v.file} ({v.constraint})' for v in one.violations[:3]))}"
    taken = "" if one.action_taken == "none" else f"; {one.action_taken}"
    return (
        f"{one.checkpoint_id} ({one.trigger}) {one.status}, {changed}{sampled}{broken if one.violations else ''}{taken}"
    )


def gate_line(gate: Gate) -> str:
    """One gate in a line: its name, what was seen before and after, and whether it holds."""
    outcome = {True: "holds", False: "does not hold", None: "not judged"}[gate.ok]
    seen = " → ".join(side for side in (gate.before, gate.after) if side)
    return f"{gate.name:<12}  {seen or gate.evidence}  {outcome}"


def _with_test(test: RegressionTest | None) -> str:
    if test is None:
        return ""
    return f", with a regression test: {test.test}" if test.written else f"; no regression test: {test.reason}"


def _model_work(event: Event) -> str:
    """A line for a model's action and its result."""
    match event.data:
        case ModelAsked(model=model):
            return f"asking {model}"
        case TurnStarted(turn=turn, action=action):
            return _action(turn, action)
        case TurnFinished(turn=turn, observation=observation):
            return _outcome(turn, observation)
        case RepoMap() as found:
            return f"{found.build_system}, tested by {' '.join(found.test_cmd)}"
        case Plan() as plan:
            return "; ".join(part for part in (plan.root_cause, plan.approach) if part) or counted(
                len(plan.nodes), "part"
            )
        case Reflection() as thought:
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
        case RunBlocked(failure=None, children=children):
            return f"{counted(len(children), 'part')} of the plan at work"
        case (
            RunBlocked(failure=Failure() as failure) | StepFailed(failure=failure) | NotificationFailed(failure=failure)
        ):
            return failure.message
        case ChildStarted(node=node, child_run_id=child):
            return f"part {node} begins as {child}"
        case ChildJoined(node=node, outcome="merged", touched_files=files):
            return f"part {node} is merged: {', '.join(files) or 'no file'} changed"
        case ChildJoined(node=node, outcome="conflict", conflicts=paths):
            return f"part {node} conflicts in {', '.join(paths)}: done again on the merged tree"
        case ChildJoined(node=node, failure=Failure() as failure):
            return f"part {node} failed: {failure.message}"
        case PlanRevised(reason=reason, reopened=again):
            return f"the plan is revised, again: {', '.join(again)} ({reason})"
        case _:
            return ""


def _action(turn: int, action: JsonObject) -> str:
    """The role, and the first line of its action, or that it gives its result."""
    role = action.get("role")
    if isinstance(agent := action.get("agent"), str):
        used = " ".join(str(action.get(name) or "") for name in ("tool", "subject")).split()
        done = " ".join(used) or "ends"
        return f"{agent}, turn {turn}: {done if len(done) <= MAX_ACTION else f'{done[:MAX_ACTION]}…'}"
    if not isinstance(role, str):
        return ""
    lines = [line.strip() for line in str(action.get("code") or "").splitlines()]
    code = next((line for line in lines if line and not line.startswith("#")), "")
    doing = code or ("gives its result" if action.get("result") is not None else "replied without an action")
    return f"{role}, turn {turn}: {doing if len(doing) <= MAX_ACTION else f'{doing[:MAX_ACTION]}…'}"


def _outcome(turn: int, observation: JsonObject) -> str:
    """Only what went wrong is worth a line."""
    status = observation.get("status")
    if status in (None, "ok", "accepted"):
        return ""
    lines = str(observation.get("error") or observation.get("message") or "").strip().splitlines()
    return f"turn {turn}: {status}{f', {lines[-1]}' if lines else ''}"
