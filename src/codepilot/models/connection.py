"""The connection to a model, and the retry policy: a call that may succeed later is made up to three times."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from codepilot.models.errors import ModelFailure
from codepilot.models.protocol import Reply, Stopped, cancelled
from codepilot.telemetry.redact import redact

LOOK_SEC = 0.1
"""How often a waiting call looks whether it must stop."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Retry:
    """Exponential backoff with jitter, never shorter than the provider asks. A wait above the maximum is not made."""

    tries: int = 3
    first_wait_sec: float = 1.0
    longest_wait_sec: float = 60.0
    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    """Between 0 and 1: the jitter, so that many workers do not return at once."""

    def ask(self, model: str, once: Callable[[], Reply], stopped: Stopped) -> Reply:
        """The reply, or the failure of the last try."""
        attempt = 1
        while True:
            try:
                return once()
            except ModelFailure as failure:
                failure.failure = failure.failure.model_copy(
                    update={"details": {**failure.failure.details, "tries": attempt}}
                )
                wait = self._wait(attempt, failure.wait)
                if not failure.again or attempt >= self.tries or wait > self.longest_wait_sec:
                    raise
                _log.info("%s; it is called again in %.1f s", failure.failure.message, wait)
            self._pause(model, wait, stopped)
            attempt += 1

    def _wait(self, attempt: int, asked_for: float | None) -> float:
        backoff = self.first_wait_sec * 2.0 ** (attempt - 1) * (0.5 + self.chance())
        return max(backoff, asked_for or 0.0)

    def _pause(self, model: str, seconds: float, stopped: Stopped) -> None:
        while seconds > 0:
            if stopped():
                raise cancelled(model)
            self.sleep(min(LOOK_SEC, seconds))
            seconds -= LOOK_SEC


_USUAL = Retry()


@dataclass(frozen=True)
class Connection:
    """How a model is reached. Without `url` the SDK's default is used; `clean` redacts messages."""

    key: str | None = None
    url: str | None = None
    timeout_sec: float = 300.0
    retry: Retry = _USUAL
    clean: Callable[[str], str] = redact

    def __repr__(self) -> str:
        return f"Connection(url={self.url!r})"
