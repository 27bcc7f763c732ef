"""When an agent goes in circles. Pure: it sees only what was done and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SAME_PAIRS = 4
SAME_ERRORS = 3
ALTERNATIONS = 6


@dataclass(frozen=True)
class Deed:
    """One action, what it gave, and the error in that, if any."""

    action: str
    observation: str
    error: str = ""


def going_in_circles(deeds: Sequence[Deed]) -> str:
    """Why the last deeds will not lead anywhere; empty if they may."""
    if _all_same(deeds[-SAME_PAIRS:], SAME_PAIRS):
        return f"the same action gave the same observation {SAME_PAIRS} times in a row"
    last = deeds[-SAME_ERRORS:]
    if _all_same([deed.error for deed in last], SAME_ERRORS) and last[0].error:
        return f"the same error came {SAME_ERRORS} times in a row: {last[0].error[:200]}"
    recent = deeds[-ALTERNATIONS:]
    evens, odds = recent[0::2], recent[1::2]
    if _all_same(evens, ALTERNATIONS // 2) and _all_same(odds, ALTERNATIONS // 2) and evens[0] != odds[0]:
        return f"two actions alternated {ALTERNATIONS} times with the same observations"
    return ""


def _all_same(items: Sequence[object], count: int) -> bool:
    return len(items) == count and all(item == items[0] for item in items)
