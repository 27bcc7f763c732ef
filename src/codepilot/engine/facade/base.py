"""What every part of the façade works on: the settings, and the home and store that are opened when first needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from codepilot.engine.settings import Settings

if TYPE_CHECKING:
    from codepilot.engine.runtime import Runtime


class FacadeBase:
    """The base of the façade's parts."""

    def __init__(self, settings: Settings | None = None, *, stale_sec: float | None = None) -> None:
        """`settings` are those of this process's user and environment by default. After `stale_sec` of silence others
        take over what a worker of this object was doing.
        """
        self.settings = settings or Settings.load()
        self._stale_sec = stale_sec

    @cached_property
    def _runtime(self) -> Runtime:
        import gc

        from codepilot.engine.runtime import Runtime
        from codepilot.store.queue import LEASE, Lease

        lease = LEASE if self._stale_sec is None else Lease(self._stale_sec / 3, self._stale_sec)
        runtime = Runtime.open(self.settings, lease)
        gc.freeze()  # what is loaded by now stays: the collector need not look at it again
        return runtime

    def open(self, wait_sec: float = 0.0, waiting: Callable[[str], None] = lambda problem: None) -> Self:
        """Open home, store and artifacts now. A store that does not answer is asked again for `wait_sec`, and `waiting`
        gets each new reason.
        """
        from codepilot.store.faults import Interrupted

        deadline, reason = time.monotonic() + wait_sec, ""
        while True:
            try:
                _ = self._runtime
            except Interrupted as error:
                if time.monotonic() >= deadline:
                    raise
                if str(error) != reason:
                    waiting(reason := str(error))
                time.sleep(1.0)
            else:
                return self

    def close(self) -> None:
        if "_runtime" in self.__dict__:
            self._runtime.close()
            del self.__dict__["_runtime"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def warning(self) -> str:
        """What is wrong with the places that are configured, or nothing."""
        return self._runtime.apart

    @property
    def shared(self) -> bool:
        """True if the store is a server, so that workers on other machines can take its runs."""
        return self._runtime.shared

    def find(self, run_id: str) -> str:
        """The whole id of a run, given the beginning of one or "last"."""
        return self._runtime.store.find(run_id)
