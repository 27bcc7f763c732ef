"""The programs of this machine that can be agents, and whether each could work now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from codepilot.agents import cli_adapter, cli_adapters, is_cli_agent
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.settings import Settings

if TYPE_CHECKING:
    from codepilot.agents.cli.protocol import AgentAdapter, Probe


@dataclass(frozen=True)
class AgentHere:
    """An agent's program as it is found, with the credentials that it would work with."""

    name: str
    probe: Probe
    shared: bool
    """True if the user lets it have its own login inside the sandbox."""
    key: str
    """The variable of its key, and whether it is set."""
    ready: bool
    """True if it is there and has credentials."""
    advice: str


def found_agents(settings: Settings) -> list[AgentHere]:
    """The known programs, the user's default agent among them."""
    return [_here(adapter, settings) for adapter in cli_adapters(settings.agents.default)]


def require_agent(name: str, settings: Settings) -> None:
    """Refuse an agent whose program is not there, or has no credentials."""
    if not is_cli_agent(name):
        return
    here = _here(cli_adapter(name), settings)
    if not here.probe.found:
        problem = here.probe.problem or "it is not on the PATH"
        raise CodePilotError(FailureKind.AGENT_MISSING, f"{here.name} cannot be used: {problem}.", agent=here.name)
    if not here.ready:
        raise CodePilotError(
            FailureKind.MODEL_AUTH, f"{here.name} has no credentials: {here.key}.", here.advice, agent=here.name
        )


def _here(adapter: AgentAdapter, settings: Settings) -> AgentHere:
    from codepilot.models.gateway.providers import KEY_NAMES, upstreams

    probe = adapter.probe(settings.environ)
    shared = settings.agents.of(adapter.name).credentials == "share"
    dialect = adapter.dialect
    served = any(dialect in (None, one.dialect) for one in upstreams(settings.environ, settings.models))
    if ":" in adapter.name:
        return AgentHere(adapter.name, probe, shared, "its model is its own choice", bool(probe.found), "")
    variable = " or ".join(names[0] for name, names in KEY_NAMES.items() if dialect in (None, name))
    credentials = probe.logged_in if shared else served
    if shared:
        advice = f"Log in with `{adapter.name}` itself, or set {variable} and leave `credentials` out."
    else:
        advice = f'Set {variable}, or share its own login: `[agents.{adapter.name}] credentials = "share"`.'
    if not probe.found:
        advice = f"Install {adapter.name} and put it on your PATH; docs/cli-agents.md names the package."
    key = f"{variable} is {'set' if served else 'not set'}"
    return AgentHere(adapter.name, probe, shared, key, bool(probe.found) and credentials, advice)
