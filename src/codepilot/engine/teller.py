"""What happens in a run, told to one who listens: every event once and in order, whoever recorded it."""

from __future__ import annotations

from collections.abc import Callable

from codepilot.core.events import Event
from codepilot.store import Store

PAGE = 500
"""Events that are read at once."""


class Teller:
    def __init__(self, store: Store, run_id: str, listen: Callable[[Event], None], told: int | None = None) -> None:
        """`told` is the place of the last event that is known already; by default all that there are."""
        self._store = store
        self._run_id = run_id
        self._listen = listen
        self._told = store.load(run_id).last_seq if told is None else told

    def tell(self, event: Event) -> None:
        """One that was recorded here; those that others recorded before it come first."""
        self.catch_up(event.seq - 1)
        if event.seq > self._told:
            self._listen(event)
            self._told = event.seq

    def catch_up(self, last: int) -> None:
        """Those up to `last` that were not told yet: others recorded them."""
        while self._told < last:
            events = self._store.events(self._run_id, self._told, limit=min(PAGE, last - self._told))
            for event in events:
                self._listen(event)
                self._told = event.seq
            if not events:
                return
