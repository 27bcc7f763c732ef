"""Landing: proved changes join a branch one after the other, each judged on top of those before it. Pure."""

from dataclasses import dataclass
from typing import Literal

from codepilot.core.contract import Contract


class LandingQueued(Contract):
    """The change waits for its turn to join a branch."""

    branch: str
    position: int
    by: str = "user"
    accept_plausible: bool = False
    by_service: bool = False
    """True if a service carries it out; else the command that was given."""


class Landed(Contract):
    """The change is a commit of the branch: merged, judged on the merged tree, then added by one compare-and-swap."""

    checkout: str
    branch: str
    commit: str
    parent: str
    judged_by: str
    """The run that judged the merged tree."""


class LandingRefused(Contract):
    """The change did not join the branch."""

    branch: str
    reason: str
    conflicts: tuple[str, ...] = ()
    """The files that the branch and the change both changed."""
    judged_by: str | None = None


@dataclass(frozen=True)
class LandingEntry:
    """A change on its way to a branch, or what became of it."""

    run_id: str
    goal: str
    checkout: str
    branch: str
    status: Literal["queued", "landed", "refused"]
    at: int
    """The last event of the run."""
    position: int = 0
    by: str = ""
    commit: str = ""
    judged_by: str = ""
    """The run that judged the merged tree."""
    reason: str = ""
    """Why it was refused."""
    conflicts: tuple[str, ...] = ()
