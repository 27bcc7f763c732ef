"""The pass rates of the newest sweeps, for metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from codepilot.bench.results import FILE, Results


def pass_at_1(directory: Path) -> Mapping[str, float]:
    """The share of bugs whose first offer was right, by set; of several sweeps of a set the newest counts."""
    found: dict[str, tuple[float, float]] = {}
    for file in directory.glob(f"*/{FILE}"):
        at = file.stat().st_mtime
        rights: dict[str, list[bool]] = {}
        for result in Results(file.parent).read():
            rights.setdefault(result.set, []).append(result.first_correct)
        for name, right in rights.items():
            if name not in found or at > found[name][0]:
                found[name] = (at, sum(right) / len(right))
    return {name: ratio for name, (_, ratio) in found.items()}
