"""A machine without room for another thread, as where memory or the number of processes is bounded."""

from __future__ import annotations

import threading

import pytest


def no_room_for(name: str, monkeypatch: pytest.MonkeyPatch, times: int = 1) -> list[str]:
    """The next threads whose names begin so cannot be started; the names of those that could not."""
    refused: list[str] = []
    really = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith(name) and len(refused) < times:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        really(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    return refused
