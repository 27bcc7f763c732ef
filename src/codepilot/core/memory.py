"""What a run leaves for those after it: a failure and what mended it, a task and what was done for it. All bounded."""

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
    """How a test failed, and the change that mended it."""

    kind: Literal["failure"] = "failure"
    error_type: Word
    message: Text
    signature: Line
    """The error without what differs from one case of it to the next: names, numbers, paths."""
    where: Line = ""
    """The test, and the last lines of the trace."""
    solution: Text
    changed: Line = ""
    """The files that the change touched, with how many lines it added and removed."""


class PatternMemory(Contract):
    """What was asked, and what was done for it."""

    kind: Literal["pattern"] = "pattern"
    task: Text
    tests: Names = ()
    touched: Names = ()
    solution: Text
    changed: Line = ""


Memory: TypeAlias = Annotated[FailureMemory | PatternMemory, Field(discriminator="kind")]


class MemorySettings(Contract):
    """Whether a run learns and recalls, and from whom."""

    enabled: bool = True
    across_repositories: bool = False
    """Whether what was recorded for other repositories is shown too."""

    def tightened(self, wish: Self) -> "MemorySettings":
        """What a repository may have of its wish: less than its reader allows, never more."""
        return MemorySettings(
            enabled=self.enabled and wish.enabled,
            across_repositories=self.across_repositories and wish.across_repositories,
        )


class Recalled(Contract):
    """A memory of another run that was found to be similar: where it is recorded, and how similar it is."""

    run_id: str
    seq: int = Field(ge=1)
    similarity: float = Field(ge=0.0, le=1.0)
    memory: Memory


class MemoryRecorded(Contract):
    """Something that later runs may learn from; `repo` is the base's lineage. Free of secrets."""

    repo: str
    language: str
    memory: Memory


class MemoryRecalled(Contract):
    """What other runs had recorded that is similar, whole: a conversation that goes on or is replayed reads alike."""

    kind: MemoryKind
    found: tuple[Recalled, ...]
