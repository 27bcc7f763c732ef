"""An agent answers one question: given the work so far, what next?

An agent declares the roles it has. The engine gives it a `Desk` for one step; the agent works there and
returns that role's artifact, or raises a typed failure. It never judges tests, never touches the store and
never executes anything itself: the desk's executor does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from codepilot.context import Survey
from codepilot.core.artifacts import ArtifactRef, PatchCandidate, Reflection, RepoMap, Review
from codepilot.core.events import Event, EventDraft, State
from codepilot.core.memory import MemoryKind, Recalled
from codepilot.core.plan import Plan
from codepilot.core.run import Run
from codepilot.core.task import Capability
from codepilot.executor import Executor
from codepilot.project import Project, SuiteRun
from codepilot.repair import Ages
from codepilot.store import MemoryRow


class Abstained(Exception):
    """The agent has the role and leaves it out this time; its message says why."""


RoleArtifact = RepoMap | Plan | PatchCandidate | Reflection | Review


@dataclass(frozen=True)
class Desk:
    """One step's working place."""

    run: Run
    """The run as it was when this place was made."""
    now: Callable[[], Run]
    """The run as everything that was recorded since leaves it."""
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
    """Store bytes worth keeping; the event that tells of them is the agent's to record."""
    fetch: Callable[[ArtifactRef], bytes]
    copied: Callable[[], AbstractContextManager[str]]
    """A copy of the workspace, under a name of its own, that is deleted when the block is left."""
    stopped: Callable[[], bool] = lambda: False
    """Whether what is in flight must not be waited for: cancelled, lost, leaving or out of budget."""
    hear: Callable[[str], None] = lambda piece: None
    """Gets a model's words while they come."""
    ages: Callable[[tuple[str, ...]], Ages] = lambda paths: {}
    """How long ago the lines of files were changed, where the base has a history."""
    survey: Callable[[], Survey] | None = None
    """A map of the base, where one can be made."""
    earlier: Sequence[Event] = ()
    """The whole run's events when the step began."""
    remember: Callable[[MemoryKind], Sequence[MemoryRow]] | None = None
    """What other runs have recorded, where that is wanted. May fail: an agent can do without."""
    recalled: tuple[Recalled, ...] = ()
    """Those of it that are shown in this step."""


class Agent(Protocol):
    name: str
    roles: frozenset[State]
    needs: Capability
    """The least it can work with."""
    languages: frozenset[str] | None
    """The languages that it can work on; None means all of them."""

    def perform(self, role: State, desk: Desk) -> RoleArtifact: ...
