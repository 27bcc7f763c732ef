"""Transactions of several threads as one: whoever comes while one is under way goes with the next.

What a commit costs is the disk's promise and the exchange with the server, hardly what it says. A convoy is all or
nothing like any transaction; where it comes to nothing each goes alone, in its own thread: nobody suffers for another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Connection

PATIENCE_SEC = 0.5
"""A convoy that is under way for longer waits for a row that somebody has locked; others need not."""

Answer = TypeVar("Answer")


class Road(Protocol):
    """The database, as far as a convoy has to do with it."""

    def turn(self) -> AbstractContextManager[None]:
        """Our turn to write, where only one may at a time."""
        ...

    def write_in_turn(self, *, durable: bool, rings: bool) -> AbstractContextManager[Connection]:
        """A write transaction, when it is our turn."""
        ...


def _locked() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False)
class _Passenger(Generic[Answer]):
    order: str
    work: Callable[[Connection], Answer]
    durable: bool
    rings: bool
    called: threading.Lock = field(default_factory=_locked)
    """Free once it has arrived, or goes on by itself: as the one who drives, or alone. An event would cost more."""
    drives: bool = False
    answers: list[Answer] = field(default_factory=list)
    """What `work` made of a transaction that was committed."""


class Convoy:
    def __init__(self, road: Road) -> None:
        self._road = road
        self._guard = threading.Lock()
        self._under_way = False
        self._waiting: list[_Passenger[Any]] = []

    def go(
        self, order: str, work: Callable[[Connection], Answer], *, durable: bool = True, rings: bool = False
    ) -> Answer:
        """What `work` made of a transaction. It may be called again, in another one, if the first failed.

        Rows are locked in the order of `order`, by all who lock several. It is `durable` if any of them must be.
        """
        mine = _Passenger(order, work, durable, rings)
        with self._guard:
            mine.drives = not self._under_way
            self._under_way = True
            if not mine.drives:
                self._waiting.append(mine)
        if not mine.drives:
            self._await(mine)
        if mine.drives:
            self._drive(mine)
        if not mine.answers:
            with self._road.turn():
                self._carry([mine])
        return mine.answers[0]

    def _await(self, mine: _Passenger[Any]) -> None:
        try:
            if not mine.called.acquire(timeout=PATIENCE_SEC) and not self._gives_up(mine):
                mine.called.acquire()
        except BaseException:
            with self._guard:
                if mine in self._waiting:
                    self._waiting.remove(mine)
            if mine.drives:
                self._pass_on()
            raise

    def _gives_up(self, mine: _Passenger[Any]) -> bool:
        """Whether it is still among those who wait; then it goes alone."""
        with self._guard:
            if mine not in self._waiting:
                return False
            self._waiting.remove(mine)
            return True

    def _drive(self, mine: _Passenger[Any]) -> None:
        """Take all along who wait when it is our turn."""
        together: list[_Passenger[Any]] = []
        try:
            with self._road.turn():
                together = self._gather(mine)
                self._carry(together)
        except Exception:
            if len(together) < 2:
                raise
            # One of them, or what they met together, is the reason: each learns alone whether it is meant.
        finally:
            together = together or self._gather(mine)
            self._pass_on()
            for one in together:
                if one is not mine:
                    one.called.release()

    def _gather(self, mine: _Passenger[Any]) -> list[_Passenger[Any]]:
        with self._guard:
            together, self._waiting = sorted([mine, *self._waiting], key=lambda one: one.order), []
        return together

    def _carry(self, together: Sequence[_Passenger[Any]]) -> None:
        durable, rings = any(one.durable for one in together), any(one.rings for one in together)
        with self._road.write_in_turn(durable=durable, rings=rings) as connection:
            answers = [one.work(connection) for one in together]
        for one, answer in zip(together, answers, strict=True):
            one.answers.append(answer)

    def _pass_on(self) -> None:
        """One of those who came since drives."""
        with self._guard:
            following = self._waiting.pop(0) if self._waiting else None
            self._under_way = following is not None
            if following is not None:
                following.drives = True
        if following is not None:
            following.called.release()
