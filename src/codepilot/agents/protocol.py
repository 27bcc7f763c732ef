"""An agent answers one question: given the work so far, what next?

An agent declares the roles it has. The engine gives it a `StepContext` for one step; the agent works with it and
returns that role's artifact, or raises a typed failure. It never judges tests, never touches the store and
never executes anything itself: the context's executor does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from codepilot.agents.cli.protocol import Session
from codepilot.context import Survey
from codepilot.core.approval import Operation, Risk
from codepilot.core.artifacts import Answer, ArtifactRef, PatchCandidate, Reflection, RepoMap, Review
from codepilot.core.contract import Contract
from codepilot.core.events import Event, EventDraft, EventType, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import MemoryKind, Recalled
from codepilot.core.plan import Plan
from codepilot.core.run import Run
from codepilot.core.task import Capability
from codepilot.executor import Executor, RunCommand
from codepilot.models import Vector
from codepilot.models.gateway import Dialect, ModelEndpoint
from codepilot.project import Project, SuiteRun
from codepilot.repair import Ages
from codepilot.store import MemoryRow


class Abstained(Exception):
    """The agent has the role and leaves it out this time; its message says why."""


class Ask(Protocol):
    """Asks a person: True if the operation is allowed, False if it is denied; raises `ApprovalNeeded` until then."""

    def __call__(
        self,
        operation: Operation,
        subject: str,
        *,
        risk: Risk = "medium",
        reasons: tuple[str, ...] = (),
        snippet: str = "",
        occasion: str = "",
    ) -> bool: ...


def denied(
    operation: Operation,
    subject: str,
    *,
    risk: Risk = "medium",
    reasons: tuple[str, ...] = (),
    snippet: str = "",
    occasion: str = "",
) -> bool:
    """The answer if no person can be asked."""
    return False


RoleArtifact = RepoMap | Plan | PatchCandidate | Reflection | Review | Answer


@dataclass(frozen=True)
class StepContext:
    """Everything an agent works with in one step."""

    run: Run
    """The run as it was when the step began."""
    now: Callable[[], Run]
    """The run with everything recorded since."""
    executor: Executor
    workspace: str
    project: Project
    baseline: SuiteRun
    history: Sequence[Event]
    """This step's events so far, oldest first: what a crashed attempt had already recorded."""
    record: Callable[[EventDraft], Event]
    """Append an event of this step durably."""
    raise_if_stopped: Callable[[], None]
    """A safe point: raises when the run is paused, cancelled or out of budget."""
    seconds_left: Callable[[], float]
    keep: Callable[[bytes], ArtifactRef]
    """Store bytes; the agent records the event that refers to them."""
    fetch: Callable[[ArtifactRef], bytes]
    copied: Callable[[], AbstractContextManager[str]]
    """A copy of the workspace under another name, deleted at the end of the block."""
    stopped: Callable[[], bool] = lambda: False
    """True when calls in flight must be dropped: cancelled, lease lost, worker leaving or out of budget."""
    on_text: Callable[[str], None] = lambda piece: None
    """Receives a model's text as it streams."""
    on_output: Callable[[bytes], None] = lambda data: None
    """Receives what a program writes to its terminal."""
    ages: Callable[[tuple[str, ...]], Ages] = lambda paths: {}
    """The age of each line of files, where the base has a history."""
    survey: Callable[[], Survey] | None = None
    """A map of the base, where one can be made."""
    earlier: Sequence[Event] = ()
    """The whole run's events when the step began."""
    remember: Callable[[MemoryKind, str], Sequence[MemoryRow]] | None = None
    """Reads memories of other runs that share words with a text, if the task wants them. May fail: an agent can do
    without."""
    success_of: Callable[[MemoryRow], float | None] = lambda row: None
    """The share of the runs that were shown a memory and succeeded; None if no such run has ended."""
    vectors: Callable[[Sequence[str]], Sequence[Vector]] | None = None
    """Turns texts into vectors, where a model for that is configured. May fail: words are compared then."""
    ask: Ask = denied
    """Ask a person to allow an operation; the step waits if the answer is not on record. False is a denial."""
    open_again: Callable[[Sequence[str]], None] = lambda packages: None
    """Install packages that a person allowed, and let the step's code reach them and the hosts that are allowed now.

    The kernel restarts.
    """
    recalled: tuple[Recalled, ...] = ()
    """The memories that are shown in this step."""
    model_endpoint: Callable[[Dialect], ModelEndpoint] | None = None
    """Where a program that runs inside the sandbox finds its model, metered by the run's budget; None if nowhere.

    Raises a typed failure if the dialect's provider has no key on this machine.
    """
    model_active_at: Callable[[], float] = lambda: 0.0
    """When a call through the gateway last went on, by the monotonic clock: a long reply is progress."""
    quota_reset_at: Callable[[], int | None] = lambda: None
    """When the quota that refused the last call through the gateway is there again, in microseconds, if known."""
    directory: Callable[[], str] = lambda: "/"
    """The workspace's path as code inside sees it."""
    still: Callable[[], AbstractContextManager[None]] | None = None
    """Stops everything that runs in the workspace for a block, between checkpoints; None if nothing else does that."""
    session: Session | None = None
    """The supervision of an agent in interactive mode; None in deterministic mode."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The tests to repair."""
        return self.run.baseline.targets if self.run.baseline else self.baseline.red

    def append(self, kind: EventType, data: Contract, artifacts: tuple[ArtifactRef, ...] = ()) -> Event:
        """Record an event of this step."""
        run = self.now()
        draft = EventDraft(type=kind, data=data, step_id=run.step_id, attempt=run.attempt, artifacts=artifacts)
        return self.record(draft)


class Agent(Protocol):
    name: str
    roles: frozenset[State]
    needs: Capability
    """The least it can work with."""
    languages: frozenset[str] | None
    """The languages that it can work on; None means all of them."""

    def perform(self, role: State, context: StepContext) -> RoleArtifact: ...


WRITE_SEC = 60.0
_WRITER = "import sys\nwith open(sys.argv[1], 'wb') as f: f.write(sys.stdin.buffer.read())"


def write_file(context: StepContext, path: str, content: bytes) -> None:
    """Make the file hold exactly these bytes; nothing is done if it already does."""
    if context.executor.read_file(context.workspace, path) == content:
        return
    command = RunCommand(
        workspace=context.workspace,
        argv=(context.project.interpreter.executable, "-I", "-S", "-c", _WRITER, path),
        stdin=content,
        timeout_sec=WRITE_SEC,
    )
    result = context.executor.run_command(command)
    if result.status != "ok" or context.executor.read_file(context.workspace, path) != content:
        raise CodePilotError(
            FailureKind.TOOL_FAILED,
            f"The repair could not be written to {path} ({result.limit or result.status}).",
            stderr=result.stderr[-500:].decode("utf-8", "replace"),
        )
