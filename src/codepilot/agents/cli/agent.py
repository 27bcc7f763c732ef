"""The agent whose decisions a program of its own makes, inside the sandbox."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from codepilot.agents.cli.attempt import AttemptStep
from codepilot.agents.cli.protocol import AgentAdapter
from codepilot.agents.cli.settings import CliSettings
from codepilot.agents.cli.step import CliStep
from codepilot.agents.protocol import RoleArtifact, StepContext
from codepilot.core.events import AgentSwitched, EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability

ROLES = frozenset({State.IMPLEMENT})
_TAKEN_OVER = (
    "{agent} began this task and cannot go on. The files are as it left them: check what it did, and finish the task."
)


class CliAgent:
    """Implements by a program; the platform plans, tests and reviews."""

    roles = ROLES
    needs = Capability.READ_ONLY
    languages: frozenset[str] | None = None

    def __init__(
        self, adapter: AgentAdapter, settings: CliSettings, other: Callable[[str], tuple[AgentAdapter, CliSettings]]
    ) -> None:
        """`other` finds the agents of `settings.fallback` by their names."""
        self.name = adapter.name
        self._adapter = adapter
        self._settings = settings
        self._other = other

    def perform(self, role: State, context: StepContext) -> RoleArtifact:
        """Let the program work. When its quota is used up, the next agent goes on from the same files."""
        if context.run.task.attempt is not None:
            return AttemptStep(self._adapter, self._settings, context, context.run.task.attempt).make()
        names = [self.name, *self._settings.fallback]
        at = names.index(_switched(names, context) or self.name)
        taken_over = _here(names[at], context)
        while True:
            adapter, settings = (self._adapter, self._settings) if at == 0 else self._other(names[at])
            try:
                return CliStep(adapter, settings, context, taken_over).work()
            except CodePilotError as error:
                if error.kind is not FailureKind.MODEL_QUOTA or self._settings.on_quota == "wait":
                    raise
                if self._settings.on_quota == "stop":
                    raise _without_reset(error) from error
                if at + 1 == len(names):
                    raise
                reason = error.failure.message
            switched = AgentSwitched(agent=names[at], to=names[at + 1], reason=reason)
            event = context.append(EventType.AGENT_SWITCHED, switched)
            context = replace(context, history=(*context.history, event))
            taken_over = _TAKEN_OVER.format(agent=names[at])
            at += 1


def _switched(names: list[str], context: StepContext) -> str | None:
    """The agent that took over in this run."""
    events = {event.seq: event for event in (*context.earlier, *context.history)}
    found = [event.data.to for event in events.values() if isinstance(event.data, AgentSwitched)]
    return next((name for name in reversed(found) if name in names), None)


def _here(name: str, context: StepContext) -> str:
    """The words to an agent that took over in this very step."""
    found = [event.data for event in context.history if isinstance(event.data, AgentSwitched)]
    return _TAKEN_OVER.format(agent=found[-1].agent) if found and found[-1].to == name else ""


def _without_reset(error: CodePilotError) -> CodePilotError:
    """The failure as one that waits for a person, not for the quota."""
    failure = error.failure
    kept = {name: value for name, value in failure.details.items() if name != "reset_at"}
    return CodePilotError.of(failure.model_copy(update={"details": kept}))
