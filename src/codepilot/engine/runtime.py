"""The open runtime: one home directory with its store and artifacts, shared by every door."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from codepilot.core.events import Event, EventType
from codepilot.core.failures import CodePilotError
from codepilot.core.run import Run
from codepilot.engine.settings import ARTIFACTS_VARIABLE, Settings
from codepilot.store import Artifacts, Home, Store, open_artifacts
from codepilot.store.listing import Tally
from codepilot.store.queue import LEASE, Lease
from codepilot.telemetry import Redactor

if TYPE_CHECKING:
    from codepilot.telemetry.otlp import TraceExporter

_log = logging.getLogger(__name__)
KEPT = 400
TALLIES_KEPT = 1_000


@dataclass(frozen=True)
class Runtime:
    settings: Settings
    store: Store
    artifacts: Artifacts

    @classmethod
    def open(cls, settings: Settings, lease: Lease = LEASE) -> Runtime:
        """The home, and the store and artifacts that the settings name; by default the home's own."""
        home = settings.home.ensure()
        store = Store.open(settings.store or home.database, lease=lease)
        _log.info("the home is %s, the store is %s", home.path, store.place)
        runtime = cls(settings, store, open_artifacts(settings.artifacts or home.artifacts, settings.environ))
        _ = runtime.traces  # an extra that is not installed is reported now
        return runtime

    @property
    def home(self) -> Home:
        return self.settings.home

    @property
    def shared(self) -> bool:
        """True if workers on other machines may continue runs that begin here."""
        return self.store.shared

    @property
    def apart(self) -> str:
        """A warning if machines share the store, and each would keep artifacts in a home of its own; else empty."""
        if not self.shared or not Path(self.artifacts.place).resolve().is_relative_to(self.home.path.resolve()):
            return ""
        return (
            f"The store is a server, but artifacts are kept in this home ({self.artifacts.place}): a worker with "
            "another home cannot read them, and ends such runs with artifact_store_unavailable. Name one place for "
            f"all: --artifacts or {ARTIFACTS_VARIABLE}, s3://BUCKET or a directory that all machines share."
        )

    @property
    def redact(self) -> Redactor:
        """Removes secrets from reports and logs."""
        return self.settings.redact

    def leave_name(self) -> None:
        """Mark the home and the artifacts as used by this store: garbage collection removes nothing of other stores."""
        _ = self._left_name

    @cached_property
    def _left_name(self) -> bool:
        for place in (self.home, self.artifacts):
            place.leave_name(self.store.store_id, self.store.place)
        return True

    def count(self, run: Run, events: Sequence[Event]) -> None:
        """Count events that this process recorded, and trace the run if they end it; `run` is the run before them."""
        from codepilot.engine.metrics import count

        count(run, events)
        if self.traces is not None and any(event.type is EventType.RUN_FINISHED for event in events):
            self.traces.run_ended(self.store.load(run.run_id), self.store.events(run.run_id))

    @cached_property
    def views(self) -> RunViews:
        """Runs for lists that are shown again and again."""

        return RunViews(self.store)

    @cached_property
    def traces(self) -> TraceExporter | None:
        """What sends traces, if the settings name a receiver."""
        address = self.settings.service.traces
        if address is None:
            return None
        from codepilot.telemetry.otlp import TraceExporter

        return TraceExporter(address)

    def close(self) -> None:
        if self.__dict__.get("traces") is not None:
            self.__dict__["traces"].close()
        self.store.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RunViews:
    """The newest view of each run. Safe to use from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str, Run] = OrderedDict()
        self._tallies: OrderedDict[str, tuple[int, Tally]] = OrderedDict()
        self._guard = threading.Lock()

    def of(self, run_ids: Sequence[str]) -> dict[str, Run]:
        """The runs by their ids, in that order; one that is damaged or of a newer version is left out."""
        newest = {one.run_id: one.last_seq for one in self._store.listing.changes(list(run_ids))} if run_ids else {}
        found: dict[str, Run] = {}
        for run_id in run_ids:
            known = self._known.get(run_id)
            if known is None or known.last_seq != newest.get(run_id):
                try:
                    known = self._store.load(run_id)
                except CodePilotError:  # `fsck` names it
                    continue
            found[run_id] = known
        with self._guard:
            for run_id, run in found.items():
                self._known[run_id] = run
                self._known.move_to_end(run_id)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
        return found

    def tally(self, run: Run) -> Tally:
        """What the log of this run says of tools and memory. A log that did not grow is not read again."""
        with self._guard:
            last_seq, tally = self._tallies.get(run.run_id, (None, None))
        if tally is None or last_seq != run.last_seq:
            tally = self._store.listing.tally(run.run_id)
        with self._guard:
            self._tallies[run.run_id] = (run.last_seq, tally)
            self._tallies.move_to_end(run.run_id)
            while len(self._tallies) > TALLIES_KEPT:
                self._tallies.popitem(last=False)
        return tally
