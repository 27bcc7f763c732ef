"""The open runtime: one home directory with its store and artifacts, shared by every door."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType

from codepilot.engine.settings import ARTIFACTS_VARIABLE, Settings
from codepilot.store import Artifacts, Home, Store, open_artifacts
from codepilot.store.queue import LEASE, Lease
from codepilot.telemetry import Redactor


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
        return cls(settings, store, open_artifacts(settings.artifacts or home.artifacts, settings.environ))

    @property
    def home(self) -> Home:
        return self.settings.home

    @property
    def shared(self) -> bool:
        """Whether workers on other machines may go on with what is begun here."""
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
        """Removes secrets from what is written where people look."""
        return self.settings.redact

    def leave_name(self) -> None:
        """Mark the home and the artifacts as used by this store: garbage collection removes nothing of other stores."""
        _ = self._left_name

    @cached_property
    def _left_name(self) -> bool:
        for place in (self.home, self.artifacts):
            place.leave_name(self.store.store_id, self.store.place)
        return True

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Runtime:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
