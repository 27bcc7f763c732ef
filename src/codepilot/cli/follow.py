"""A run's log as lines, and its events as a story."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from codepilot.cli.screens import when
from codepilot.cli.telling import describe
from codepilot.cli.text import plain
from codepilot.core.events import TERMINAL, WAITING, Event
from codepilot.engine import House

POLL_SEC = 0.3


def lines(house: House, run_id: str, *, follow: bool) -> Iterator[str]:
    """The log's complete lines; with `follow`, those to come until the run ends or waits."""
    path = house.home.logs / f"{run_id}.jsonl"
    position = told = 0
    awaited = False
    while True:
        run = house.store.load(run_id)
        if path.exists():
            with path.open("rb") as log:
                log.seek(position)
                for line in log:
                    if not line.endswith(b"\n"):
                        break
                    position += len(line)
                    told += 1
                    yield line.decode("utf-8", "replace").rstrip("\n")
        resting = run.state in TERMINAL | WAITING
        # What a run ended with is in the store first; a worker that was killed in between leaves the log without it.
        if not follow or (resting and (told >= run.last_seq or awaited)):
            return
        awaited = resting
        time.sleep(POLL_SEC)


def story(events: Sequence[Event]) -> Iterator[str]:
    """One line an event: when, where, what."""
    for event in events:
        note = plain(describe(event))
        yield f"{event.seq:>5}  {when(event.at)}  {event.type:<20}  {note}".rstrip()
