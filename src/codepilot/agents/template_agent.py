"""The agent of tasks that a template answers: it proposes what lies in the workspace."""

from __future__ import annotations

from codepilot.agents.protocol import StepContext
from codepilot.agents.registry import AgentSpec
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.events import State
from codepilot.core.task import Capability

NAME = "template"


class TemplateAgent:
    """Needs no model: the platform has laid the template into the workspace."""

    name = NAME
    roles = frozenset({State.IMPLEMENT})
    needs = Capability.WRITE_WITH_DIFF
    languages: frozenset[str] | None = None

    def perform(self, role: State, context: StepContext) -> PatchCandidate:
        return PatchCandidate(diff="", touched_files=(), rationale="the template of the module")


SPEC = AgentSpec(name=NAME, make=lambda parts: TemplateAgent(), roles=TemplateAgent.roles)
