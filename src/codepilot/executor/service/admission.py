"""Bounds how many requests run and wait; the rest are refused as busy. Used on the event loop only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from codepilot.core.failures import CodePilotError, FailureKind

RETRY_SEC = 1


class Busy(CodePilotError):
    """There is no room; `retry_sec` says when to ask again."""

    status = 429

    def __init__(self, message: str, retry_sec: int = RETRY_SEC, next_action: str = "") -> None:
        super().__init__(
            FailureKind.EXECUTOR_LOST, message, next_action or f"Ask again in {retry_sec} s.", retry_after=retry_sec
        )
        self.retry_sec = retry_sec


class Draining(Busy):
    """The service is about to end and takes no new work."""

    status = 503

    def __init__(self) -> None:
        super().__init__("the executor is shutting down", 5, "Ask another executor, or this one when it is back.")


class AdmissionQueue:
    """A bounded queue. Requests with the same `order` take turns, first come first served."""

    def __init__(self, concurrency: int, queue: int) -> None:
        self._free = asyncio.Semaphore(concurrency)
        self._queue = queue
        self._orders: dict[str, tuple[asyncio.Lock, list[None]]] = {}
        self.waiting = 0
        self.active = 0

    @asynccontextmanager
    async def turn(self, order: str = "") -> AsyncIterator[None]:
        async with self._in_order(order), self._admitted():
            self.active += 1
            try:
                yield
            finally:
                self.active -= 1

    @asynccontextmanager
    async def _admitted(self) -> AsyncIterator[None]:
        await self._wait(self._free)
        try:
            yield
        finally:
            self._free.release()

    @asynccontextmanager
    async def _in_order(self, order: str) -> AsyncIterator[None]:
        """Hold the lock of an order. The lock is dropped with its last user."""
        if not order:
            yield
            return
        lock, users = self._orders.setdefault(order, (asyncio.Lock(), []))
        users.append(None)
        try:
            await self._wait(lock)
            try:
                yield
            finally:
                lock.release()
        finally:
            users.pop()
            if not users:
                del self._orders[order]

    async def _wait(self, wanted: asyncio.Lock | asyncio.Semaphore) -> None:
        """Acquire a lock; Busy if too many requests wait already."""
        if not wanted.locked():
            await wanted.acquire()
            return
        if self.waiting >= self._queue:
            raise Busy(f"{self.waiting} requests are waiting already")
        self.waiting += 1
        try:
            await wanted.acquire()
        finally:
            self.waiting -= 1
