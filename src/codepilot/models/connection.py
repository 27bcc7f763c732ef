"""How a model is reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from codepilot.models.retry import Retry
from codepilot.telemetry.redact import redact

_USUAL = Retry()


@dataclass(frozen=True)
class Connection:
    """How a model is reached. `url` is the SDK's own unless named; `clean` takes secrets out of what is said."""

    key: str | None = None
    url: str | None = None
    timeout_sec: float = 300.0
    retry: Retry = _USUAL
    clean: Callable[[str], str] = redact

    def __repr__(self) -> str:
        return f"Connection(url={self.url!r})"
