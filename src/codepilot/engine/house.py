"""The open house: one home directory with its store and artifacts, shared by every door."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from codepilot.store import Artifacts, FileArtifacts, Home, Store


@dataclass(frozen=True)
class House:
    home: Home
    store: Store
    artifacts: Artifacts

    @classmethod
    def open(cls, environ: Mapping[str, str]) -> House:
        home = Home.default(environ)
        home.ensure()
        return cls(home, Store.open(home.database, locks=home.locks), FileArtifacts(home.artifacts))

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> House:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
