"""Transactions of several threads as one: whoever comes while one is under way goes with the next.

What a commit costs is the disk's promise and the exchange with the server, hardly what it says. A convoy is all or
nothing like any transaction; where it comes to nothing, each goes alone, so that nobody suffers for another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Connection

from codepilot.store.faults import Interrupted

Answer = TypeVar("Answer")


class Write(Protocol):
    """Opens a write transaction."""

    def __call__(self, *, durable: bool, rings: bool) -> AbstractContextManager[Connection]: ...


@dataclass(eq=False)
class _Passenger(Generic[Answer]):
    order: str
    work: Callable[[Connection], Answer]
    rings: bool
    called: threading.Event = field(default_factory=threading.Event)
    """It has arrived, or is to drive the next convoy."""
    arrived: bool = False
    answer: Answer | None = None
    error: Exception | None = None


class Convoy:
    def __init__(self, write: Write) -> None:
        self._write = write
        self._guard = threading.Lock()
        self._under_way = False
        self._waiting: list[_Passenger[Any]] = []

    def go(self, order: str, work: Callable[[Connection], Answer], *, rings: bool) -> Answer:
        """What `work` made of a durable transaction. It may be called again, in another one, if the first failed.

        Rows are locked in the order of `order`, by all who lock several.
        """
        mine = _Passenger(order, work, rings)
        with self._guard:
            waits = self._under_way
            if waits:
                self._waiting.append(mine)
            self._under_way = True
        if waits:
            mine.called.wait()
        if not mine.arrived:
            self._drive(mine)
        if mine.error is not None:
            raise mine.error
        return mine.answer  # type: ignore[return-value]  # it has arrived

    def _drive(self, mine: _Passenger[Any]) -> None:
        """Take all who wait along; then one of those who came since drives."""
        with self._guard:
            together, self._waiting = sorted([mine, *self._waiting], key=lambda one: one.order), []
        try:
            self._carry(together)
        finally:
            left_behind = [one for one in together if one is not mine and not one.arrived]
            with self._guard:
                self._waiting = [*left_behind, *self._waiting]
                following = self._waiting.pop(0) if self._waiting else None
                self._under_way = following is not None
            if following is not None:
                following.called.set()
            for one in together:
                if one.arrived:
                    one.called.set()

    def _carry(self, together: Sequence[_Passenger[Any]]) -> None:
        """To the end of their transaction; those who fail in company, one by one."""
        try:
            with self._write(durable=True, rings=any(one.rings for one in together)) as connection:
                answers = [one.work(connection) for one in together]
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told to the one it belongs to
            if len(together) > 1 and not isinstance(error, Interrupted):
                for one in together:
                    self._carry([one])
                return
            for one in together:
                one.error, one.arrived = error, True
        else:
            for one, answer in zip(together, answers, strict=True):
                one.answer, one.arrived = answer, True
