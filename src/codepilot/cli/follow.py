"""A run's log as lines, and its events as a story."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from codepilot.cli.screens import when
from codepilot.cli.telling import describe
from codepilot.cli.text import plain
from codepilot.core.events import TERMINAL, WAITING, Event
from codepilot.engine import Runtime
from codepilot.telemetry import LogLines

POLL_SEC = 0.3
PAGE = 500
"""Events that are read at once."""


def lines(runtime: Runtime, run_id: str, *, follow: bool) -> Iterator[str]:
    """The log's lines; with `follow`, those to come until the run ends or waits.

    What the log file of this home lacks is told by the store: the run may be worked on elsewhere.
    """
    told = 0
    for line in _written(runtime.home.logs / f"{run_id}.jsonl"):
        told += 1
        yield line
    formatted = LogLines(runtime.redact)
    if told:
        formatted.roles.update({step.step_id: step.state for step in runtime.store.steps(run_id)})
    while True:
        ended = not follow or runtime.store.load(run_id).state in TERMINAL | WAITING
        more = True
        while more:
            events = runtime.store.events(run_id, told, limit=PAGE)
            formatted.learn(events)
            yield from formatted.of(events).decode().split("\n")[:-1]
            told += len(events)
            more = len(events) == PAGE
        if ended:
            return
        time.sleep(POLL_SEC)


def _written(path: Path) -> Iterator[str]:
    """The complete lines of the log file."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as log:
        for line in log:
            if line.endswith(b"\n"):
                yield line.decode("utf-8", "replace").rstrip("\n")


def story(events: Sequence[Event]) -> Iterator[str]:
    """One line an event: when, where, what."""
    for event in events:
        note = plain(describe(event))
        yield f"{event.seq:>5}  {when(event.at)}  {event.type:<20}  {note}".rstrip()
