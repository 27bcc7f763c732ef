"""A run's log as lines, and its events as a story."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from codepilot.cli.screens import when
from codepilot.cli.telling import describe
from codepilot.cli.text import plain
from codepilot.core.events import Event
from codepilot.engine import EventFollower, Runtime
from codepilot.telemetry import LogLines


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
    follower = EventFollower(runtime.store, run_id, told)
    for event in follower.follow() if follow else follower.new():
        formatted.learn([event])
        yield formatted.of([event]).decode().removesuffix("\n")


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
