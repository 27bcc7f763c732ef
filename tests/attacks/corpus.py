"""The attack corpus. `python tests/attacks/corpus.py` prints the table that docs/sandbox.md holds."""

from __future__ import annotations

import sys

from attack_kit import CATEGORIES, LEVELS, Attack
from corpus_kernel import ACTIONS
from corpus_limits import BOMBS
from corpus_network import OUT
from corpus_outside import OUTSIDE
from corpus_privilege import RISE
from corpus_process import PROCESSES
from corpus_tree import TREES

ATTACKS: tuple[Attack, ...] = (*OUTSIDE, *OUT, *PROCESSES, *BOMBS, *RISE, *ACTIONS, *TREES)


def of(kind: str) -> list[Attack]:
    return [attack for attack in ATTACKS if attack.kind == kind]


def table() -> str:
    """What stops each category at each level, in Markdown."""
    lines = ["| category | attacks | bubblewrap | landlock |", "|---|---|---|---|"]
    for category in CATEGORIES:
        mine = [attack for attack in ATTACKS if attack.category == category]
        layers = [", ".join(dict.fromkeys(attack.stops[level].layer for attack in mine)) for level in LEVELS]
        lines.append(f"| {category} | {len(mine)} | {layers[0]} | {layers[1]} |")
    return "\n".join([*lines, f"| **all** | **{len(ATTACKS)}** | | |"])


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
