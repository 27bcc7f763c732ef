"""Calls that can be given up at any moment: they run on a loop of their own while their caller looks after them.

A blocking client cannot be interrupted while it waits for bytes; a task on an event loop can, and its connection is
closed with it.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from codepilot.models.protocol import Hear, Stopped, cancelled
from codepilot.models.retry import LOOK_SEC

T = TypeVar("T")
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The one loop of this process, by its id: a fork has no thread to run its parent's."""


def call(
    model: str, asking: Callable[[Hear], Coroutine[Any, Any, T]], *, hear: Hear = lambda piece: None, stopped: Stopped
) -> T:
    """What `asking` returns. The pieces it passes on are heard in the caller's thread."""
    heard: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    ended = threading.Event()

    async def ask() -> T:
        try:
            return await asking(heard.put)
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(ask(), loop())
    future.add_done_callback(lambda _: heard.put(None))
    look_at = 0.0
    try:
        while True:
            if time.monotonic() >= look_at:
                if stopped():
                    raise cancelled(model)
                look_at = time.monotonic() + LOOK_SEC
            try:
                piece = heard.get(timeout=LOOK_SEC)
            except queue.Empty:
                continue
            if piece is None:
                return future.result()
            hear(piece)
    finally:
        future.cancel()
        # What is still being closed must not be collected by this thread's garbage collector.
        ended.wait(LOOK_SEC)


def loop() -> asyncio.AbstractEventLoop:
    """The loop that calls run on; it is started with the first."""
    with _lock:
        if os.getpid() not in _loops:
            made = asyncio.new_event_loop()
            threading.Thread(target=made.run_forever, name="model calls", daemon=True).start()
            _loops[os.getpid()] = made
        return _loops[os.getpid()]
