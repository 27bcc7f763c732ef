"""Ctrl+C before a run is at work: what is said of it then is still true."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def early_interrupts(run_id: str) -> Iterator[threading.Event]:
    """Set the event once the run is recorded; an interrupt then tells how to go on, one before it that nothing is."""
    recorded = threading.Event()
    try:
        yield recorded
    except KeyboardInterrupt:
        told = f"Go on with: codepilot resume {run_id}" if recorded.is_set() else "Nothing was begun."
        sys.stderr.write(f"\nInterrupted. {told}\n")
        raise SystemExit(130) from None
