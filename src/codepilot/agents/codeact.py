"""The CodeAct agent: one chat model in every role, with the role's skills and its nodes of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from codepilot.agents.action_runner import ActionRunner
from codepilot.agents.host_functions import HostFunctions, with_host_functions
from codepilot.agents.loop import Conversation
from codepilot.agents.plan_runner import PlanRunner
from codepilot.agents.protocol import RoleArtifact, StepContext
from codepilot.agents.registry import AgentParts, AgentSpec
from codepilot.agents.repair_first import free_repair
from codepilot.agents.roles import ROLES, Limits, Names, Role, Sections, all_parts
from codepilot.agents.step_conversation import StepConversation
from codepilot.core.contract import Contract
from codepilot.core.events import State
from codepilot.core.task import Capability
from codepilot.models import Model, ReplayModel, exchanges
from codepilot.skills import Registry, all_skills

PYTHON_RUNNERS = ("pytest", "unittest")


class CodeActAgent:
    """A chat model in every role. `fallback` goes on with a conversation in which it does not get anywhere.

    `parts` are the roles that a plan may name beside the one that plays IMPLEMENT; `limits` changes, by a role's name,
    how its model is asked.
    """

    needs = Capability.WRITE_WITH_DIFF
    languages: frozenset[str] | None = None

    def __init__(
        self,
        model: Model,
        registry: Registry | None = None,
        roles: Mapping[State, Role] = ROLES,
        name: str = "codeact",
        *,
        fallback: Model | None = None,
        parts: Sequence[Role] | None = None,
        limits: Mapping[str, Limits] | None = None,
    ) -> None:
        self.name = name
        self.roles = frozenset(roles)
        self._models = (model,) if fallback is None else (model, fallback)
        self._registry = registry or all_skills()
        limits = limits or {}
        self._roles = {state: role.within(limits.get(role.name, Limits())) for state, role in roles.items()}
        found = {
            role.name: role.within(limits.get(role.name, Limits()))
            for role in (all_parts() if parts is None else parts)
        }
        if State.IMPLEMENT in self._roles:
            main = self._roles[State.IMPLEMENT]
            found |= {"": main, main.name: main}
        self._parts = found

    def perform(self, role: State, context: StepContext) -> RoleArtifact:
        """Play a role. With the policy `free_first` the model-free search comes first."""
        if (found := free_repair(role, context)) is not None:
            return found
        for model in self._models:
            if isinstance(model, ReplayModel):
                model.continue_after(len(exchanges(context.earlier)))
        step = StepConversation(context)

        def talk(player: Role, node: str = "", part: Sections | None = None) -> Contract:
            runner = self._runner(player, step)
            return Conversation(self._models, player, step, runner, self._names(step), node, part or {}).artifact()

        player = self._roles[role]
        if role is State.IMPLEMENT and context.run.plan is not None and context.run.plan.nodes:
            return PlanRunner(step, self._parts, talk, lambda: self._runner(player, step)).candidate()
        part = self._on_offer(step) if role is State.PLAN else {}
        return cast(RoleArtifact, talk(player, part=part))

    def _runner(self, role: Role, step: StepConversation) -> ActionRunner:
        allowed = step.run.task.risk_profile.capability
        capability = role.capability if allowed.allows(role.capability) else allowed
        registry = self._skills(step)
        return ActionRunner(
            step, registry if role.skills is None else registry.only(frozenset(role.skills)), capability
        )

    def _skills(self, step: StepConversation) -> Registry:
        there = self._registry if step.run.task.hosts else self._registry.offline()
        there = with_host_functions(there, HostFunctions(step))
        if step.context.project.runner in PYTHON_RUNNERS:
            return there
        return there.only(frozenset(skill.name for skill in there if skill.name != "find_repairs"))

    def _names(self, step: StepConversation) -> Names:
        available = self._skills(step).available(step.run.task.risk_profile.capability)
        return Names(frozenset(skill.name for skill in available), frozenset(self._parts) - {""})

    def _on_offer(self, step: StepConversation) -> Sections:
        """Prompt sections with the roles and tools that a plan may name."""
        roles = [f"{name}: {role.purpose}" for name, role in sorted(self._parts.items()) if name]
        tools = ", ".join(sorted(self._names(step).skills))
        turns = step.run.task.budget.turns_per_step
        return {
            "Roles for nodes": "\n".join(roles),
            "Tools for nodes": f"{tools}\nAll nodes together have {turns} turns.",
        }


def _make(parts: AgentParts) -> CodeActAgent:
    assert parts.model is not None
    return CodeActAgent(parts.model, parts.skills, fallback=parts.fallback, limits=parts.limits)


SPEC = AgentSpec(
    name="codeact",
    make=_make,
    roles=frozenset(ROLES),
    needs_model=True,
    capability=CodeActAgent.needs,
    features=frozenset({"pause_resume"}),
)
