"""Notifications of a run's end: their URL, their events, and what follows each attempt. Pure."""

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from codepilot.core.contract import Contract
from codepilot.core.failures import Failure

FIRST_WAIT_SEC = 1.0
LONGEST_WAIT_SEC = 300.0
PATIENCE_SEC = 24 * 3600.0
"""How long after the end of a run its notification is retried."""
PASSING = frozenset({408, 409, 425, 429})
"""Refusals that may pass. Any other 4xx is final."""
ASK_FOR_TIME = frozenset({429, 503})
"""Answers whose `Retry-After` is respected."""
LONGEST_ASKED_SEC = 3600.0
"""The longest `Retry-After` that is respected."""

_MOST_DIGITS = 12
_SHORTEST_SECRET = 12


class NotificationSent(Contract):
    """The receiver accepted the notification of the end at event `of`."""

    of: int
    status: int


class NotificationFailed(Contract):
    """The notification was refused, or retried for too long; it is not sent again."""

    of: int
    failure: Failure


@dataclass(frozen=True)
class Tried:
    """One attempt. `status` is None if there was no answer."""

    status: int | None
    tries: int
    """All attempts so far, including this one."""
    age_sec: float
    """Time since the run's end."""
    asked_sec: float | None = None
    """The receiver's `Retry-After`."""


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
    """What follows an attempt. `chance`, from 0 to 1, spreads the retries of senders that failed together."""
    status = tried.status
    if status is not None and 200 <= status < 300:
        return Taken(status)
    if status is not None and 400 <= status < 500 and status not in PASSING:
        return GivenUp("it was refused")
    asked = tried.asked_sec if status in ASK_FOR_TIME else None
    wait = max(wait_after(tried.tries, chance), min(asked or 0.0, LONGEST_ASKED_SEC))
    return too_late(tried.age_sec) or Again(wait)


def too_late(age_sec: float) -> GivenUp | None:
    """Give up if the run ended too long ago."""
    return GivenUp(f"the run ended {age_sec / 3600:.0f} hours ago") if age_sec >= PATIENCE_SEC else None


def wait_after(tries: int, chance: float) -> float:
    """Exponential backoff with jitter."""
    longest: float = min(FIRST_WAIT_SEC * 2 ** min(tries - 1, 30), LONGEST_WAIT_SEC)
    return longest * (0.5 + chance / 2)


def asked_wait(retry_after: str | None, now_sec: float) -> float | None:
    """The seconds of a `Retry-After` header, given as seconds or a date; None if it is neither."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:_MOST_DIGITS])
    try:
        date = parsedate_to_datetime(text)
        date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - now_sec)
    except (ValueError, TypeError, OverflowError, LookupError):
        return None


def mistake_in(url: str) -> str:
    """Why the URL is invalid; empty if it is valid. The text does not repeat the URL, which may hold a secret."""
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
    """The parts of the URL to redact. A short path or query is too common a word to redact."""
    parts = urlsplit(url)
    behind = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return (url, *(one for one in (parts.password or "", parts.query, behind) if len(one) >= _SHORTEST_SECRET))
