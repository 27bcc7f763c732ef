"""State that all conversations of one step share: the run, its turns, and the model in use."""

from __future__ import annotations

from dataclasses import dataclass, field

from codepilot.agents.protocol import StepContext
from codepilot.core.artifacts import ArtifactRef
from codepilot.core.breaker import tripped
from codepilot.core.contract import Contract
from codepilot.core.events import (
    Event,
    EventType,
    ModelAsked,
    ModelSwitched,
    TurnFinished,
    TurnStarted,
)
from codepilot.core.failures import CodePilotError
from codepilot.core.run import Run
from codepilot.core.spending import no_turn_left


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
    acted: bool = field(init=False)
    """True if code of this step has run, before or after a restart."""

    def __post_init__(self) -> None:
        started = [event.data for event in self.context.history if isinstance(event.data, TurnStarted)]
        self.turns = len(started)
        models = [event.data.model for event in self.context.history if isinstance(event.data, ModelAsked)]
        self.asked = models[-1] if models else ""
        self.switched = any(isinstance(event.data, ModelSwitched) for event in self.context.history)
        self.acted = any(turn.action.get("code") is not None for turn in started)

    @property
    def run(self) -> Run:
        return self.context.now()

    def record(self, kind: EventType, data: Contract, artifacts: tuple[ArtifactRef, ...] = ()) -> Event:
        """Append an event of this step."""
        event = self.context.append(kind, data, artifacts)
        self.asked = data.model if isinstance(data, ModelAsked) else self.asked
        self.switched = self.switched or isinstance(data, ModelSwitched)
        return event

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
