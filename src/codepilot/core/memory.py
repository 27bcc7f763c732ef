"""Memories for later runs: a failure and its fix, a task and its solution. All texts are bounded."""

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field

from codepilot.core.contract import Contract

MAX_WORD, MAX_LINE, MAX_TEXT, MAX_NAMES = 200, 500, 1_200, 20

Word = Annotated[str, Field(max_length=MAX_WORD)]
Line = Annotated[str, Field(max_length=MAX_LINE)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Names = Annotated[tuple[Line, ...], Field(max_length=MAX_NAMES)]

MemoryKind: TypeAlias = Literal["failure", "pattern"]


class FailureMemory(Contract):
    """A failed test, and the change that fixed it."""

    kind: Literal["failure"] = "failure"
    error_type: Word
    message: Text
    signature: Line
    """The error without names, numbers and paths, which differ between cases."""
    where: Line = ""
    """The test, and the last lines of the traceback."""
    solution: Text
    changed: Line = ""
    """The changed files, with the number of lines added and removed."""


class PatternMemory(Contract):
    """A task, and how it was solved."""

    kind: Literal["pattern"] = "pattern"
    task: Text
    tests: Names = ()
    touched: Names = ()
    solution: Text
    changed: Line = ""


Memory: TypeAlias = Annotated[FailureMemory | PatternMemory, Field(discriminator="kind")]


class MemorySettings(Contract):
    """Whether a run records and recalls memories, and of which repositories."""

    enabled: bool = True
    across_repositories: bool = False
    """True if memories of other repositories are recalled too."""

    def tightened(self, wish: Self) -> "MemorySettings":
        """The user's settings, restricted further by the repository's `wish`."""
        return MemorySettings(
            enabled=self.enabled and wish.enabled,
            across_repositories=self.across_repositories and wish.across_repositories,
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


class MemoryRecalled(Contract):
    """The recalled memories in full, so that a resumed or replayed conversation sees the same ones."""

    kind: MemoryKind
    found: tuple[Recalled, ...]
