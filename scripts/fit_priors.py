"""Fit the templates' priors to results of `codepilot bench repair`: fit_priors.py RESULTS.jsonl... [--write].

A prior moves towards the share of repairs that its template won with a right answer, less those it won with a wrong
one. What was hardly ever seen stays where it was: `--weight` says how many wins the present value counts as.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from codepilot.bench.results import rows_of
from codepilot.repair.python.priors import PRIORS

FILE = Path(__file__).parents[1] / "src/codepilot/repair/python/priors.json"
LEAST = 0.05


def tally(rows: Iterable[Mapping[str, object]]) -> tuple[Counter[str], Counter[str]]:
    """How often each template came first and was right, and was wrong; a pair counts for both of its halves."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for row in rows:
        correct, template = row.get("correct"), row.get("template")
        if isinstance(correct, list) and correct and isinstance(template, str):
            (right if correct[0] else wrong).update(template.split(" + "))
    return right, wrong


def fitted(
    priors: Mapping[str, float], right: Mapping[str, int], wrong: Mapping[str, int], weight: float
) -> dict[str, float]:
    most = max(right.values(), default=0)
    found = {}
    for name, prior in priors.items():
        won = max(0, right.get(name, 0) - wrong.get(name, 0))
        seen = right.get(name, 0) + wrong.get(name, 0)
        target = (won / most) ** 0.5 if most else prior
        found[name] = round(max(LEAST, (weight * prior + seen * target) / (weight + seen)), 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--weight", type=float, default=10.0)
    parser.add_argument("--write", action="store_true", help="write priors.json; otherwise show what would change")
    asked = parser.parse_args()
    rows = [row for path in asked.results for row in rows_of(path)]
    new = fitted(PRIORS, *tally(rows), asked.weight)
    for name, prior in new.items():
        if prior != PRIORS[name]:
            sys.stdout.write(f"{name:28} {PRIORS[name]:.3f} → {prior:.3f}\n")
    if asked.write:
        FILE.write_text(json.dumps(new, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
