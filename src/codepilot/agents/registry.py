"""Agents by name."""

from __future__ import annotations

from collections.abc import Mapping

from codepilot.agents.codeact import CodeActAgent
from codepilot.agents.protocol import Agent
from codepilot.agents.repair_agent import RepairAgent
from codepilot.agents.roles import Limits
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.models import Model
from codepilot.skills import Registry

NAMES = ("codeact", "repair")


def make_agent(
    name: str,
    *,
    model: Model | None = None,
    fallback: Model | None = None,
    skills: Registry | None = None,
    limits: Mapping[str, Limits] | None = None,
    workers: int = 2,
) -> Agent:
    """The agent a task names. `codeact` thinks with a chat model; `repair` needs nothing."""
    if name == "repair":
        return RepairAgent(workers=workers)
    if name == "codeact":
        if model is None:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                "The agent 'codeact' needs a chat model and none is configured.",
                next_action="Configure a model, or use --agent repair.",
            )
        return CodeActAgent(model, skills, fallback=fallback, limits=limits)
    raise CodePilotError(
        FailureKind.INVALID_SPEC, f"There is no agent {name!r}.", next_action=f"Use one of: {', '.join(NAMES)}."
    )
