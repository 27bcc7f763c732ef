"""PLAN: a plan is recorded once nobody has to be asked about it any more; parts that succeeded stay as they are."""

from __future__ import annotations

from codepilot.core.approval import Risk
from codepilot.core.artifacts import ArtifactType
from codepilot.core.contract import canonical_json
from codepilot.core.decide import Failed, Outcome, Succeeded
from codepilot.core.events import EventType
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.plan import Plan
from codepilot.core.replan import replanned
from codepilot.core.task import InteractionMode
from codepilot.engine.approvals import require
from codepilot.engine.work import Work


def settle_plan(work: Work, made: Plan) -> Outcome:
    """Ask a person where one has to be asked, then record the plan, or the revision of the one before."""
    if _asks(work, made) and not _allowed(work, made):
        message = "A person did not approve the plan."
        if reason := _denial(work):
            message = f"{message[:-1]}: {reason}"
        return Failed(Failure(kind=FailureKind.DENIED, message=message))
    reason = work.run.failures[-1].message if work.run.failures else "planned again"
    revised = replanned(work.run, made, reason)
    plan = made if revised is None else revised.plan
    stored = (work.artifacts.put(canonical_json(plan).encode(), ArtifactType.PLAN),)
    if revised is None:
        work.record(EventType.PLAN_CREATED, made, stored)
    else:
        work.record(EventType.PLAN_REVISED, revised, stored)
    return Succeeded()


def _asks(work: Work, made: Plan) -> bool:
    """A person who watches every step sees the plan first; anybody else only one to which the critic objects."""
    if work.run.task.risk_profile.interaction.mode is InteractionMode.ASK_EVERY_STEP:
        return True
    return made.critique is not None and made.critique.verdict != "APPROVE"


def _allowed(work: Work, made: Plan) -> bool:
    critique = made.critique
    objections = critique.reasons if critique is not None and critique.verdict != "APPROVE" else ()
    subject = made.approach or made.root_cause or f"a plan of {len(made.nodes)} part(s)"
    reasons = (*objections, *(critique.risks if critique is not None else ()))
    risk: Risk = "high" if objections else "medium"
    return require(work, "plan", subject, risk=risk, reasons=reasons, snippet=outline(made))


def _denial(work: Work) -> str:
    denied = [one.decided for one in work.run.approvals if one.request.operation == "plan" and one.decided is not None]
    return denied[-1].reason if denied and denied[-1].decision == "denied" else ""


def outline(plan: Plan) -> str:
    """The plan in lines: its parts, what each waits for, and where it may change files."""
    lines = [f"{node.id}: {node.title or node.tool or node.role}{_after(node.depends_on)}" for node in plan.nodes]
    if plan.allowed_areas:
        lines.append(f"may change: {', '.join(plan.allowed_areas)}")
    if plan.forbidden_areas:
        lines.append(f"may not change: {', '.join(plan.forbidden_areas)}")
    return "\n".join(lines)


def _after(needed: tuple[str, ...]) -> str:
    return f" (after {', '.join(needed)})" if needed else ""
