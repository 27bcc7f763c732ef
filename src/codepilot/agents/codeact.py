"""Every role, played by one chat model: who it is asked as, with which skills, and in which order of a plan's nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from codepilot.agents.acting import Hands
from codepilot.agents.free import free_repair
from codepilot.agents.host_functions import HostFunctions, with_host_functions
from codepilot.agents.loop import Conversation
from codepilot.agents.protocol import Desk, RoleArtifact
from codepilot.agents.registry import AgentParts, AgentSpec
from codepilot.agents.roles import ROLES, Limits, Names, Role, Sections
from codepilot.agents.roles.discovery import all_parts
from codepilot.agents.seat import Seat
from codepilot.agents.walking import Walk
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

    def perform(self, role: State, desk: Desk) -> RoleArtifact:
        """Play a role at its desk: the model-free engine first, where policy has it so."""
        if (found := free_repair(role, desk)) is not None:
            return found
        for model in self._models:
            if isinstance(model, ReplayModel):
                model.go_on_after(len(exchanges(desk.earlier)))
        seat = Seat(desk)

        def talk(player: Role, node: str = "", part: Sections | None = None) -> Contract:
            hands = self._hands(player, seat)
            return Conversation(self._models, player, seat, hands, self._names(seat), node, part or {}).artifact()

        player = self._roles[role]
        if role is State.IMPLEMENT and desk.run.plan is not None and desk.run.plan.nodes:
            return Walk(seat, self._parts, talk, lambda: self._hands(player, seat)).candidate()
        part = self._on_offer(seat) if role is State.PLAN else {}
        return cast(RoleArtifact, talk(player, part=part))

    def _hands(self, role: Role, seat: Seat) -> Hands:
        allowed = seat.run.task.risk_profile.capability
        capability = role.capability if allowed.allows(role.capability) else allowed
        registry = self._skills(seat)
        return Hands(seat, registry if role.skills is None else registry.only(frozenset(role.skills)), capability)

    def _skills(self, seat: Seat) -> Registry:
        there = self._registry if seat.run.task.hosts else self._registry.offline()
        there = with_host_functions(there, HostFunctions(seat))
        if seat.desk.project.runner in PYTHON_RUNNERS:
            return there
        return there.only(frozenset(skill.name for skill in there if skill.name != "find_repairs"))

    def _names(self, seat: Seat) -> Names:
        available = self._skills(seat).available(seat.run.task.risk_profile.capability)
        return Names(frozenset(skill.name for skill in available), frozenset(self._parts) - {""})

    def _on_offer(self, seat: Seat) -> Sections:
        """What the nodes of a plan may name."""
        roles = [f"{name}: {role.purpose}" for name, role in sorted(self._parts.items()) if name]
        tools = ", ".join(sorted(self._names(seat).skills))
        turns = seat.run.task.budget.turns_per_step
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
