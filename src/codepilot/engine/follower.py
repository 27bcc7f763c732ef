"""The event follower: a run's events in order, each once, from any process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from codepilot.core.events import TERMINAL, WAITING, Event
from codepilot.core.run import Run
from codepilot.store import Store

POLL_SEC = 0.05
PAGE = 500
"""Events that are read at once."""


class EventFollower:
    def __init__(self, store: Store, run_id: str, after: int = 0) -> None:
        """`after` is the `seq` of the last event that the reader knows."""
        self._store = store
        self._run_id = run_id
        self.after = after

    def follow(self, stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Yield the events, and new ones until the run ends or waits, or `stop` returns true."""
        while True:
            yield from self.new()
            run = self._store.load(self._run_id)
            if run.last_seq == self.after and is_settled(run):
                return
            while not self.wait():
                if stop():
                    return

    def new(self) -> Iterator[Event]:
        """Yield the events recorded since the last call."""
        more = True
        while more:
            events = self._store.events(self._run_id, self.after, limit=PAGE)
            for event in events:
                self.after = event.seq
                yield event
            more = len(events) == PAGE

    def recorded(self, event: Event) -> Iterator[Event]:
        """Yield an event that this process recorded, after earlier ones of other processes."""
        if event.seq > self.after + 1:
            yield from self.new()
        if event.seq > self.after:
            self.after = event.seq
            yield event

    def wait(self, seconds: float = 0.25) -> bool:
        """Wait for an event at most so long; whether there is one."""
        deadline = time.monotonic() + seconds
        while not (found := bool(self._store.events(self._run_id, self.after, limit=1))):
            if time.monotonic() >= deadline:
                return found
            time.sleep(POLL_SEC)
        return found


def is_settled(run: Run) -> bool:
    """True if the run has ended, or waits for longer than a moment."""
    return run.state in TERMINAL | WAITING and not run.soon_back
