"""The interface of a programming language to the search. `python/` implements it; the core knows no language."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from codepilot.project import Project
from codepilot.repair.edit import Edit, Proposal, Source, Sources, Unit
from codepilot.repair.localise import Suspicion, TestTrace
from codepilot.repair.selection import TestSelector

if TYPE_CHECKING:
    from codepilot.repair.trial import Trial


@dataclass(frozen=True)
class Failure:
    """Why the targets fail: exception names, messages, and the places that the exceptions passed through."""

    exceptions: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    frames: tuple[tuple[str, int], ...] = ()
    expected: tuple[str, ...] = ()
    """Texts that the failing tests spell out."""
    literals: tuple[str, ...] = ()
    """All literals of the failing tests, as they are shown."""

    @classmethod
    def of(cls, failing: Sequence[TestTrace], expected: tuple[str, ...], literals: tuple[str, ...]) -> Failure:
        return cls(
            tuple(dict.fromkeys(trace.exception for trace in failing if trace.exception)),
            tuple(trace.message for trace in failing),
            tuple(place for trace in failing for place in trace.frames),
            expected,
            literals,
        )


@dataclass(frozen=True)
class SearchFacts:
    """All that is known before the first candidate is tried."""

    sources: Sources
    suspicion: Suspicion
    failure: Failure
    selector: TestSelector


class LanguageBackend(Protocol):
    """Reads, edits and runs the files of one language."""

    best_prior: float
    """The prior of the likeliest template: what a change that somebody proposes is worth."""

    def worker_command(self, project: Project) -> tuple[tuple[str, ...], bytes]:
        """The command that starts a worker in the sandbox, and what it reads first."""

    def read(self, path: str, data: bytes) -> Source:
        """Parse a file; `Unreadable` if it cannot be edited safely."""

    def unparsed(self, log: str, project: Project) -> str:
        """The place at which a file does not parse, from the log of loading the tests; empty if all parse."""

    def judging_files(self, tests: Sequence[str], runner: str) -> Callable[[str], bool]:
        """Tells which files judge a repair (tests and their configuration): those are never edited."""

    def test_file(self, test: str) -> str:
        """The file of a test, or what the runner names instead."""

    def expected(self, read: Callable[[str], bytes], tests: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """String literals in the source of the tests, and all literals as they are shown; `read` gives a file."""

    def candidates(self, facts: SearchFacts, wanted: Callable[[Source, Unit | None], bool]) -> Iterator[Proposal]:
        """Single edits of wanted functions (None: of what is outside of functions), the likeliest first."""

    def synthesise(
        self, trial: Trial, facts: SearchFacts, seconds: float, position: int, enough: Callable[[], bool]
    ) -> Iterator[Proposal]:
        """Edits with expressions that were synthesised for what is missing; positions count on from `position`."""

    def documented_examples(self, proposal: Proposal) -> tuple[tuple[str, str], ...]:
        """Examples in the documentation of the file's functions: calls and results, the edited function's first."""

    def general_rivals(self, proposal: Proposal) -> Iterator[Edit]:
        """The edit with a general condition in place of each special case that it brings in."""

    def same_edit_elsewhere(self, proposal: Proposal) -> Edit | None:
        """The edit made at every place of the file that has the same text."""

    def special_case(self, proposal: Proposal, literals: frozenset[str]) -> str:
        """The literal of the tests for which the edit makes a special case; empty if it does not."""

    def contrast(self, read: Callable[[str], bytes], test: str, passing: Sequence[str]) -> tuple[str, ...]:
        """Assertions of passing tests of the same file on the function that a failing test calls."""

    def name_use(self, unit: Unit | None, edit: Edit) -> int:
        """1 if the edit uses a name of the function that nothing used before, -1 if it leaves one unused, else 0."""
