"""The policy `free_first`: the model-free search runs before a model is asked.

It runs in the first step that a model would play. A repair that would count as confirmed becomes the change and no
model is called; otherwise the models work as usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from codepilot.agents.protocol import Abstained, StepContext
from codepilot.agents.repair_agent import RepairAgent
from codepilot.core.artifacts import PatchCandidate, TestResult
from codepilot.core.events import EventType, PatchProposed, RepairsSought, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import TaskKind
from codepilot.repair import Candidate, mutation_score
from codepilot.verify import Grade, grade

MOST_SEC = 120.0
SHARE_OF_TIME = 0.25
STRENGTH_SEC = 20.0
_FOUND = "the model-free engine found a repair; no model is asked"


def free_repair(role: State, context: StepContext) -> PatchCandidate | None:
    """The change that needs no model, in IMPLEMENT; in other roles, whether they are left out because of it."""
    task = context.run.task
    able = _works_on(context)
    if not (task.policy.free_first and task.kind is TaskKind.BUGFIX and able):
        return None
    sought = _sought((*context.earlier, *context.history))
    if sought is None:
        sought = _seek(context)
    if not sought.chosen or _turned_down(context):
        return None
    if role is State.IMPLEMENT:
        return RepairAgent().carry_out(sought.action, context)
    raise Abstained(_FOUND)


def _works_on(context: StepContext) -> bool:
    languages = RepairAgent.languages
    known = languages is None or context.project.language in languages
    return known and context.run.task.risk_profile.capability.allows(RepairAgent.needs)


def _sought(events: Iterable[object]) -> RepairsSought | None:
    found = (getattr(event, "data", None) for event in events)
    return next((data for data in found if isinstance(data, RepairsSought) and data.by == "policy"), None)


def _turned_down(context: StepContext) -> bool:
    """True if the repair was proposed and failed: from then on the models work."""
    proposed = False
    for event in context.earlier:
        if isinstance(event.data, PatchProposed):
            proposed = True
        if proposed and event.type is EventType.STEP_FAILED:
            return True
        if proposed and isinstance(event.data, TestResult) and not event.data.passed:
            return True
    return False


def _seek(context: StepContext) -> RepairsSought:
    targets = context.targets
    try:
        seconds = min(MOST_SEC, context.seconds_left() * SHARE_OF_TIME)
        action, tried, best = RepairAgent(seconds=seconds).choose(context)
        value = _appraise(best, context, targets)
        confirmed = value.verdict == "confirmed"
        sought = RepairsSought(
            by="policy",
            tests=targets,
            tried=tried,
            found=1,
            chosen=confirmed,
            action=action,
            confidence=best.confidence,
            reason=value.reason,
        )
    except CodePilotError as error:
        if error.kind not in (
            FailureKind.STUCK,
            FailureKind.BUDGET_EXCEEDED,
            FailureKind.FLAKY_TEST,
            FailureKind.TEST_NOT_FOUND,
            FailureKind.TEST_SUSPECT,
        ):
            raise
        sought = RepairsSought(by="policy", tests=targets, tried=0, found=0, reason=error.failure.message)
    context.append(EventType.REPAIRS_SOUGHT, sought)
    return sought


def _appraise(best: Candidate, context: StepContext, targets: Sequence[str]) -> Grade:
    """An estimate of the proof's verdict on the repair."""
    strength = mutation_score(
        context.executor,
        context.workspace,
        context.project,
        (best.path,),
        targets,
        seconds=min(STRENGTH_SEC, context.seconds_left() / 4),
        patched={best.path: best.patched},
        originals={best.path: best.original},
    )
    suite = context.run.baseline.suite if context.run.baseline else "none"
    return grade(strength, suite, targets, (), best.confidence)
