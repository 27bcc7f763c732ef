"""What all conversations of one step share: the run as its events leave it, and how many turns were taken."""

from __future__ import annotations

from dataclasses import dataclass, field

from codepilot.agents.protocol import Desk
from codepilot.core.artifacts import ArtifactRef
from codepilot.core.breaker import FailedCall
from codepilot.core.contract import Contract
from codepilot.core.decide import over_budget
from codepilot.core.events import (
    Event,
    EventDraft,
    EventType,
    ModelAsked,
    ModelSwitched,
    TurnFinished,
    TurnStarted,
)
from codepilot.core.failures import CodePilotError
from codepilot.core.run import Run, evolve


@dataclass
class Seat:
    """An agent at its desk."""

    desk: Desk
    run: Run = field(init=False)
    turns: int = field(init=False)
    violations: int = field(init=False)
    failed_calls: tuple[FailedCall, ...] = field(init=False)
    asked: str = field(init=False)
    """The model that was asked last."""
    switched: bool = field(init=False)
    """Whether the other model goes on with this step."""
    gathered: bool = False
    """Whether it is on record what is shown of the repository."""
    acted: bool = field(init=False)
    """Whether code of this step has run, in this life or an earlier one."""

    def __post_init__(self) -> None:
        started = [event.data for event in self.desk.history if isinstance(event.data, TurnStarted)]
        self.run = self.desk.run
        self.turns = len(started)
        self.violations = self.run.violations
        self.failed_calls = self.run.failed_calls
        models = [event.data.model for event in self.desk.history if isinstance(event.data, ModelAsked)]
        self.asked = models[-1] if models else ""
        self.switched = any(isinstance(event.data, ModelSwitched) for event in self.desk.history)
        self.acted = any(turn.action.get("code") is not None for turn in started)

    def record(self, kind: EventType, data: Contract, artifacts: tuple[ArtifactRef, ...] = ()) -> Event:
        """Append an event of this step."""
        draft = EventDraft(
            type=kind, data=data, step_id=self.run.step_id, attempt=self.run.attempt, artifacts=artifacts
        )
        event = self.desk.record(draft)
        self.run = evolve(self.run, event)
        self.asked = data.model if isinstance(data, ModelAsked) else self.asked
        self.switched = self.switched or isinstance(data, ModelSwitched)
        return event

    def require_turn(self) -> None:
        """All conversations and tools of a step share its turns."""
        limit = self.run.task.budget.turns_per_step
        if self.turns >= limit:
            spent = over_budget("turns_per_step", self.turns, limit)
            raise CodePilotError(spent.kind, spent.message, spent.next_action, **spent.details)

    def start_turn(self, turn: TurnStarted) -> None:
        self.turns = turn.turn
        self.record(EventType.TURN_STARTED, turn)

    def finish_turn(self, turn: TurnFinished, artifacts: tuple[ArtifactRef, ...] = ()) -> TurnFinished:
        """The turn as it is on record: with the tree it left, and what the engine found wrong in that."""
        recorded = self.record(EventType.TURN_FINISHED, turn, artifacts).data
        turn = recorded if isinstance(recorded, TurnFinished) else turn
        found = turn.observation.get("violations")
        self.violations += len(found) if isinstance(found, list) else 0
        return turn
