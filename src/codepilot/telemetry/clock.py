"""The clock: microseconds UTC inside, RFC 3339 at the edges."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_us() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1000


@lru_cache(maxsize=16)
def rfc3339(us: int) -> str:
    """`us` as RFC 3339 with milliseconds, e.g. `2025-10-15T14:23:01.123Z`."""
    moment = _EPOCH + timedelta(microseconds=us)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
