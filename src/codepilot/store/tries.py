"""Two tries: a server that went away for a moment is asked once more, and nothing is done twice by that."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from codepilot.core.events import Event
from codepilot.store.database import Database
from codepilot.store.faults import Interrupted
from codepilot.store.rows import ClaimedStep

PAUSE_SEC = 1.0

Answer = TypeVar("Answer")


@dataclass
class Tried:
    """How far a try came whose end is unknown; the next one looks first whether it was committed after all."""

    placed: Sequence[Event] = field(default_factory=list)
    begun: ClaimedStep | None = None


def twice(database: Database, work: Callable[[Tried], Answer]) -> Answer:
    """`work`, and once more if the server was lost in it."""
    tried = Tried()
    try:
        return work(tried)
    except Interrupted:
        database.forget()
        time.sleep(PAUSE_SEC)
        return work(tried)
