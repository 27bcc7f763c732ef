"""What takes long to try waits behind what does not, in an order that depends on nothing but the candidates."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

from codepilot.repair.python.enumerate import Proposal

EVERY = 100
"""How many candidates come between two that have to load the project anew: those take a hundred times as long."""


def numbered(proposals: Iterator[Proposal], start: int) -> Iterator[Proposal]:
    """The same candidates, in positions from `start` on."""
    return (replace(proposal, position=at) for at, proposal in enumerate(proposals, start))


def spread(cheap: Iterator[Proposal], dear: Iterator[Proposal]) -> Iterator[Proposal]:
    """All of them, both kinds in their order: a dear one takes its turn once no cheap one left scores better."""
    waiting: list[Proposal] = []
    for number, proposal in enumerate(cheap, 1):
        yield proposal
        if number % EVERY == 0:
            waiting = waiting or list(itertools.islice(dear, 1))
            if waiting and waiting[0].score >= proposal.score:
                yield waiting.pop()
    yield from waiting
    yield from dear


class Dear:
    """Candidates of which only trying has shown that the project must be loaded anew for them."""

    def __init__(self) -> None:
        self._waiting: deque[Proposal] = deque()
        self._tried = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, proposal: Proposal) -> None:
        self._waiting.append(proposal)

    def due(self, tried: int) -> list[Proposal]:
        """Those whose turn has come now that so many more were tried."""
        self._tried += tried
        turns, self._tried = divmod(self._tried, EVERY)
        return self.next(turns)

    def next(self, count: int) -> list[Proposal]:
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
