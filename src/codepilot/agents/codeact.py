"""The CodeAct agent: one chat model in every role, with the role's skills and its nodes of the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from codepilot.agents.action_runner import ActionRunner
from codepilot.agents.critic import criticised_plan, criticised_review
from codepilot.agents.host_functions import HostFunctions, with_host_functions
from codepilot.agents.loop import Conversation
from codepilot.agents.plan_runner import PlanRunner, Talk
from codepilot.agents.protocol import RoleArtifact, StepContext
from codepilot.agents.registry import AgentParts, AgentSpec
from codepilot.agents.repair_first import free_repair
from codepilot.agents.roles import (
    BUILD_PARTS,
    BUILD_ROLES,
    ROLES,
    TESTER,
    Limits,
    Names,
    Role,
    Sections,
    all_parts,
)
from codepilot.agents.roles.answerer import ANSWERER
from codepilot.agents.step_conversation import StepConversation
from codepilot.core.artifacts import Review
from codepilot.core.contract import Contract
from codepilot.core.events import PatchProposed, State
from codepilot.core.parallel import begin_now
from codepilot.core.plan import NodeStatus, Plan
from codepilot.core.task import Capability, TaskKind
from codepilot.models import Model, ReplayModel, ScriptedModel, exchanges
from codepilot.project import is_test
from codepilot.skills import Registry, all_skills, program_skills

PYTHON_RUNNERS = ("pytest", "unittest")


class CodeActAgent:
    """A chat model in every role. `fallback` goes on with a conversation in which it does not get anywhere.

    `parts` are the roles that a plan may name besides the one that plays IMPLEMENT; `limits` changes, by a role's name,
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
        self._build_roles = {state: role.within(limits.get(role.name, Limits())) for state, role in BUILD_ROLES.items()}
        built = {role.name: role.within(limits.get(role.name, Limits())) for role in BUILD_PARTS}
        self._build_parts = {"": built[BUILD_ROLES[State.IMPLEMENT].name], **built}

    def perform(self, role: State, context: StepContext) -> RoleArtifact:
        """Play a role. With the policy `free_first` the model-free search comes first."""
        builds = context.run.task.kind is TaskKind.BUILD
        if not builds and (found := free_repair(role, context)) is not None:
            return found
        for model in self._models:
            if isinstance(model, (ReplayModel, ScriptedModel)):
                model.continue_after(len(exchanges(context.earlier)))
        step = StepConversation(context)

        def talk(player: Role, node: str = "", part: Sections | None = None) -> Contract:
            runner = self._runner(player, step)
            return Conversation(self._models, player, step, runner, self._names(step), node, part or {}).artifact()

        if context.run.task.kind is TaskKind.QUESTION:
            return cast(RoleArtifact, talk(ANSWERER))
        if builds:
            return self._build(role, step, talk)
        player = self._roles[role]
        if role is State.IMPLEMENT and context.run.plan is not None and context.run.plan.nodes:
            return PlanRunner(step, self._parts, talk, lambda: self._runner(player, step)).candidate()
        part = self._on_offer(step) if role is State.PLAN else {}
        made = cast(RoleArtifact, talk(player, part=part))
        if isinstance(made, Plan):
            return criticised_plan(step, talk, player, part, made)
        return criticised_review(step, talk, made) if isinstance(made, Review) else made

    def _build(self, role: State, step: StepConversation, talk: Talk) -> RoleArtifact:
        """Play a role of a build: the plan's parts in the first iteration, then one coder for what is wrong.

        If no part brought tests, the tester writes them.
        """
        player, plan = self._build_roles[role], step.run.plan
        if role is not State.IMPLEMENT:
            return cast(RoleArtifact, talk(player, "", {}))
        left = plan is not None and any(node.status is not NodeStatus.SUCCEEDED for node in plan.nodes)
        if plan is None or not (left or is_new(step.context)):
            return cast(RoleArtifact, talk(player, "", {}))
        made = PlanRunner(step, self._build_parts, talk, lambda: self._runner(player, step)).candidate()
        if begin_now(step.run):
            return made
        if step.run.task.parent_run_id is None and not has_tests(step.context):
            talk(self._build_parts[TESTER.name], TESTS_NODE, {})
        return made

    def _runner(self, role: Role, step: StepConversation) -> ActionRunner:
        allowed = step.run.task.risk_profile.capability
        capability = role.capability if allowed.allows(role.capability) else allowed
        registry = self._skills(step)
        return ActionRunner(
            step, registry if role.skills is None else registry.only(frozenset(role.skills)), capability
        )

    def _skills(self, step: StepConversation) -> Registry:
        if step.run.task.kind is TaskKind.BUILD:
            return with_host_functions(program_skills(), HostFunctions(step))
        there = self._registry if step.run.task.hosts else self._registry.offline()
        there = with_host_functions(there, HostFunctions(step))
        if step.context.project.runner in PYTHON_RUNNERS:
            return there
        return there.only(frozenset(skill.name for skill in there if skill.name != "find_repairs"))

    def _names(self, step: StepConversation) -> Names:
        available = self._skills(step).available(step.run.task.risk_profile.capability)
        parts = self._build_parts if step.run.task.kind is TaskKind.BUILD else self._parts
        return Names(frozenset(skill.name for skill in available), frozenset(parts) - {""})

    def _on_offer(self, step: StepConversation) -> Sections:
        """Prompt sections with the roles and tools that a plan may name."""
        roles = [f"{name}: {role.purpose}" for name, role in sorted(self._parts.items()) if name]
        tools = ", ".join(sorted(self._names(step).skills))
        turns = step.run.task.budget.turns_per_step
        return {
            "Roles for nodes": "\n".join(roles),
            "Tools for nodes": f"{tools}\nAll nodes together have {turns} turns.",
        }


TESTS_NODE = "tests"
"""The part that is played by the tester where the plan has none."""


def is_new(context: StepContext) -> bool:
    """True if nothing was proposed since the plan was made."""
    last = next((one.data for one in reversed(context.earlier) if isinstance(one.data, (Plan, PatchProposed))), None)
    return isinstance(last, Plan)


def has_tests(context: StepContext) -> bool:
    """True if the workspace of a build holds a test file."""
    base = context.run.base
    if base is None:
        return False
    changes = context.executor.diff(context.workspace, base.tree).changes
    return any(is_test(one.path) for one in changes if one.change != "deleted")


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
