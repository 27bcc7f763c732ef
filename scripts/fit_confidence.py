"""Fit the confidence to results of `codepilot bench repair --search-only`: fit_confidence.py RESULTS... [--write].

Logistic regression on the features of first repairs, regularised towards the present weights (`--draw`: a feature
that was hardly seen keeps its weight). Each feature may only raise, or only lower, the confidence. Each set counts the
same, however many bugs it has. Prints how the fit does on bugs it was not fitted to.
"""

from __future__ import annotations

import argparse
import json
import math
import operator
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codepilot.bench.results import rows_of
from codepilot.repair.rank import FEATURES, WEIGHTS

FILE = Path(__file__).parents[1] / "src/codepilot/repair/confidence.json"
FOR = frozenset({"cluster_share", "covering_tests", "overfit_penalty", "documented", "unchanged", "name_use"})
"""Features that can only raise the confidence; all others can only lower it."""
STEPS = 1500
PACE = 1.5
FOLDS = 5


@dataclass(frozen=True)
class Seen:
    """A first offer: its set, its features, and whether it was right."""

    set: str
    features: Mapping[str, float]
    right: bool


def seen(rows: Sequence[Mapping[str, object]]) -> list[Seen]:
    """The newest row of every bug that has an offer with features."""
    latest = {(row.get("set"), row.get("bug")): row for row in rows}
    found = []
    for row in latest.values():
        features, correct = row.get("features"), row.get("correct")
        if isinstance(features, dict) and set(features) >= set(FEATURES) and isinstance(correct, list) and correct:
            found.append(Seen(str(row["set"]), features, bool(correct[0])))
    return found


def odds(weights: Mapping[str, float], features: Mapping[str, float]) -> float:
    return weights["bias"] + sum(weights[name] * features.get(name, 0.0) for name in FEATURES)


def chance(value: float) -> float:
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, value))))


def fitted(cases: Sequence[Seen], draw: float) -> dict[str, float]:
    """Projected gradient descent on features of like size; small and exact enough for a handful of them."""
    sizes = Counter(case.set for case in cases)
    scales = {name: max([1.0, *(abs(case.features.get(name, 0.0)) for case in cases)]) for name in FEATURES}
    rows = [[1.0, *(case.features.get(name, 0.0) / scales[name] for name in FEATURES)] for case in cases]
    shares = [1 / sizes[case.set] / len(sizes) for case in cases]
    sides = [0, *(1 if name in FOR else -1 for name in FEATURES)]
    present = [WEIGHTS["bias"], *(WEIGHTS.get(name, 0.0) * scales[name] for name in FEATURES)]
    weights = list(present)
    for _ in range(STEPS):
        slope = [draw * (weight - old) for weight, old in zip(weights, present, strict=True)]
        for row, share, case in zip(rows, shares, cases, strict=True):
            error = share * (chance(sum(map(operator.mul, weights, row))) - case.right)
            slope = [one + error * value for one, value in zip(slope, row, strict=True)]
        weights = [weight - PACE * one for weight, one in zip(weights, slope, strict=True)]
        weights = [0.0 if weight * side < 0 else weight for weight, side in zip(weights, sides, strict=True)]
    found = {name: round(weight / scales[name], 3) for name, weight in zip(FEATURES, weights[1:], strict=True)}
    return {"bias": round(weights[0], 3), **found}


def held_out(cases: Sequence[Seen], draw: float) -> list[tuple[float, bool]]:
    """Each case by a fit to the other folds."""
    found = []
    for fold in range(FOLDS):
        rest = [case for at, case in enumerate(cases) if at % FOLDS != fold]
        weights = fitted(rest, draw)
        mine = [case for at, case in enumerate(cases) if at % FOLDS == fold]
        found += [(chance(odds(weights, case.features)), case.right) for case in mine]
    return found


def table(title: str, pairs: Sequence[tuple[float, bool]]) -> str:
    """How often offers of each confidence were right."""
    rows = [f"{title}: Brier score {sum((p - right) ** 2 for p, right in pairs) / len(pairs):.3f}"]
    for low in (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        high = {0.0: 0.2, 0.2: 0.4}.get(low, low + 0.1)
        here = [right for p, right in pairs if low <= p < high + (low == 0.9)]
        if here:
            rows.append(f"  {low:.1f} to {high:.1f}: {sum(here)} of {len(here)} right")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--draw", type=float, default=0.05)
    parser.add_argument("--write", action="store_true", help="write confidence.json; otherwise show what would change")
    asked = parser.parse_args()
    cases = seen([row for path in asked.results for row in rows_of(path)])
    if len({case.right for case in cases}) < 2:
        sys.exit(
            f"Nothing to fit to: {len(cases)} offers with features, all alike. Name results with right and wrong ones."
        )
    new = fitted(cases, asked.draw)
    for name, weight in new.items():
        sys.stdout.write(f"{name:12} {WEIGHTS.get(name, 0.0):7.3f} → {weight:7.3f}  {FEATURES.get(name, '')}\n")
    sets = Counter((case.set, case.right) for case in cases)
    sys.stdout.write(", ".join(f"{name} {'right' if right else 'wrong'}: {n}" for (name, right), n in sets.items()))
    sys.stdout.write("\n" + table("now", [(chance(odds(WEIGHTS, case.features)), case.right) for case in cases]))
    sys.stdout.write(table("new, held out", held_out(cases, asked.draw)))
    if asked.write:
        FILE.write_text(json.dumps(new, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
