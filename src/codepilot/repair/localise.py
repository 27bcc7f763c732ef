"""Spectrum-based fault localisation: Ochiai over the lines and branches that each test runs.

Frames of the failure weigh more. Among equally suspicious lines those changed last come first; recency breaks ties and
does nothing else: no line passes one that coverage or the failure's frames put above it.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TypeVar

from codepilot.core.contract import canonical_json
from codepilot.repair.edit import Source, shared_ends

Part = TypeVar("Part", int, tuple[int, int])

BRANCH = 0.45
"""The weight of a branch's suspicion for the line that takes it."""
Ages = Mapping[str, Sequence[tuple[bytes, int | None]]]
"""For files, the lines of a commit, each with how many commits ago it was changed; None is long ago."""
AGED_FILES = 6
"""How many files are looked up in the history, the most suspicious first."""
AGE_STEP = 0.002
"""The largest share of its suspicion that an old line loses, so that priors of templates outweigh age."""
AGE_LEVELS = 10
"""Ages differ by their order of magnitude: unchanged for so many doublings is old."""
OWN_AGE = 0.7
"""The weight of the line's own age; the rest is that of the newest line of its function."""


@dataclass(frozen=True)
class TestTrace:
    """One test on the base: its outcome, its cost, and the lines it ran."""

    __test__ = False

    test: str
    outcome: str
    cpu_sec: float = 0.0
    wall_sec: float = 0.0
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)
    branches: Mapping[str, frozenset[tuple[int, int]]] = field(default_factory=dict)
    """Pairs of lines, the second run right after the first."""
    exception: str = ""
    message: str = ""
    frames: tuple[tuple[str, int], ...] = ()
    """Paths and lines that the exception passed through."""

    @property
    def passed(self) -> bool:
        return self.outcome == "passed"


@dataclass(frozen=True)
class Suspicion:
    """How suspicious each executed line is (0 to 1), by path."""

    lines: Mapping[str, Mapping[int, float]]

    def of(self, path: str, lines: Iterable[int]) -> float:
        known = self.lines.get(path, {})
        return max((known.get(line, 0.0) for line in lines), default=0.0)

    @property
    def digest(self) -> str:
        """A hash of the scores: a search may be continued only under the same ones."""
        rows = {
            path: {str(line): round(score, 9) for line, score in lines.items()} for path, lines in self.lines.items()
        }
        return hashlib.sha256(canonical_json(rows).encode()).hexdigest()


def localise(traces: Iterable[TestTrace], targets: Iterable[str]) -> Suspicion:
    """Score the lines that the failing targets run. Lines in the failure's frames count more.

    A line that all tests run is suspicious too if failing tests take a branch from it that passing ones do not.
    """
    wanted = set(targets)
    known = list(traces)
    failing = [trace for trace in known if trace.test in wanted and not trace.passed]
    passing = [trace for trace in known if trace.passed and trace.test not in wanted]
    ran = _ochiai([trace.lines for trace in failing], [trace.lines for trace in passing])
    taken = _branching(_ochiai([trace.branches for trace in failing], [trace.branches for trace in passing]))
    frames = _frame_weights(failing)
    scores: dict[str, dict[int, float]] = defaultdict(dict)
    for (path, line), ochiai in ran.items():
        if not ochiai:
            continue
        own = min(1.0, 0.9 * ochiai + 0.1 * frames.get((path, line), 0.0))
        scores[path][line] = max(own, BRANCH * taken.get((path, line), 0.0))
    return Suspicion({path: dict(sorted(lines.items())) for path, lines in sorted(scores.items())})


def _ochiai(
    failing: Sequence[Mapping[str, frozenset[Part]]], passing: Sequence[Mapping[str, frozenset[Part]]]
) -> dict[tuple[str, Part], float]:
    """The Ochiai coefficient of each line or branch that any test runs."""
    failed, passed = (
        Counter((path, part) for trace in group for path, parts in trace.items() for part in parts)
        for group in (failing, passing)
    )
    return {
        place: failed[place] / math.sqrt(len(failing) * (failed[place] + passed[place])) if failing else 0.0
        for place in failed | passed
    }


def _branching(branches: Mapping[tuple[str, tuple[int, int]], float]) -> dict[tuple[str, int], float]:
    """The most suspicious branch from each line that has several."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for (path, (line, _)), ochiai in branches.items():
        found[path, line].append(ochiai)
    return {place: max(several) for place, several in found.items() if len(several) > 1}


def _frame_weights(failing: Iterable[TestTrace]) -> dict[tuple[str, int], float]:
    """The innermost frame of a failure weighs most."""
    weights: dict[tuple[str, int], float] = {}
    for trace in failing:
        for depth, place in enumerate(reversed(trace.frames)):
            weights[place] = max(weights.get(place, 0.0), 1.0 / (1 + depth))
    return weights


# --- recency ------------------------------------------------------------------------------------------------


def newest_first(
    suspicion: Suspicion, sources: Mapping[str, Source], ask: Callable[[tuple[str, ...]], Ages]
) -> Suspicion:
    """The same suspicion, with ties broken by the history of the most suspicious files."""
    files = [path for path in suspicion.lines if path in sources]
    files.sort(key=lambda path: (-max(suspicion.lines[path].values(), default=0.0), path))
    ages = ask(tuple(files[:AGED_FILES]))
    fresh = {path: freshness(sources[path], lines) for path, lines in ages.items() if path in sources}
    known = any(value for lines in fresh.values() for value in lines.values())
    return break_ties(suspicion, fresh) if known else suspicion


def freshness(source: Source, committed: Sequence[tuple[bytes, int | None]]) -> dict[int, float]:
    """For each line of the file from 0 (old) to 1 (not yet committed), its function's newest line counted in."""
    own = _aligned(source, committed)
    found = dict(own)
    for unit in source.units:
        newest = max((own.get(line, 0.0) for line in unit.lines), default=0.0)
        found.update({line: OWN_AGE * own.get(line, 0.0) + (1 - OWN_AGE) * newest for line in unit.lines})
    return found


def _aligned(source: Source, committed: Sequence[tuple[bytes, int | None]]) -> dict[int, float]:
    """The committed lines found again in the file as it is now; all others are new."""
    now = [row.rstrip(b"\r") for row in source.data.removesuffix(b"\n").split(b"\n")]
    if any(b"\r" in row for row in now):
        return {}  # lines that end in another way are numbered otherwise
    before = [row.rstrip(b"\r") for row, _ in committed]
    fresh = dict.fromkeys(range(1, len(now) + 1), 1.0)
    for at, place in _matches(before, now):
        fresh[place + 1] = _fresh(committed[at][1])
    return fresh


def _matches(before: Sequence[bytes], now: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Indices of equal lines in both: the shared head and tail, and the matches of a comparison between."""
    head, tail = shared_ends(before, now)
    yield from ((at, at) for at in range(head))
    yield from ((len(before) - at, len(now) - at) for at in range(1, tail + 1))
    middle = SequenceMatcher(None, before[head : len(before) - tail], now[head : len(now) - tail])
    for block in middle.get_matching_blocks():
        yield from ((head + block.a + at, head + block.b + at) for at in range(block.size))


def _fresh(age: int | None) -> float:
    return 0.0 if age is None else max(0.0, 1.0 - age.bit_length() / AGE_LEVELS)


def break_ties(suspicion: Suspicion, fresh: Mapping[str, Mapping[int, float]]) -> Suspicion:
    """Lower the scores of old lines a little, never below a line that was less suspicious."""
    values = sorted({score for lines in suspicion.lines.values() for score in lines.values()})
    margins = {
        score: min(AGE_STEP * score, (score - below) / 2) for below, score in zip([0.0, *values], values, strict=False)
    }
    return Suspicion(
        {
            path: {
                line: score - margins[score] * (1.0 - fresh.get(path, {}).get(line, 0.0))
                for line, score in lines.items()
            }
            for path, lines in suspicion.lines.items()
        }
    )
