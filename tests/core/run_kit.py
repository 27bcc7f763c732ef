"""A run driven by hand through the state machine: what the store does, without a database."""

from __future__ import annotations

from hypothesis import strategies as st

from codepilot.core.approval import ApprovalRequested
from codepilot.core.artifacts import TestResult
from codepilot.core.attempt import Attempt, Profile
from codepilot.core.decide import (
    Failed,
    NeedsApproval,
    Outcome,
    Paused,
    Red,
    Refused,
    Skipped,
    Succeeded,
    decide,
    start,
)
from codepilot.core.events import (
    Event,
    EventDraft,
    EventType,
    State,
    StepStarted,
    TurnStarted,
    Usage,
)
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.pipeline import PIPELINES
from codepilot.core.run import Run, begin, evolve
from codepilot.core.scaffold import Ecosystem, Scaffold
from codepilot.core.task import Goal, ProposedChange, TaskKind, TaskSpec

AGENT_KINDS = [kind for kind, pipeline in PIPELINES.items() if pipeline.roles]
"""The kinds of task on which an agent works."""


class Log:
    """The events of one run, and the run they tell."""

    def __init__(self, **task: object) -> None:
        if task.get("kind") is TaskKind.PROVE:
            task["proposed"] = ProposedChange()
        if task.get("kind") is TaskKind.SCAFFOLD:
            task["scaffold"] = Scaffold(ecosystem=Ecosystem.PYTHON, name="shop")
        if task.get("kind") is TaskKind.PROMPT:
            task["attempt"] = Attempt(task_id="one", prompt="mend it", profile=Profile())
        spec = TaskSpec(task_id="t-1", goal=Goal(natural="mend it"), repo="/r", **task)  # type: ignore[arg-type]
        self.events: list[Event] = []
        self.run: Run | None = None
        self.clock = 1_000_000
        self.add(start(spec, "r-1"))

    def add(self, drafts: list[EventDraft]) -> None:
        for draft in drafts:
            self.clock += 1000
            fields = {name: getattr(draft, name) for name in EventDraft.model_fields}
            seq = len(self.events) + 1
            event = Event(**fields, event_id=f"e-{seq}", seq=seq, run_id="r-1", at=self.clock)
            self.events.append(event)
            self.run = begin(event) if self.run is None else evolve(self.run, event)

    @property
    def now(self) -> Run:
        assert self.run is not None
        return self.run

    def record(self, kind: EventType, data: object) -> None:
        self.add([EventDraft(type=kind, data=data, step_id=self.now.step_id, attempt=self.now.attempt)])  # type: ignore[arg-type]

    def started(self, seconds: float = 0.0) -> None:
        self.record(EventType.STEP_STARTED, StepStarted(worker="w", fence=1))
        self.clock += int(seconds * 1e6)

    def ends(self, outcome: Outcome, seconds: float = 0.0) -> None:
        self.started(seconds)
        if isinstance(outcome, Red):
            self.record(EventType.TESTS_JUDGED, outcome.result)
        self.add(decide(self.now, outcome, self.clock + 1000))

    def spend(self, **used: float) -> None:
        """A turn of an agent that used this much."""
        usage = Usage.model_validate({"turns": 1, **used})
        self.record(EventType.TURN_STARTED, TurnStarted(turn=self.now.spent.step_turns + 1, action={}, usage=usage))

    def reach(self, state: State) -> None:
        """By steps that succeed: no road is longer than there are states, and where one ends nothing is reached."""
        for _ in State:
            if self.now.state is not state:
                self.ends(Succeeded())
        assert self.now.state is state


def red(signature: str = "boom") -> Red:
    return Red(TestResult(passed=False, cmd=("t",), exit_code=1, failed_tests_after=("a",), signature=signature))


def failed(kind: FailureKind, message: str = "it broke") -> Failed:
    return Failed(Failure(kind=kind, message=message))


OUTCOMES = st.one_of(
    st.builds(Succeeded),
    st.builds(Skipped, st.just("no role")),
    st.builds(red, st.sampled_from(["x", "y", "z"])),
    st.builds(failed, st.sampled_from(list(FailureKind)), st.sampled_from(["m", "n"])),
    st.builds(lambda: Refused(Failure(kind=FailureKind.REVIEW_REFUSED, message="no"))),
    st.builds(Paused),
    st.builds(
        lambda name: NeedsApproval(ApprovalRequested(approval_id=name, operation="network")),
        st.sampled_from(["a", "b"]),
    ),
)
