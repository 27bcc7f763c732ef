"""The interface of model-free repair: what a search is given, and what it returns.

Promises: candidate code runs only inside the sandbox; the search is deterministic, so a position is enough to
continue it; a candidate offered as plausible made the target tests pass and broke none of the related ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from codepilot.core.contract import JsonObject
from codepilot.core.suspect import RefutedRepair, SuspectTest
from codepilot.core.text import decoded
from codepilot.executor import Executor
from codepilot.project import Project, SuiteRun
from codepilot.repair.localise import Ages


@dataclass(frozen=True)
class Candidate:
    """A repair that survived every test it was given."""

    path: str
    original: bytes
    patched: bytes
    template: str
    rationale: str
    confidence: float
    position: int
    features: Mapping[str, float] = field(default_factory=dict)
    """What the confidence was computed from."""

    @property
    def diff(self) -> str:
        """The change as a unified diff that applies to the original file; `core.text.decoded` names its encoding."""
        encoding = decoded(self.original + b"\n" + self.patched)[1]
        before, after = (_diff_lines(content.decode(encoding)) for content in (self.original, self.patched))
        return "".join(difflib.unified_diff(before, after, f"a/{self.path}", f"b/{self.path}"))


def _diff_lines(content: str) -> list[str]:
    *whole, rest = content.split("\n")
    return [f"{line}\n" for line in whole] + ([f"{rest}\n\\ No newline at end of file\n"] if rest else [])


@dataclass(frozen=True)
class Progress:
    """The progress of a search. `state` is all that `search` needs to continue from here."""

    position: int
    tried: int
    plausible: int
    per_sec: float
    best: str
    phase: str
    state: JsonObject
    left_sec: float = 0.0


@dataclass(frozen=True)
class SearchRequest:
    executor: Executor
    workspace: str
    project: Project
    targets: tuple[str, ...]
    baseline: SuiteRun
    seconds: float
    on_progress: Callable[[Progress], None]
    """Called often (about 5 times a second); may raise to stop the search at a safe point."""
    refused: tuple[bytes, ...] = ()
    """Patched contents that were turned down before."""
    proposed: tuple[tuple[str, bytes], ...] = ()
    """Changes from outside, each a file and its new content: tried first, and ranked with the search's own."""
    state: JsonObject = field(default_factory=dict)
    ages: Callable[[tuple[str, ...]], Ages] = lambda paths: {}
    """How long ago the lines of these files were changed, if the base has a history."""
    workers: int = 2
    """How many candidates run at once, at most; tests that share more than a process wait for each other."""


@dataclass(frozen=True)
class SearchResult:
    """Candidates, best first. `exhausted`: nothing was left to try."""

    candidates: tuple[Candidate, ...]
    tried: int
    exhausted: bool
    seconds: float
    trying_sec: float = 0.0
    """The part of the seconds in which candidates were tried: the rest is loading, tracing and examining."""
    reason: str = ""
    rejected: tuple[RefutedRepair, ...] = ()
    """Changes that make the targets pass and are no repair."""
    suspect: SuspectTest | None = None
    """The failing test, if it may be wrong."""
