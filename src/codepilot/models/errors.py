"""Maps a provider's error to a typed failure, and says whether and when to retry."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import UNCHARGED

SHOWN = 500
LONGEST_PARK_SEC = 366 * 86400.0
"""A reset time beyond this is ignored as a mistake."""
_TOO_LONG = re.compile(
    r"(?i)prompt is too long|context.{0,3}length|context.{0,3}window|maximum context|exceeds?.{0,40}context"
    r"|too many (?:input )?tokens|input is too long|larger than (?:the )?(?:max )?context|greater than the context"
)
_LIMITS = ("n_ctx", "max_model_len", "context_length")
"""The fields of a refusal in which servers name their context size."""
_LIMIT = (
    re.compile(r"> ?(\d[\d,]*)"),
    re.compile(r"(?i)context (?:length|size|window|limit)\D{0,40}?(\d[\d,]*)"),
    re.compile(r"(?i)(?:exceeds?|limit of|maximum|at most)\D{0,30}?(\d[\d,]*)"),
)
_SPENT = re.compile(r"(?i)insufficient.quota|billing|credit balance|usage.limit|exceeded your current quota")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BUCKETS = ("requests", "tokens", "input-tokens", "output-tokens")


class ModelFailure(CodePilotError):
    """A model's failure. `again` says whether the same call may succeed later, `wait` after how many seconds."""

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        next_action: str = "",
        *,
        again: bool = False,
        wait: float | None = None,
        **details: object,
    ) -> None:
        super().__init__(kind, message, next_action, **details)
        self.again = again
        self.wait = wait


@dataclass(frozen=True)
class Refusal:
    """A provider's error response. A `status` of 200 means that it came within a stream."""

    status: int
    headers: Mapping[str, str]
    body: object

    @property
    def error(self) -> Mapping[str, object]:
        body = self.body if isinstance(self.body, Mapping) else {}
        inner = body.get("error", body)
        return inner if isinstance(inner, Mapping) else {"message": inner}

    @property
    def text(self) -> str:
        text = self.error.get("message") or self.error.get("detail")
        return str(text) if text else str(self.body)[:SHOWN] if isinstance(self.body, str) else ""

    @property
    def names(self) -> str:
        """The provider's names for the error."""
        return " ".join(str(self.error.get(key) or "") for key in ("type", "code", "param"))


def context_limit(refusal: Refusal) -> int | None:
    """The context size that a refusal names, in tokens."""
    for name in _LIMITS:
        value = refusal.error.get(name)
        if isinstance(value, int) and value > 0:
            return value
    found = (pattern.search(refusal.text) for pattern in _LIMIT)
    return next((int(match[1].replace(",", "")) for match in found if match), None)


def refused(model: str, refusal: Refusal, now: float, clean: Callable[[str], str]) -> ModelFailure:
    """The failure that a refusal means. `now` is in seconds; `clean` redacts the provider's text."""
    kind, again = _kind(refusal)
    text = clean(refusal.text)[:SHOWN] or f"status {refusal.status}"
    details: dict[str, object] = {"status": refusal.status, "text": text, "param": str(refusal.error.get("param"))}
    wait = None
    if kind is FailureKind.MODEL_QUOTA:
        reset = reset_at(refusal, now, rated=again)
        wait = None if reset is None else max(0.0, reset - now)
        details["reset_at"] = None if wait is None or wait > LONGEST_PARK_SEC else round((now + wait) * 1_000_000)
    elif again:
        wait = retry_after(refusal.headers, now)
    if refusal.status >= 400:
        details[UNCHARGED] = True
    if kind is FailureKind.CONTEXT_EXCEEDED:
        details["limit"] = context_limit(refusal)
    message, advice = _MESSAGES.get(kind, ("{model} did not accept the request: {text}", "Choose another model."))
    return ModelFailure(kind, message.format(model=model, text=text), advice, again=again, wait=wait, **details)


def sdk_missing(package: str) -> ModelFailure:
    return ModelFailure(
        FailureKind.INVALID_SPEC,
        f"The model needs the package {package!r}, which is not installed.",
        next_action=f"Install it into CodePilot's environment: pip install {package} genai-prices",
    )


_MESSAGES = {
    FailureKind.MODEL_AUTH: ("{model} does not accept the key: {text}", ""),
    FailureKind.MODEL_QUOTA: ("The quota of {model} is used up: {text}", ""),
    FailureKind.MODEL_OVERLOADED: ("{model} is overloaded: {text}", ""),
    FailureKind.MODEL_TIMEOUT: ("{model} took too long: {text}", ""),
    FailureKind.CONTEXT_EXCEEDED: ("The conversation is too long for {model}: {text}", ""),
    FailureKind.INVALID_SPEC: ("{model} cannot be found there: {text}", "Name a model that the provider has."),
}


def _kind(refusal: Refusal) -> tuple[FailureKind, bool]:
    status, names, text = refusal.status, refusal.names, refusal.text
    if status in (401, 403) or re.search("authentication_error|permission_error|invalid_api_key", names):
        return FailureKind.MODEL_AUTH, False
    if status == 402 or _SPENT.search(names) or (status in (400, 429) and _SPENT.search(text)):
        return FailureKind.MODEL_QUOTA, False
    if status == 429 or "rate_limit" in names:
        return FailureKind.MODEL_QUOTA, True
    if (
        status == 413
        or re.search("context_(?:length|size)", names)
        or (status in (200, 400, 422) and _TOO_LONG.search(text))
    ):
        return FailureKind.CONTEXT_EXCEEDED, False
    if status == 404 or "not_found" in names:
        return FailureKind.INVALID_SPEC, False
    if status in (408, 409) or "timeout_error" in names:
        return FailureKind.MODEL_TIMEOUT, True
    if status >= 500 or re.search("overloaded|api_error|server_error", names) or status == 200:
        return FailureKind.MODEL_OVERLOADED, True
    return FailureKind.MODEL_REFUSED, False


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """How many seconds the provider asks to wait: as a number, or as an HTTP date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = _header(headers, name)
        if value is None:
            continue
        moment = _number(value)
        moment = _http_date(value) if moment is None else now + moment * unit
        if moment is not None:
            return max(0.0, moment - now)
    return None


def reset_at(refusal: Refusal, now: float, *, rated: bool = True) -> float | None:
    """When there is quota again, in seconds since 1970, if the provider says so.

    Quota that is bought or granted, not `rated`, does not return with the limits of a minute.
    """
    body = refusal.error
    for key, start in (("resets_at", 0.0), ("resets_in_seconds", now)):
        value = body.get(key)
        if isinstance(value, (int, float)) and math.isfinite(value):
            return start + value
    wait = retry_after(refusal.headers, now)
    if wait is not None:
        return now + wait
    if (delay := _retry_delay(body.get("details"), now)) is not None:
        return delay
    resets = [_moment(value, now) for value in _exhausted(refusal.headers, rated)]
    return max((reset for reset in resets if reset is not None), default=None)


def _retry_delay(details: object, now: float) -> float | None:
    """The moment that Google's `RetryInfo` names: `"retryDelay": "34.07s"`."""
    found = details if isinstance(details, list) else []
    delays = [one.get("retryDelay") for one in found if isinstance(one, Mapping)]
    return next((_moment(delay, now) for delay in delays if isinstance(delay, str)), None)


def _exhausted(headers: Mapping[str, str], rated: bool) -> list[str]:
    """The reset times of the exhausted limits. If none is marked so, a `rated` refusal takes all."""
    unified = _header(headers, "anthropic-ratelimit-unified-reset")
    found: list[tuple[str | None, str]] = [("0", unified)] if unified else []
    for bucket in _BUCKETS:
        for left, reset in (
            (f"anthropic-ratelimit-{bucket}-remaining", f"anthropic-ratelimit-{bucket}-reset"),
            (f"x-ratelimit-remaining-{bucket}", f"x-ratelimit-reset-{bucket}"),
        ):
            value = _header(headers, reset)
            if value is not None:
                found.append((_header(headers, left), value))
    return [value for left, value in found if left == "0"] or [value for _, value in found if rated]


def _moment(value: str, now: float) -> float | None:
    """`6m0s`, RFC 3339, or seconds since 1970."""
    parts = _DURATION.findall(value)
    if parts and "".join(number + unit for number, unit in parts) == value:
        return now + sum(float(number) * _SECONDS[unit] for number, unit in parts)
    if (number := _number(value)) is not None:
        return number
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        return None


def _number(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _http_date(value: str) -> float | None:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, TypeError):
        return None


def _header(headers: Mapping[str, str], name: str) -> str | None:
    return next((value.strip() for key, value in headers.items() if key.lower() == name), None)
