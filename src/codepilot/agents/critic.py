"""The critic's second look at risky work: at a plan before it is carried out, at a change before it is accepted."""

from __future__ import annotations

from collections.abc import Callable

from codepilot.agents.roles import CRITIC, Role, Sections
from codepilot.agents.roles.sections import proposal, written
from codepilot.agents.step_conversation import StepConversation
from codepilot.core.artifacts import Review
from codepilot.core.contract import Contract
from codepilot.core.plan import Critique, Plan
from codepilot.core.risk import Looked, risks

Talk = Callable[[Role, str, Sections], Contract]

PLAN_LOOK, SECOND_PLAN, SECOND_LOOK, CHANGE_LOOK = "(critic)", "(revised plan)", "(critic again)", "(critic)"
"""The names under which these conversations are recorded in addition to the step's own."""


def criticised_plan(step: StepConversation, talk: Talk, planner: Role, offer: Sections, made: Plan) -> Plan:
    """The plan with the critic's word on it, made again once if the critic objects; as it is where nothing is risky."""
    task = step.run.task
    if not (why := risks(Looked(task, made))):
        return made
    critique = _asked(talk, PLAN_LOOK, why, {"The plan": written(made)})
    if critique.verdict != "APPROVE":
        objections = "\n".join(f"- {reason}" for reason in critique.reasons)
        again = talk(planner, SECOND_PLAN, {**offer, "Your plan": written(made), "The critic objects": objections})
        made = again if isinstance(again, Plan) else made
        critique = _asked(talk, SECOND_LOOK, why, {"The plan": written(made), "Your objections": objections})
    return made.model_copy(update={"critique": critique})


def criticised_review(step: StepConversation, talk: Talk, review: Review) -> Review:
    """The review of a risky change: the critic can refuse what the reviewer approved."""
    proposed = step.run.proposal
    if review.verdict != "APPROVE" or proposed is None:
        return review
    paths = proposed.patch.touched_files
    if not (why := risks(Looked(step.run.task, step.run.plan, paths, review.patch_loc))):
        return review
    critique = _asked(talk, CHANGE_LOOK, why, {"The change": proposal(step.context)})
    if critique.verdict == "APPROVE":
        return review.model_copy(update={"notes": f"{review.notes}\nThe critic approves ({'; '.join(why)}).".strip()})
    return review.model_copy(update={"verdict": "REQUEST_CHANGES", "reasons": critique.reasons})


def _asked(talk: Talk, name: str, why: tuple[str, ...], shown: Sections) -> Critique:
    made = talk(CRITIC, name, {**shown, "Why you are asked": "\n".join(f"- {one}" for one in why)})
    assert isinstance(made, Critique)
    return made.model_copy(update={"risks": why})
