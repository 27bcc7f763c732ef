"""State that all conversations of one step share: the run, its turns, and the model in use."""

from __future__ import annotations

from dataclasses import dataclass, field

from codepilot.agents.protocol import StepContext
from codepilot.core.artifacts import ArtifactRef
from codepilot.core.breaker import tripped
from codepilot.core.contract import Contract
from codepilot.core.events import (
    BudgetWarned,
    DependencyDegraded,
    Event,
    EventType,
    ModelAsked,
    ModelSwitched,
    TurnFinished,
    TurnStarted,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.run import Run
from codepilot.core.spending import no_turn_left

TOOLS = "tools"
"""The dependency that a model lacks which cannot call tools."""


@dataclass
class StepConversation:
    """An agent's turns, events and model in one step."""

    context: StepContext
    turns: int = field(init=False)
    """The number of the last turn."""
    asked: str = field(init=False)
    """The model that was asked last."""
    switched: bool = field(init=False)
    """True after a switch to the fallback model."""
    gathered: bool = False
    """True when the event `context_gathered` is recorded."""
    fenced: set[str] = field(init=False)
    """The models of this run that cannot call tools and so write fenced code."""
    rooms: dict[str, int] = field(init=False)
    """The sizes of context that were known when this step asked a model."""
    warned: set[float] = field(default_factory=set)
    """The limits of money that were warned of in this step."""
    acted: bool = field(init=False)
    """True if code of this step has run, before or after a restart."""

    def __post_init__(self) -> None:
        started = [event.data for event in self.context.history if isinstance(event.data, TurnStarted)]
        self.turns = len(started)
        asked = [event.data for event in self.context.history if isinstance(event.data, ModelAsked)]
        self.asked = asked[-1].model if asked else ""
        self.rooms = {one.model: one.context_tokens for one in asked if one.context_tokens is not None}
        self.fenced = set()
        for event in (*self.context.earlier, *self.context.history):
            if isinstance(event.data, DependencyDegraded) and event.data.dependency == TOOLS:
                self.fenced.add(str(event.data.failure.details.get("model")))
        self.switched = self.context.run.fell_back or any(
            isinstance(event.data, ModelSwitched) for event in self.context.history
        )
        self.acted = any(turn.action.get("code") is not None for turn in started)

    @property
    def run(self) -> Run:
        return self.context.now()

    def record(self, kind: EventType, data: Contract, artifacts: tuple[ArtifactRef, ...] = ()) -> Event:
        """Append an event of this step."""
        event = self.context.append(kind, data, artifacts)
        if isinstance(data, BudgetWarned):
            self.warned.add(data.limit)
        self.asked = data.model if isinstance(data, ModelAsked) else self.asked
        self.switched = self.switched or isinstance(data, ModelSwitched)
        return event

    def fence(self, model: str, why: str) -> None:
        """Ask the model for fenced code from now on, in this run, and say so once."""
        if model in self.fenced:
            return
        self.fenced.add(model)
        failure = Failure(
            kind=FailureKind.MODEL_REFUSED,
            message=why,
            next_action="Nothing needs to be done; `[models.known.NAME] tools = false` says it beforehand.",
            details={"model": model},
        )
        consequence = f"{model} is asked for fenced code in place of tool calls"
        degraded = DependencyDegraded(dependency=TOOLS, consequence=consequence, failure=failure)
        self.record(EventType.DEPENDENCY_DEGRADED, degraded)

    def require_turn(self) -> None:
        """Raise if no turn is left: all conversations and tools of a step share its turns."""
        if (spent := no_turn_left(self.run)) is not None:
            raise CodePilotError.of(spent)

    def require_progress(self, finished: TurnFinished) -> None:
        """Raise if a call of this turn failed in the same way too often."""
        if (broken := tripped(self.run.failed_calls, finished, self.run.step_id)) is not None:
            raise CodePilotError.of(broken)

    def start_turn(self, turn: TurnStarted) -> None:
        self.turns = turn.turn
        self.record(EventType.TURN_STARTED, turn)

    def finish_turn(self, turn: TurnFinished, artifacts: tuple[ArtifactRef, ...] = ()) -> TurnFinished:
        """The turn as it is on record: with the tree it left, and what the engine found wrong in that."""
        recorded = self.record(EventType.TURN_FINISHED, turn, artifacts).data
        return recorded if isinstance(recorded, TurnFinished) else turn
