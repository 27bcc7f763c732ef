"""What the gateway asks before a call and reports after it."""

from __future__ import annotations

from typing import Protocol

from codepilot.core.events import Usage


class CallRefused(Exception):
    """The call may not be made; the message says why, for the program that asked."""


class MeteredCall(Protocol):
    """A call that may be made and has not ended."""

    def grow(self, used: Usage) -> bool:
        """False if the call must be cut off, because so much of it is more than there is."""
        ...

    def quota_is_back(self, at_us: int | None) -> None:
        """The provider refused the call because a quota is used up, and said when it is there again, or not."""
        ...

    def end(self, used: Usage | None) -> None:
        """The call is over; None if the provider refused it, so that it costs nothing."""
        ...


class Meter(Protocol):
    """Counts the calls of one step. Its methods are called by several threads."""

    def begin(self, model: str, estimate: Usage) -> MeteredCall:
        """Charge the estimate; raises `CallRefused` if the call may not be made."""
        ...
