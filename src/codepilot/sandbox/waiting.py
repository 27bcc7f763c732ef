"""Waiting for descriptors, however large their numbers: a service with many workspaces has thousands open."""

from __future__ import annotations

import select
from collections.abc import Iterable


def readable(descriptors: Iterable[int], seconds: float) -> list[int]:
    """Those that can be read, or have ended, as soon as there is one; none after the time. `select` ends at 1023."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in waiting.poll(max(0.0, seconds) * 1000)]
