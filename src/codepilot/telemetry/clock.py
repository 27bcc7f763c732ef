"""The clock: microseconds UTC inside, RFC 3339 at the edges."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def now_us() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def rfc3339(us: int) -> str:
    """`us` as RFC 3339 with milliseconds, e.g. `2025-10-15T14:23:01.123Z`."""
    second, rest = divmod(us, 1_000_000)
    return f"{_second(second)}.{rest // 1000:03d}Z"


@lru_cache(maxsize=16)
def _second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).isoformat().removesuffix("+00:00")
