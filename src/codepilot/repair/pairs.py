"""Pairs of edits of one function, made when the single edits are used up.

The outcome of the single edits says which to combine: one that brought the test further is likely half of a repair,
one that crashed hardly ever.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.ledger import CRASHED, FURTHER, LATE, PLAIN, RELOADS

_WORTH = {FURTHER: 6.0, CRASHED: 0.1, LATE: 0.1, RELOADS: 0.1, PLAIN: 1.0}
"""How much the outcome of a single edit weighs in its pairs."""
_APART = 0.4
"""The weight of a pair in two statements relative to one in the same."""
_MOST = 1500
_PAIR = 0.5


def pairs(singles: Sequence[Proposal], marks: Mapping[int, str], start: int) -> Iterator[Proposal]:
    """Pairs of edits that do not overlap, the likeliest first; positions count on from `start`."""
    by_unit: dict[tuple[str, int], list[tuple[float, Proposal]]] = defaultdict(list)
    for single in singles:
        if single.unit is not None:
            worth = single.score * _WORTH[marks.get(single.position, PLAIN)]
            by_unit[single.source.path, single.unit.start].append((worth, single))
    streams = []
    for rated in by_unit.values():
        rated.sort(key=lambda one: (-one[0], one[1].position))
        del rated[_MOST:]
        streams.append(_combined(rated, _APART, alike=False))
        by_line: dict[int, list[tuple[float, Proposal]]] = defaultdict(list)
        for one in rated:
            by_line[one[1].line].append(one)
        streams += [_combined(same, 1.0, alike=True) for same in by_line.values()]
    seen: set[int] = set()
    position = start
    for score, first, second in heapq.merge(*streams, key=lambda row: (-row[0], row[1].position, row[2].position)):
        edit = combine(first, second)
        key = hash((first.source.path, edit.start, edit.end, edit.replacement)) if edit else 0
        if edit is None or key in seen:
            continue
        seen.add(key)
        penalty = first.overfit_penalty * second.overfit_penalty
        yield Proposal(position, first.source, first.unit, edit, score * _PAIR, first.line, overfit_penalty=penalty)
        position += 1


def _combined(
    rated: Sequence[tuple[float, Proposal]], factor: float, alike: bool
) -> Iterator[tuple[float, Proposal, Proposal]]:
    """Pairs in order of the product of their weights, made lazily."""
    waiting = [(-rated[at][0] * rated[at + 1][0], at, at + 1) for at in range(len(rated) - 1)][:1]
    opened = 1
    while waiting:
        score, one, other = heapq.heappop(waiting)
        first, second = rated[one][1], rated[other][1]
        if alike or first.line != second.line:
            yield -score * factor, first, second
        if other + 1 < len(rated):
            heapq.heappush(waiting, (-rated[one][0] * rated[other + 1][0], one, other + 1))
        if one + 1 == opened and opened + 1 < len(rated):
            heapq.heappush(waiting, (-rated[opened][0] * rated[opened + 1][0], opened, opened + 1))
            opened += 1


def combine(one: Proposal, other: Proposal) -> Edit | None:
    """Both edits as one; None if they overlap."""
    first, second = sorted((one.edit, other.edit), key=lambda edit: (edit.start, edit.end))
    if second.start < first.end or (first.start == second.start and first.end == second.end):
        return None
    between = one.source.text[first.end : second.start]
    text = first.replacement + between + second.replacement
    return Edit(first.start, second.end, text, f"{first.template} + {second.template}")
