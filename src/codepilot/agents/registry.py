"""Agents by name: each is an `AgentSpec` behind an entry point of the group `codepilot.agents`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from codepilot.agents.cli.protocol import AgentAdapter, Feature
from codepilot.agents.cli.settings import CliSettings
from codepilot.agents.protocol import Agent
from codepilot.agents.roles import Limits
from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.models import Model
from codepilot.skills import Registry

GROUP = "codepilot.agents"
BUILT_IN = (
    EntryPoint("codeact", "codepilot.agents.codeact:SPEC", GROUP),
    EntryPoint("repair", "codepilot.agents.repair_agent:SPEC", GROUP),
    EntryPoint("template", "codepilot.agents.template_agent:SPEC", GROUP),
)
"""The entry points that this package declares; listed here too so that a source tree works without being installed."""
_MEMBERS = ("name", "roles", "needs", "languages", "perform")
"""The members of `Agent`."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentParts:
    """The parts an agent is made from. An agent without a model ignores most of them."""

    model: Model | None = None
    fallback: Model | None = None
    skills: Registry | None = None
    limits: Mapping[str, Limits] = field(default_factory=dict)
    cli: Callable[[str], CliSettings] = lambda name: CliSettings()
    """The user's settings of an agent that is a program of its own."""


@dataclass(frozen=True)
class AgentSpec:
    """The facts about an agent that the platform needs before it makes one."""

    name: str
    make: Callable[[AgentParts], Agent]
    roles: frozenset[State]
    needs_model: bool = False
    languages: frozenset[str] | None = None
    """The languages that it can work on; None means all of them."""
    capability: Capability = Capability.WRITE_WITH_DIFF
    """The least capability that it can work with."""
    features: frozenset[Feature] = frozenset()


def agent_names() -> tuple[str, ...]:
    """The names of all agents that are installed or known, sorted."""
    return tuple(sorted({*_points(), *_cli().KNOWN}))


def agent_spec(name: str) -> AgentSpec:
    """The spec of an installed agent; an unknown name is refused with the names that exist."""
    point = _points().get(name)
    if point is None and _cli().is_cli_agent(name):
        return _cli_spec(name)
    if point is None:
        known = ", ".join((*agent_names(), *(f"{one}:COMMAND" for one in _cli().BY_COMMAND)))
        raise CodePilotError(
            FailureKind.INVALID_SPEC, f"There is no agent {name!r}.", next_action=f"Use one of: {known}."
        )
    try:
        spec = point.load()
        if not isinstance(spec, AgentSpec):
            raise TypeError(f"it is a {type(spec).__name__}, not an AgentSpec")
        if spec.name != name:
            raise ValueError(f"its spec is called {spec.name!r}")
    except Exception as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The agent {name!r} ({point.value}) cannot be loaded: {type(error).__name__}: {error}",
            next_action="Update or uninstall the package that provides it.",
        ) from error
    return spec


def make_agent(name: str, parts: AgentParts | None = None) -> Agent:
    """Make the agent that a task names."""
    spec, parts = agent_spec(name), parts or AgentParts()
    if spec.needs_model and parts.model is None:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The agent {name!r} needs a chat model and none is configured.",
            next_action="Configure a model, or choose an agent that needs none.",
        )
    made = spec.make(parts)
    lacking = [one for one in _MEMBERS if not hasattr(made, one)]
    if lacking:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The agent {name!r} is incomplete: it has no {' and no '.join(lacking)}.",
            next_action="Update or uninstall the package that provides it.",
        )
    return made


def is_cli_agent(name: str) -> bool:
    """True if the agent is a program of its own."""
    return name not in _points() and bool(_cli().is_cli_agent(name))


def cli_adapter(name: str) -> AgentAdapter:
    """The adapter of a program."""
    found: AgentAdapter = _cli().adapter(name)
    return found


def cli_adapters(*more: str) -> list[AgentAdapter]:
    """The adapters of the programs that are known by name, and of those among `more`."""
    names = [*_cli().KNOWN, *(name for name in more if is_cli_agent(name))]
    return [cli_adapter(name) for name in dict.fromkeys(names)]


def _cli_spec(name: str) -> AgentSpec:
    from codepilot.agents.cli.agent import ROLES, CliAgent

    found = cli_adapter(name)

    def make(parts: AgentParts) -> Agent:
        return CliAgent(found, parts.cli(name), lambda other: (cli_adapter(other), parts.cli(other)))

    return AgentSpec(name=name, make=make, roles=ROLES, capability=CliAgent.needs, features=found.features)


def _cli() -> Any:
    """The table of the programs that are agents; imported when one is named."""
    from codepilot.agents.cli import adapters

    return adapters


@cache
def _points() -> dict[str, EntryPoint]:
    """Entry points by name, read once: that takes as long as a step of the engine.

    A third-party one cannot replace an agent that has the name already.
    """
    found = {point.name: point for point in BUILT_IN}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        if found.setdefault(point.name, point).value != point.value:
            _log.warning("The agent %s = %s is ignored: the name is taken.", point.name, point.value)
    return found
