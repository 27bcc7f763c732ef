"""What the application's handlers share: the façade, its settings, live streams and rate limits."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastapi import Request

from codepilot.api.limits import RateLimits
from codepilot.api.live import LiveRuns

if TYPE_CHECKING:
    from codepilot.core.events import Event
    from codepilot.engine import CodePilot
    from codepilot.engine.change.landing_queue import LandingWorker
    from codepilot.engine.sections import ServiceSection


class KnownEvents:
    """The events of the runs that were looked at last, so that a page that is asked for again reads only new ones."""

    MOST_RUNS = 4
    MOST_EVENTS = 5_000

    def __init__(self, pilot: CodePilot) -> None:
        self._pilot = pilot
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Event, ...]] = {}

    def of(self, run_id: str) -> list[Event]:
        """All events of a run, which is named by its whole id."""
        with self._lock:
            known = self._known.pop(run_id, ())
        events = (*known, *self._pilot.events(run_id, known[-1].seq if known else 0))
        with self._lock:
            if len(events) <= self.MOST_EVENTS:
                self._known[run_id] = events
            while len(self._known) > self.MOST_RUNS:
                del self._known[next(iter(self._known))]
        return list(events)


@dataclass
class Service:
    """One running application."""

    pilot: CodePilot
    settings: ServiceSection
    live: LiveRuns
    limits: RateLimits
    events: KnownEvents
    draining: threading.Event = field(default_factory=threading.Event)
    """Set once the service takes no new work."""
    landing: LandingWorker | None = None
    """What carries out the landing queue, while the service runs."""

    @classmethod
    def of(cls, pilot: CodePilot) -> Service:
        section = pilot.settings.service
        return cls(
            pilot, section, LiveRuns(pilot, section.streams), RateLimits(section.requests_per_min), KnownEvents(pilot)
        )

    def redact(self, text: str) -> str:
        return self.pilot.settings.redact(text)


def service_of(request: Request) -> Service:
    found = request.app.state.service
    assert isinstance(found, Service)
    return found
