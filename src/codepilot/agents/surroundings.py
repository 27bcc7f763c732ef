"""What a role is shown of the repository itself: an outline, and the pieces of code that its task points to."""

from __future__ import annotations

from codepilot.agents.protocol import Desk
from codepilot.agents.roles import Role, Sections
from codepilot.agents.seat import Seat
from codepilot.context import Evidence, Gathered, Survey
from codepilot.core.events import ContextGathered, DependencyDegraded, EventType
from codepilot.core.failures import CodePilotError


def surroundings(role: Role, seat: Seat) -> Sections:
    """The sections that a survey of the base gives; what was chosen for them and what not is recorded once a step.

    The same base and the same run give the same text, so that a conversation which goes on reads as it did.
    """
    if not (role.outline_tokens or role.context_tokens) or seat.desk.survey is None:
        return {}
    try:
        survey = seat.desk.survey()
    except CodePilotError as error:
        consequence = f"the {role.name} sees nothing of the repository but what it reads itself"
        degraded = DependencyDegraded(dependency="context", consequence=consequence, failure=error.failure)
        seat.record(EventType.DEPENDENCY_DEGRADED, degraded)
        return {}
    evidence = evidence_of(seat.desk)
    shown: Sections = {}
    if role.outline_tokens:
        shown["Outline of the repository"] = survey.outline(evidence, role.outline_tokens)
    if role.context_tokens:
        shown["Code that may matter"] = _gathered(survey, evidence, role, seat).text
    return shown


def evidence_of(desk: Desk) -> Evidence:
    """What the run knows of where to look, as it was when the step began."""
    targets = desk.run.baseline.targets if desk.run.baseline else desk.baseline.red
    cases = [desk.baseline.cases[test] for test in targets if test in desk.baseline.cases]
    errors = desk.run.test_result.errors if desk.run.test_result else ()
    touched = desk.run.proposal.patch.touched_files if desk.run.proposal else ()
    traces = (*(case.traceback for case in cases), *(error.traceback for error in errors))
    return Evidence(targets, tuple(trace for trace in traces if trace), touched, desk.run.task.goal.natural)


def _gathered(survey: Survey, evidence: Evidence, role: Role, seat: Seat) -> Gathered:
    found = survey.gather(seat.run.task.kind, evidence, role.context_tokens)
    told = seat.gathered or any(isinstance(event.data, ContextGathered) for event in seat.desk.history)
    if not told:
        seat.record(EventType.CONTEXT_GATHERED, found.record)
    seat.gathered = True
    return found
