"""The end of a run is notified: where to, what is on record of it, and what to do after each try. Pure."""

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from codepilot.core.contract import Contract
from codepilot.core.failures import Failure

FIRST_WAIT_SEC = 1.0
LONGEST_WAIT_SEC = 300.0
PATIENCE_SEC = 24 * 3600.0
"""How long after the end of a run its notification is tried again."""
PASSING = frozenset({408, 409, 425, 429})
"""Refusals that ask to come back later, or whose key is being worked on; any other (4xx) will be the same tomorrow."""
ASK_FOR_TIME = frozenset({429, 503})
"""Answers that may say, by `Retry-After`, when to come back."""
LONGEST_ASKED_SEC = 3600.0
"""What a receiver may ask for at most: one that is wrong about it is asked again within the day."""

_MOST_DIGITS = 12
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
    """How many were made, by whomever, this one included."""
    age_sec: float
    """Since the run's end."""
    asked_sec: float | None = None
    """How long the receiver asked to be left alone."""


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
    asked = tried.asked_sec if status in ASK_FOR_TIME else None
    wait = max(wait_after(tried.tries, chance), min(asked or 0.0, LONGEST_ASKED_SEC))
    return too_late(tried.age_sec) or Again(wait)


def too_late(age_sec: float) -> GivenUp | None:
    """Nobody wants to be told any more so long after the run's end."""
    return GivenUp(f"the run ended {age_sec / 3600:.0f} hours ago") if age_sec >= PATIENCE_SEC else None


def wait_after(tries: int, chance: float) -> float:
    """How long to wait after so many tries: longer each time, and never the same for two."""
    longest: float = min(FIRST_WAIT_SEC * 2 ** min(tries - 1, 30), LONGEST_WAIT_SEC)
    return longest * (0.5 + chance / 2)


def asked_wait(retry_after: str | None, now_sec: float) -> float | None:
    """How long an answer's `Retry-After` asks to wait: it is a number of seconds or a date. None if it is neither."""
    said = (retry_after or "").strip()
    if said.isascii() and said.isdigit():
        return float(said[:_MOST_DIGITS])
    try:
        date = parsedate_to_datetime(said)
        date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - now_sec)
    except (ValueError, TypeError, OverflowError, LookupError):
        return None


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
