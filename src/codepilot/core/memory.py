"""Memories for later runs: a failure and its fix, a task and its solution, a quirk of a repository.

All texts are bounded.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field

from codepilot.core.contract import Contract

MAX_WORD, MAX_LINE, MAX_TEXT, MAX_NAMES = 200, 500, 1_200, 20

Word = Annotated[str, Field(max_length=MAX_WORD)]
Line = Annotated[str, Field(max_length=MAX_LINE)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Names = Annotated[tuple[Line, ...], Field(max_length=MAX_NAMES)]

MemoryKind: TypeAlias = Literal["failure", "pattern", "quirk"]


class FailureMemory(Contract):
    """A failed test, and the change that fixed it once there was one."""

    kind: Literal["failure"] = "failure"
    error_type: Word
    message: Text
    signature: Line
    """The error without names, numbers and paths, which differ between cases."""
    where: Line = ""
    """The test, and the last lines of the traceback."""
    cause: Text = ""
    """The root cause that the reflector gave."""
    solution: Text = ""
    """What fixed it; empty as long as nothing did."""
    changed: Line = ""
    """The changed files, with the number of lines added and removed."""


class PatternMemory(Contract):
    """A task, and how it was solved."""

    kind: Literal["pattern"] = "pattern"
    task_type: Word = ""
    """The kind of the task."""
    task: Text
    tests: Names = ()
    touched: Names = ()
    solution: Text
    changed: Line = ""
    notes: Text = ""
    """The approach of the plan, or the last error of a partial solution."""
    partial: bool = False
    """True if the run failed: some of it works."""


class QuirkMemory(Contract):
    """What is peculiar about a repository, for example `tests need TZ=UTC`."""

    kind: Literal["quirk"] = "quirk"
    text: Annotated[str, Field(min_length=1, max_length=MAX_LINE)]
    by: Word = ""
    """Who added it; empty if a run learnt it."""


Memory: TypeAlias = Annotated[FailureMemory | PatternMemory | QuirkMemory, Field(discriminator="kind")]


class MemorySettings(Contract):
    """True if a run records and recalls memories, and of which repositories."""

    enabled: bool = True
    """False if runs record and recall nothing."""
    across_repositories: bool = False
    """True if memories of other repositories are recalled too."""
    embeddings: str | None = None
    """The model that compares memories by meaning: openai:NAME or openai-compatible:URL#NAME. None compares words."""

    def tightened(self, wish: Self) -> "MemorySettings":
        """The user's settings, restricted further by the repository's `wish`."""
        return MemorySettings(
            enabled=self.enabled and wish.enabled,
            across_repositories=self.across_repositories and wish.across_repositories,
            embeddings=self.embeddings,
        )


class Recalled(Contract):
    """A similar memory of another run, with the place of its record."""

    run_id: str
    seq: int = Field(ge=1)
    similarity: float = Field(ge=0.0, le=1.0)
    memory: Memory


class MemoryRecorded(Contract):
    """A memory for later runs, without secrets. `repo` is the base's lineage."""

    repo: str
    language: str
    memory: Memory


class MemorySolved(Contract):
    """The failure of this run's memory number `of` no longer occurs."""

    of: int = Field(ge=1)
    solution: Text
    changed: Line = ""


class MemoryForgotten(Contract):
    """A person removed this run's memory number `of`."""

    of: int = Field(ge=1)
    by: Word = ""


class MemoryRecalled(Contract):
    """The recalled memories in full, so that a resumed or replayed conversation sees the same ones.

    `kind` was asked for; the repository's quirks come with it.
    """

    kind: MemoryKind
    found: tuple[Recalled, ...]


class MemoryUse(Contract):
    """A run that was shown a memory."""

    run_id: str
    state: str
    verdict: str | None = None
    iterations: int = 0
    at: int = 0

    @property
    def ended(self) -> bool:
        return self.state in ("DONE", "FAILED", "ABORTED")


def success_rate(uses: Sequence[MemoryUse]) -> float | None:
    """The share of the ended runs that succeeded; None if none has ended."""
    ended = [use for use in uses if use.ended]
    return sum(use.state == "DONE" for use in ended) / len(ended) if ended else None
