"""Where the bug may be: Ochiai over what each test runs, lines and branches; the failure's own frames break ties."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from codepilot.core.contract import canonical_json

Part = TypeVar("Part", int, tuple[int, int])

BRANCH = 0.45
"""What the suspicion of a branch counts for the line that takes it."""


@dataclass(frozen=True)
class TestTrace:
    """What one test did when it ran on the base: its end, its cost, and the lines it went through."""

    __test__ = False

    test: str
    outcome: str
    cpu_sec: float = 0.0
    wall_sec: float = 0.0
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)
    ways: Mapping[str, frozenset[tuple[int, int]]] = field(default_factory=dict)
    """Pairs of lines, one run right after the other."""
    exception: str = ""
    message: str = ""
    frames: tuple[tuple[str, int], ...] = ()

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
        """Names this order: a search may be continued only under the same one."""
        rows = {
            path: {str(line): round(score, 9) for line, score in lines.items()} for path, lines in self.lines.items()
        }
        return hashlib.sha256(canonical_json(rows).encode()).hexdigest()


def localise(traces: Iterable[TestTrace], targets: Iterable[str]) -> Suspicion:
    """Lines of the failing targets only; a line the failure passed through or stopped at counts more.

    One that all tests run is suspicious, too, where failing ones go on from it as others do not.
    """
    wanted = set(targets)
    known = list(traces)
    failing = [trace for trace in known if trace.test in wanted and not trace.passed]
    passing = [trace for trace in known if trace.passed and trace.test not in wanted]
    ran = _ochiai([trace.lines for trace in failing], [trace.lines for trace in passing])
    taken = _branches(_ochiai([trace.ways for trace in failing], [trace.ways for trace in passing]))
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
    """How suspicious each part of a file is that any test runs."""
    failed, passed = (
        Counter((path, part) for trace in group for path, parts in trace.items() for part in parts)
        for group in (failing, passing)
    )
    return {
        place: failed[place] / math.sqrt(len(failing) * (failed[place] + passed[place])) if failing else 0.0
        for place in failed | passed
    }


def _branches(ways: Mapping[tuple[str, tuple[int, int]], float]) -> dict[tuple[str, int], float]:
    """The worst way on from each line that has several."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for (path, (line, _)), ochiai in ways.items():
        found[path, line].append(ochiai)
    return {place: max(several) for place, several in found.items() if len(several) > 1}


def _frame_weights(failing: Iterable[TestTrace]) -> dict[tuple[str, int], float]:
    """The innermost frame of a failure weighs most."""
    weights: dict[tuple[str, int], float] = {}
    for trace in failing:
        for depth, place in enumerate(reversed(trace.frames)):
            weights[place] = max(weights.get(place, 0.0), 1.0 / (1 + depth))
    return weights
