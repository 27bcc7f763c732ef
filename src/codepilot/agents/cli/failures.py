"""From what an agent's program says at its end to a typed failure. Pure; the words are those of the real programs."""

from __future__ import annotations

import re

from codepilot.core.failures import Failure, FailureKind
from codepilot.core.text import head_and_tail

SHOWN = 500
MOST_READ = 4_000
"""Characters of a message that are looked at."""
LATEST = 9_999_999_999
"""In the year 2286, as seconds since 1970: what a program names beyond it is no time."""
MISSING = 127
"""The exit code of a program that is not there."""

_K = FailureKind
_SPENT = re.compile(r"(?i)the run.s budget is spent|run.{0,20}budget")
_COUNTS = re.compile(r"\d+ ?(?:bytes|ms|tokens)|:\d+")
"""Numbers that are no status."""
_WORDS: tuple[tuple[FailureKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(rf"(?i){words}"))
    for kind, words in (
        (
            _K.MODEL_QUOTA,
            r"hit your (?:usage |session |weekly |5-hour )?limit|usage.limit|credit balance|quota|billing details"
            r"|\b429\b|rate.?limit|too many requests|resource.?(?:has been )?exhausted|insufficient.funds|\b402\b",
        ),
        (
            _K.MODEL_AUTH,
            r"invalid.(?:x-)?api.key|api.key.not.valid|not logged in|please run /login|\b401\b|\b403\b|unauthori[sz]ed"
            r"|authentication.?(?:error|failed|required)|missing environment variable|incorrect api key|oauth token"
            r"|must specify the .{0,40}api_key|when using gemini api|no auth",
        ),
        (
            _K.CONTEXT_EXCEEDED,
            r"prompt is too long|context.?(?:length|window|limit)|maximum context|too many (?:input )?tokens",
        ),
        (
            _K.MODEL_OVERLOADED,
            r"overloaded|at capacity|\b529\b|\b503\b|unavailable|\b50[0-2]\b|server.?error|high demand",
        ),
        (_K.MODEL_TIMEOUT, r"timed? ?out|deadline exceeded|\b408\b"),
        (
            _K.MODEL_UNREACHABLE,
            r"\b(?:econnrefused|enotfound|econnreset|eai_again)\b|connection.?(?:error|refused|reset)|unable to connect"
            r"|(?:can.?t|cannot) reach"
            r"|fetch failed|network.error|premature close|\bterminated\b|error sending request|failed to connect",
        ),
        (_K.INVALID_SPEC, r"\b404\b|model.{0,40}not.?found|not.?found.{0,20}model|model.{0,60}does not exist"),
        (_K.MODEL_REFUSED, r"usage policy|content.?filter|\brefus(?:al|ed to)"),
        (
            _K.MODEL_BAD_REPLY,
            r"stream (?:disconnected|closed)|unexpected (?:end|token)|json|parse|incomplete"
            r"|malformed|invalid (?:response|content|stream)|empty response|no (?:content|response|messages)",
        ),
    )
)
_MESSAGES = {
    _K.BUDGET_EXCEEDED: "{agent} stopped because the run's budget is spent: {words}",
    _K.MODEL_AUTH: "{agent} has no valid key or login: {words}",
    _K.MODEL_QUOTA: "The quota of {agent} is used up: {words}",
    _K.MODEL_OVERLOADED: "The model of {agent} is overloaded: {words}",
    _K.MODEL_TIMEOUT: "The model of {agent} took too long: {words}",
    _K.MODEL_UNREACHABLE: "{agent} cannot reach its model: {words}",
    _K.MODEL_BAD_REPLY: "{agent} could not read its model's reply: {words}",
    _K.MODEL_REFUSED: "The model of {agent} refused: {words}",
    _K.CONTEXT_EXCEEDED: "The conversation is too long for the model of {agent}: {words}",
    _K.INVALID_SPEC: "The model of {agent} cannot be found: {words}",
    _K.AGENT_MISSING: "{agent} is not there: {words}",
    _K.AGENT_CRASHED: "{agent} failed: {words}",
}


def kind_of(words: str, status: int | None = None) -> FailureKind | None:
    """The failure that an error's words mean; a status that the program names counts more."""
    words = head_and_tail(words, MOST_READ)
    if _SPENT.search(words):
        return _K.BUDGET_EXCEEDED
    if status is not None and (kind := _by_status(status)) is not None:
        return kind
    plain = _COUNTS.sub("", words)
    return next((kind for kind, pattern in _WORDS if pattern.search(plain)), None)


def failure(
    agent: str, words: str, kind: FailureKind | None = None, *, reset_at: float | None = None, status: int | None = None
) -> Failure:
    """A failure with its facts; `reset_at` is in seconds since 1970."""
    kind = kind or kind_of(words, status) or _K.AGENT_CRASHED
    shown = " ".join(words[:MOST_READ].split())[:SHOWN] or "it did not say why"
    details: dict[str, str | int | None] = {"agent": agent, "text": shown}
    if status is not None:
        details["status"] = status
    if kind is _K.MODEL_QUOTA:
        known = reset_at is not None and 0 < reset_at < LATEST
        details["reset_at"] = round(reset_at * 1_000_000) if reset_at is not None and known else None
    template = _MESSAGES.get(kind, "{agent} failed: {words}")
    return Failure(kind=kind, message=template.format(agent=agent, words=shown), details=dict(details))


def lost_session(failed: Failure) -> Failure:
    """The failure of a session that the program no longer knows: the task can be started anew."""
    return failed.model_copy(update={"details": {**failed.details, "session": "unknown"}})


def crashed(agent: str, code: int | None, limit: str | None, words: str, kind: FailureKind | None = None) -> Failure:
    """The failure of a program that ended without a terminal event. `words` are the last ones on its error output."""
    shown = " ".join(words.split())[-SHOWN:]
    details: dict[str, str | int | None] = {"agent": agent, "exit_code": code, "limit": limit, "text": shown}
    if limit is not None:
        message = f"{agent} was ended at the limit {limit!r}."
    elif code == MISSING:
        kind, message = _K.AGENT_MISSING, f"{agent} cannot be started: {shown or 'there is no such program'}"
    elif kind is not None:
        message = _MESSAGES.get(kind, "{agent} failed: {words}").format(agent=agent, words=shown)
    else:
        how = "was killed" if code is None or code < 0 or code > 128 else f"ended with code {code}"
        message = f"{agent} {how} before it had finished{': ' + shown if shown else '.'}"
    return Failure(kind=kind or _K.AGENT_CRASHED, message=message, details=dict(details))


def _by_status(status: int) -> FailureKind | None:
    if status in (401, 403):
        return _K.MODEL_AUTH
    if status in (402, 429):
        return _K.MODEL_QUOTA
    if status == 404:
        return _K.INVALID_SPEC
    if status == 413:
        return _K.CONTEXT_EXCEEDED
    if status in (408, 504):
        return _K.MODEL_TIMEOUT
    if status >= 500:
        return _K.MODEL_OVERLOADED
    return None
