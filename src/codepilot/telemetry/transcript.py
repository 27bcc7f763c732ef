"""The transcript: every event of a run, whole, one JSON line each."""

from __future__ import annotations

from collections.abc import Iterable

from codepilot.core.contract import canonical_json
from codepilot.core.events import Event


def transcript(events: Iterable[Event]) -> bytes:
    return "".join(f"{canonical_json(event)}\n" for event in events).encode()
