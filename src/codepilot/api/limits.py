"""Rate limits: a token bucket for each user."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MOST_USERS = 10_000
"""Buckets that are kept; the fullest half is forgotten when there are more."""


class RateLimits:
    """Safe to use from any thread."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = per_minute / 60
        self._burst = max(10.0, per_minute / 10)
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, user: str, cost: float = 1.0) -> float:
        """Count a request; the seconds after which the user may ask again, 0 if now."""
        now = self._clock()
        with self._lock:
            level, at = self._buckets.get(user, (self._burst, now))
            level = min(self._burst, level + (now - at) * self._rate)
            if level < cost:
                self._buckets[user] = (level, now)
                return (cost - level) / self._rate
            self._buckets[user] = (level - cost, now)
            if len(self._buckets) > MOST_USERS:
                self._forget()
            return 0.0

    def _forget(self) -> None:
        emptiest = sorted(self._buckets.items(), key=lambda item: item[1][0])[: MOST_USERS // 2]
        self._buckets = dict(emptiest)
