"""The seam of model-free repair: localise, propose, try, rank, whatever the language.

Promises: candidate code runs only inside the sandbox; the search is deterministic, so a position is enough to
continue it; a candidate offered as plausible made the target tests pass and broke none of the related ones.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from codepilot.core.contract import JsonObject
from codepilot.executor import Executor
from codepilot.project import Project, SuiteRun
from codepilot.repair.recency import Ages


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
    signs: Mapping[str, float] = field(default_factory=dict)
    """What the confidence was made of."""

    @property
    def diff(self) -> str:
        """The change as a unified diff that applies to the original file."""
        before, after = map(_diff_lines, (self.original, self.patched))
        return "".join(difflib.unified_diff(before, after, f"a/{self.path}", f"b/{self.path}"))


def _diff_lines(content: bytes) -> list[str]:
    *whole, rest = content.decode("utf-8", "backslashreplace").split("\n")
    return [f"{line}\n" for line in whole] + ([f"{rest}\n\\ No newline at end of file\n"] if rest else [])


@dataclass(frozen=True)
class Progress:
    """Where the search stands. `state` is all that `search` needs to continue from here."""

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
    """Patched contents that were already proposed and turned down."""
    proposed: tuple[tuple[str, bytes], ...] = ()
    """Changes of others, each a file and what it would hold: tried first, and ranked with the search's own."""
    state: JsonObject = field(default_factory=dict)
    ages: Callable[[tuple[str, ...]], Ages] = lambda paths: {}
    """How long ago the lines of these files were changed, where the base has a history."""
    workers: int = 2
    """How many candidates run at once, at most; tests that share more than a process wait for each other."""


@dataclass(frozen=True)
class SearchResult:
    """Candidates best first. `exhausted` says that nothing was left to try within the templates."""

    candidates: tuple[Candidate, ...]
    tried: int
    exhausted: bool
    seconds: float
    trying_sec: float = 0.0
    """What of the seconds candidates were being tried in: the rest is loading, watching and weighing."""
    reason: str = ""
