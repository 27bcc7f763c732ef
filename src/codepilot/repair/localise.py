"""Where the bug may be: Ochiai over per-test line coverage, the failure's own frames breaking ties."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from codepilot.core.contract import canonical_json


@dataclass(frozen=True)
class TestTrace:
    """What one test did when it ran on the base: its end, its cost, and the lines it went through."""

    __test__ = False

    test: str
    outcome: str
    cpu_sec: float = 0.0
    wall_sec: float = 0.0
    lines: Mapping[str, frozenset[int]] = field(default_factory=dict)
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
    """Lines of the failing targets only; a line the failure passed through or stopped at counts more."""
    wanted = set(targets)
    known = list(traces)
    failing = [trace for trace in known if trace.test in wanted and not trace.passed]
    passing = [trace for trace in known if trace.passed and trace.test not in wanted]
    failed: dict[tuple[str, int], int] = defaultdict(int)
    passed: dict[tuple[str, int], int] = defaultdict(int)
    for group, counts in ((failing, failed), (passing, passed)):
        for trace in group:
            for path, lines in trace.lines.items():
                for line in lines:
                    counts[path, line] += 1
    frames = _frame_weights(failing)
    scores: dict[str, dict[int, float]] = defaultdict(dict)
    for (path, line), hits in failed.items():
        ochiai = hits / math.sqrt(len(failing) * (hits + passed[path, line]))
        scores[path][line] = min(1.0, 0.9 * ochiai + 0.1 * frames.get((path, line), 0.0))
    return Suspicion({path: dict(sorted(lines.items())) for path, lines in sorted(scores.items())})


def _frame_weights(failing: Iterable[TestTrace]) -> dict[tuple[str, int], float]:
    """The innermost frame of a failure weighs most."""
    weights: dict[tuple[str, int], float] = {}
    for trace in failing:
        for depth, place in enumerate(reversed(trace.frames)):
            weights[place] = max(weights.get(place, 0.0), 1.0 / (1 + depth))
    return weights
