"""The end of a run is notified: where to, what is on record of it, and what to do after each try. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from codepilot.core.contract import Contract
from codepilot.core.failures import Failure

FIRST_WAIT_SEC = 1.0
LONGEST_WAIT_SEC = 300.0
PATIENCE_SEC = 24 * 3600.0
"""How long after the end of a run its notification is tried again."""
PASSING = frozenset({408, 409, 425, 429})
"""Refusals that ask to come back later, or whose key is being worked on; any other (4xx) will be the same tomorrow."""

_SHORTEST_SECRET = 12


class NotificationSent(Contract):
    """The receiver took the notification of what event `of` ended."""

    of: int
    status: int


class NotificationFailed(Contract):
    """It was refused, or tried for too long: nobody tries it again."""

    of: int
    failure: Failure


@dataclass(frozen=True)
class Tried:
    """One try at a notification. `status` is the answer's, if there was one."""

    status: int | None
    tries: int
    """How many were made here, this one included."""
    age_sec: float
    """Since the run's end."""


@dataclass(frozen=True)
class Taken:
    status: int


@dataclass(frozen=True)
class Again:
    seconds: float


@dataclass(frozen=True)
class GivenUp:
    why: str


def after_try(tried: Tried, chance: float) -> Taken | Again | GivenUp:
    """What follows. `chance`, from 0 to 1, keeps those who try at the same time from doing so ever after."""
    status = tried.status
    if status is not None and 200 <= status < 300:
        return Taken(status)
    if status is not None and 400 <= status < 500 and status not in PASSING:
        return GivenUp("it was refused")
    return too_late(tried.age_sec) or Again(wait_after(tried.tries, chance))


def too_late(age_sec: float) -> GivenUp | None:
    """Nobody wants to be told any more so long after the run's end."""
    return GivenUp(f"the run ended {age_sec / 3600:.0f} hours ago") if age_sec >= PATIENCE_SEC else None


def wait_after(tries: int, chance: float) -> float:
    """How long to wait after so many tries: longer each time, and never the same for two."""
    longest: float = min(FIRST_WAIT_SEC * 2 ** min(tries - 1, 30), LONGEST_WAIT_SEC)
    return longest * (0.5 + chance / 2)


def mistake_in(url: str) -> str:
    """Why notifications cannot be sent there, if so. Says nothing of the URL itself: it may hold a secret."""
    if not (url.isascii() and url.isprintable()) or " " in url:
        return "it has characters that no URL has"
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna"), parts.port
    except ValueError:
        return "it is no URL"
    if parts.scheme not in ("http", "https"):
        return "it must begin with http:// or https://"
    return "" if host and port != 0 else "it names no host"


def secrets_in(url: str) -> tuple[str, ...]:
    """What of the URL must not be written anywhere. Behind the host, what is short is a word like any other."""
    parts = urlsplit(url)
    behind = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return (url, *(one for one in (parts.password or "", parts.query, behind) if len(one) >= _SHORTEST_SECRET))
