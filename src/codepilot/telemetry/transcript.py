"""The transcript: every event of a run, one JSON line each, whole but for secrets."""

from __future__ import annotations

from collections.abc import Iterable

from codepilot.core.contract import canonical_json
from codepilot.core.events import Event
from codepilot.telemetry.redact import Clean, redact, redact_json


def transcript(events: Iterable[Event], clean: Clean = redact) -> bytes:
    """Each event is redacted by itself: whatever one of them quotes, the others stay."""
    return "".join(f"{_line(event, clean)}\n" for event in events).encode()


def _line(event: Event, clean: Clean) -> str:
    line = canonical_json(event)
    if "\\" not in line and clean(line) == line:
        return line
    return canonical_json(redact_json(event.model_dump(mode="json"), clean))
