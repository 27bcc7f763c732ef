"""What an action asks of a person before it runs, and the message to the agent when the answer is no."""

from __future__ import annotations

import re

from codepilot.agents.step_conversation import StepConversation
from codepilot.core.approval import OPERATIONS, Operation, PolicyDecided, Risk, approval_id
from codepilot.core.contract import JsonObject
from codepilot.core.events import EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.permit import Decision
from codepilot.core.run import Run
from codepilot.executor import CodeResult
from codepilot.skills import Finding

HIGH, MEDIUM = 0.7, 0.4
"""The scores from which a risk is high or medium."""
NOT_INSTALLED = (
    FailureKind.ENVIRONMENT_MISSING,
    FailureKind.SANDBOX_UNAVAILABLE,
    FailureKind.TOOL_INVALID_ARGS,
)
"""The failures of an installation that an agent can work around."""


def granted(run: Run, occasion: str) -> tuple[str, ...]:
    """The subjects that a person allowed: for the whole run, or once for the action on this occasion."""
    found = []
    for one in run.approvals:
        request = one.request
        once = request.approval_id == approval_id(run.run_id, request.operation, request.details, occasion)
        if one.decided is not None and (one.decided.decision == "always" or (one.decided.decision == "once" and once)):
            found.append(request.details)
    return tuple(dict.fromkeys(found))


def open_granted(step: StepConversation, allowed: tuple[str, ...]) -> dict[str, str]:
    """Have the packages and hosts there that a person allowed. Returns the packages that cannot be had, and why."""
    asked = [one.request for one in step.run.approvals if one.request.details in allowed]
    packages = tuple(dict.fromkeys(one.details for one in asked if one.operation == "install"))
    if not packages and all(one.operation != "network" for one in asked):
        return {}
    lacking: dict[str, str] = {}
    for package in packages or ("",):
        try:
            step.context.open_again((package,) if package else ())
        except CodePilotError as error:
            if error.kind not in NOT_INSTALLED:
                raise
            lacking[package] = f"[not installed] {error} {error.failure.advice}"
    return lacking


def granted_hosts(run: Run) -> tuple[str, ...]:
    """The hosts that a person allowed in this run."""
    asked = (one for one in run.approvals if one.request.operation == "network")
    allowed = (one.request.details for one in asked if one.decided and one.decided.decision != "denied")
    return tuple(dict.fromkeys(allowed))


def ask_about(found: tuple[Finding, ...], code: str, step: StepConversation, occasion: str) -> JsonObject:
    """Ask for everything that the policy wants a person to allow; the observation of a denial, or nothing.

    What the policy sanitises is recorded, and left to the tool that does it.
    """
    for finding in found:
        if finding.decision is None or finding.refused:
            continue
        _record(step, finding.decision)
        if not finding.asked:
            continue
        action = finding.decision.action
        operation: Operation = OPERATIONS.get(action.asks, "command")
        subject = action.about or action.subject
        reasons = tuple(one for one in (finding.message, *finding.decision.reasons) if one)
        allowed = step.context.ask(
            operation, subject, risk=risk_of(finding.decision.score), reasons=reasons, snippet=code, occasion=occasion
        )
        if not allowed:
            return denial(step.run, operation, subject)
    return {}


def risk_of(score: float) -> Risk:
    return "high" if score >= HIGH else "medium" if score >= MEDIUM else "low"


def denial(run: Run, operation: Operation, subject: str) -> JsonObject:
    """What an agent observes in place of an action that a person denied."""
    answers = {(one.request.operation, one.request.details): one.decided for one in run.approvals}
    answer = answers.get((operation, subject))
    why = f" ({answer.reason})" if answer and answer.reason else ""
    message = (
        f"[denied] A person does not allow {operation} {subject}{why}. The action was not run; nothing of it was done."
        " It will not be allowed in this run: find another way."
    )
    return {"status": "denied", "message": message}


_NOTE = re.compile(r"\[([^\]]*)\] (\w+): (.*) → (.*)", re.DOTALL)


def decided_inside(result: CodeResult) -> list[PolicyDecided]:
    """What the policy changed about calls that were made inside, as far as the kernel reports it."""
    notes = (_NOTE.fullmatch(call.violation) for call in result.calls if call.status != "policy_violation")
    return [
        PolicyDecided(
            effect="sanitise", kind="command", subject=note[3], sanitised=note[4], rule=note[1], reason="it was forced"
        )
        for note in notes
        if note is not None
    ]


def _record(step: StepConversation, decision: Decision) -> None:
    """Record what the policy decided, once a step."""
    action = decision.action
    if decision.effect == "sanitise":
        return  # the call that is made says so
    decided = PolicyDecided(
        effect=decision.effect,
        kind=action.kind,
        subject=action.about or action.subject,
        rule=decision.rule,
        reason=decision.reason,
        reasons=decision.reasons,
        score=decision.score,
    )
    if all(event.data != decided for event in step.context.history):
        step.record(EventType.POLICY_DECIDED, decided)
