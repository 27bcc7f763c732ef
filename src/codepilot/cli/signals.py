"""Signals at the door: what is ignored for us, and Ctrl+C before a run is at work."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from codepilot.cli.output import say


def ignore_for_ourselves_only() -> None:
    """Go on ignoring what nohup or a shell's background had us ignore, but by a handler: what we start then does not
    inherit it, and can be interrupted.
    """
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python restores these for what it starts
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda number, frame: None)


@contextmanager
def early_interrupts(run_id: str) -> Iterator[threading.Event]:
    """Set the event once the run is recorded; an interrupt then tells how to go on, one before it that nothing is."""
    recorded = threading.Event()
    try:
        yield recorded
    except KeyboardInterrupt:
        told = f"Go on with: codepilot resume {run_id}" if recorded.is_set() else "Nothing was begun."
        say(f"\nInterrupted. {told}", err=True)
        raise SystemExit(130) from None
