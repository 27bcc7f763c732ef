"""The probability that an offer is right, from a few signs of it: weights are data in `confidence.json`.

`scripts/fit_confidence.py` fits them to what `codepilot bench repair` found on the development sets.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

WEIGHTS: dict[str, float] = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
"""What each sign adds to the log-odds; `bias` is where they begin."""

SIGNS: dict[str, str] = {
    "share": "what its behaviour weighs among all behaviours that pass",
    "rivals": "log2 of how many behaviours pass",
    "witnesses": "log2 of how many tests run the edited lines, 32 at most",
    "doubt": "log2 of how much its template is doubted",
    "brought": "whether it brings in a literal that the file does not have",
    "documented": "the share of the documentation's examples that hold, less a half; 0 without examples",
    "kept": "the share of inputs like those of passing tests, without the base's slips, that it changes nothing for",
    "broken": "the share of those with a result that it fails on by a slip",
    "slips": "the share of inputs like those of failing tests that it slips on needlessly",
    "retyped": "the share of its results that are of a type the function does not have",
    "uses": "1 where it puts an idle name of the function to use, -1 where it leaves one idle",
    "ground": "log2 of how many lines the failing tests run",
    "late": "log10 of how many candidates came before it",
    "grown": "log2 of how many characters it adds or removes",
    "blind": "whether its behaviour could not be watched",
}
LEAST, MOST = 0.02, 0.98


def confidence(signs: Mapping[str, float]) -> float:
    odds = WEIGHTS["bias"] + sum(WEIGHTS.get(name, 0.0) * value for name, value in signs.items())
    return round(min(MOST, max(LEAST, 1 / (1 + math.exp(-odds)))), 3)
