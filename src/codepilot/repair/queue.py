"""The order in which candidates are tried, and the one queue of those that a first trial did not settle."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from codepilot.repair.edit import Proposal, Sources

RELOAD_EVERY = 100
"""How many candidates are tried for each one that loads the project anew: that takes a hundred times as long."""
PROPOSED_PENALTY = 0.7


def numbered(proposals: Iterator[Proposal], start: int) -> Iterator[Proposal]:
    """The same candidates, in positions from `start` on."""
    return (replace(proposal, position=at) for at, proposal in enumerate(proposals, start))


def interleaved(cheap: Iterator[Proposal], expensive: Iterator[Proposal]) -> Iterator[Proposal]:
    """Both kinds, each in its order: an expensive one comes once no cheap one that is left scores better."""
    waiting: list[Proposal] = []
    for number, proposal in enumerate(cheap, 1):
        yield proposal
        if number % RELOAD_EVERY == 0:
            waiting = waiting or list(itertools.islice(expensive, 1))
            if waiting and waiting[0].score >= proposal.score:
                yield waiting.pop()
    yield from waiting
    yield from expensive


def proposed(sources: Sources, changes: Sequence[tuple[str, bytes]], score: float) -> Iterator[Proposal]:
    """Changes that come from outside the search: one candidate for each changed file that can be read and differs."""
    for path, content in changes:
        source = sources.get(path)
        edit = source.difference(content) if source is not None else None
        if source is not None and edit is not None:
            unit = source.unit_at(edit.start)
            held = unit if unit is not None and unit.holds(edit) else None
            line = source.line_of(edit.start)
            yield Proposal(0, source, held, edit, score, line, overfit_penalty=PROPOSED_PENALTY)


@dataclass(frozen=True)
class Retry:
    """Why candidates wait, and how they are tried again."""

    patience: float = 1.0
    """The multiple of the usual budget that they get."""
    batch: int = 32
    most: int = 1 << 30
    """How many are tried again at most."""
    share: float = 1.0
    """The share of the time left that they may take together."""


RELOAD = Retry()
"""The project must be loaded anew for them, which only their trial has shown."""
SLOW = Retry(patience=12.0, batch=10, most=200)
"""They did not end within their budget, as most endless loops do not; slow is not wrong."""
EARLY = 16
"""How many of those are tried again before expressions are synthesised: the likeliest come first."""
SLOWEST = Retry(patience=200.0, batch=2, most=40, share=0.3)
"""They did not end then either: a test that fails at once on the base may take long when it passes."""


class RetryQueue:
    """Candidates that one trial did not settle.

    The rule: a candidate waits in the line of its reason. For each `RELOAD_EVERY` candidates tried, one that needs a
    reload gets its turn. After the likeliest single edits, `EARLY` of `SLOW` do. When the single edits are used up, the
    lines are tried in the order of their cost: `RELOAD`, `SLOW`, `SLOWEST`; one that times out in `SLOW` moves on to
    `SLOWEST`.
    """

    def __init__(self) -> None:
        self._lines: dict[Retry, deque[Proposal]] = {reason: deque() for reason in (RELOAD, SLOW, SLOWEST)}
        self._tried = 0

    def waiting(self, reason: Retry) -> int:
        return len(self._lines[reason])

    def add(self, reason: Retry, proposal: Proposal) -> None:
        self._lines[reason].append(proposal)

    def take(self, reason: Retry, count: int) -> list[Proposal]:
        line = self._lines[reason]
        return [line.popleft() for _ in range(min(count, len(line)))]

    def due(self, tried: int) -> list[Proposal]:
        """The reloads whose turn has come now that so many more candidates were tried."""
        turns, self._tried = divmod(self._tried + tried, RELOAD_EVERY)
        return self.take(RELOAD, turns)
