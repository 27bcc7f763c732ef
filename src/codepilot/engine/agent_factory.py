"""Chooses the agent and models of a task when it is submitted, and makes them on the worker."""

from __future__ import annotations

import difflib
from functools import lru_cache, partial

from codepilot.agents import (
    BUILD_PARTS,
    ROLES,
    Agent,
    AgentParts,
    CliSettings,
    Limits,
    agent_spec,
    is_cli_agent,
    make_agent,
    profile,
    profile_names,
)
from codepilot.agents.roles import all_parts
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.model_settings import ModelSettings
from codepilot.core.task import TaskSpec
from codepilot.engine.settings import Settings
from codepilot.models import Model, ReplayModel, make_model, plain_name, settled, usual_model


def choose_models(
    agent: str, model: str | None, fallback: str | None, settings: Settings
) -> tuple[str | None, str | None]:
    """The model and the one behind it, by name; none for an agent that asks none."""
    if is_cli_agent(agent):
        return _model_of_program(agent, model, fallback, settings), None
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
    if is_cli_agent(agent):
        return make_agent(agent, AgentParts(cli=partial(cli_settings, settings, agent, model)))
    if model is None:
        return make_agent(agent)

    def made(spec: str, behind: str | None = None) -> Model:
        return make_model(spec, behind, environ=settings.environ, settings=settings.models, here=here)

    limits, thinking = _limits(settings.models), made(model, fallback)
    spare = made(fallback) if fallback else None
    if isinstance(thinking, ReplayModel) and thinking.spare:
        spare = thinking
    return make_agent(agent, AgentParts(model=thinking, fallback=spare, limits=limits))


def cli_settings(settings: Settings, chosen: str, model: str | None, name: str) -> CliSettings:
    """How the program `name` is run for a task that names the agent `chosen` with `model`."""
    own, agents = settings.agents.of(name), settings.agents
    return CliSettings(
        environ=settings.environ,
        model=plain_name((model if name == chosen else None) or own.model or ""),
        credentials=own.credentials,
        no_progress_sec=agents.no_progress_sec,
        on_quota=agents.on_quota,
        fallback=_fallback(settings, chosen),
        profiles={one: profile(one, settings.profiles) for one in profile_names(settings.profiles)},
    )


def _fallback(settings: Settings, chosen: str) -> tuple[str, ...]:
    """The agents that may take over. Only programs can: they go on from files alone."""
    for name in settings.agents.fallback:
        if not is_cli_agent(name):
            agent_spec(name)  # refuses an unknown name with those that exist
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"[agents] fallback names {name!r}, which cannot go on with the work of another.",
                next_action="Name programs: claude, codex, gemini, opencode, acp:COMMAND or stdio:COMMAND.",
            )
    return tuple(name for name in dict.fromkeys(settings.agents.fallback) if name != chosen)


def _model_of_program(agent: str, model: str | None, fallback: str | None, settings: Settings) -> str | None:
    """The model that the user chose for a program, which asks it itself."""
    _fallback(settings, agent)
    if fallback or (model or "").startswith(("replay:", "scripted:")):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The agent {agent!r} asks its model itself: it has no fallback model and replays nothing.",
            next_action="Name other agents in [agents] fallback, or use --agent codeact.",
        )
    return model or settings.agents.of(agent).model


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
    names = list(dict.fromkeys(role.name for role in (*ROLES.values(), *all_parts(), *BUILD_PARTS)))
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
