"""Who works on a task, and with which models: chosen when the task is made, made where it is worked on."""

from __future__ import annotations

import difflib
from functools import lru_cache

from codepilot.agents import ROLES, Agent, AgentParts, Limits, agent_spec, make_agent
from codepilot.agents.roles import all_parts
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.model_settings import ModelSettings
from codepilot.core.task import TaskSpec
from codepilot.engine.settings import Settings
from codepilot.models import Model, ReplayModel, make_model, settled, usual_model


def choose_models(
    agent: str, model: str | None, fallback: str | None, settings: Settings
) -> tuple[str | None, str | None]:
    """The model and the one behind it, by name; none for an agent that asks none."""
    if agent_spec(agent).needs_model:
        again = model is not None and model.startswith("replay:")
        behind = fallback or (None if again else settings.models.fallback)
        return settled(model or usual_model(settings.environ, settings.models)), settled(behind) if behind else None
    if model or fallback:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The agent {agent!r} uses no model.",
            next_action="Leave the model out, or choose an agent that needs one, for example --agent codeact.",
        )
    return None, None


def make_task_agent(
    agent: str, model: str | None, fallback: str | None, settings: Settings, *, here: bool = True
) -> Agent:
    """The agent with its models. A model that cannot be used from here is refused now."""
    if model is None:
        return make_agent(agent)

    def made(spec: str, behind: str | None = None) -> Model:
        return make_model(spec, behind, environ=settings.environ, settings=settings.models, here=here)

    limits, thinking = _limits(settings.models), made(model, fallback)
    spare = made(fallback) if fallback else None
    if isinstance(thinking, ReplayModel) and thinking.spare:
        spare = thinking
    return make_agent(agent, AgentParts(model=thinking, fallback=spare, limits=limits))


class AgentFactory:
    """Makes the agent that a task names, once for all steps of the task: its connections stay open, and what a provider
    refused is not tried again.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made = lru_cache(maxsize=64)(self._make)

    def __call__(self, task: TaskSpec) -> Agent:
        return self._made(task.task_id, task.agent, task.model, task.fallback_model)

    def _make(self, task_id: str, agent: str, model: str | None, fallback: str | None) -> Agent:
        return make_task_agent(agent, model, fallback, self._settings)


def _limits(settings: ModelSettings) -> dict[str, Limits]:
    """How roles ask, by their names; a name that no role has is a mistake."""
    names = [role.name for role in (*ROLES.values(), *all_parts())]
    for name in settings.roles:
        if name not in names:
            close = difflib.get_close_matches(name.title(), names, 1)
            meant = f"; did you mean {close[0]}?" if close else "."
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"[models.roles] has {name!r}, and there is no such role{meant}",
                next_action=f"Use one of: {', '.join(names)}.",
            )
    return {name: Limits(role.temperature, role.max_tokens) for name, role in settings.roles.items()}
