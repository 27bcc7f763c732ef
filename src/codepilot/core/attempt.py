"""One attempt of a batch task: a prompt for a program, its completion marker, and how its end is classified. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from codepilot.core.artifacts import ArtifactRef
from codepilot.core.contract import Contract

MARKER = "TASK_COMPLETE:"
Failed = Literal[
    "failed_auth",
    "failed_quota",
    "failed_permission_blocked",
    "failed_timeout",
    "failed_process",
    "failed_incomplete",
]
Outcome = Literal["completed"] | Failed
RETRIED = frozenset({"failed_timeout", "failed_process"})
"""The failures after which a task is tried again."""
End = Literal["exit", "after_marker", "timeout", "blocked"]
"""How the program ended: by itself, ended by us after the marker, out of time, or at a prompt nobody may answer."""

AUTH = (
    r"\blog ?in\b",
    r"\bauthenticat(?!ed\b)",
    r"\b(?:not|un|never)[ -]?authenticated\b",
    r"\bnot logged in\b",
    r"\bsession expired\b",
    r"\binvalid (?:x-)?api[ -]key\b",
    r"\bapi key not valid\b",
    r"\b401 unauthorized\b",
)
QUOTA = (r"\bquota\b", r"\bcredits?\b", r"\brate.?limit", r"\binsufficient balance\b", r"\busage limit\b")


def _expression(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
    return pattern


Pattern = Annotated[str, AfterValidator(_expression)]


class Profile(Contract):
    """Everything that is known about an agent's program."""

    name: str = ""
    """Its name; the key of its table."""
    command: tuple[str, ...] = ()
    """The program with its arguments; `{prompt}` or `{rendered_prompt}` is the prompt. Without one it is typed."""
    adapter: str = ""
    """The structured protocol that is used instead of a terminal: `claude`, `codex`, `gemini`, `opencode`, `acp:CMD`
    or `stdio:CMD`."""
    auth_regex: tuple[Pattern, ...] = AUTH
    """What the program prints when nobody is logged in."""
    quota_regex: tuple[Pattern, ...] = QUOTA
    """What it prints when its quota or credit is used up."""
    permission_regex: Mapping[str, tuple[Pattern, ...]] = {}
    """What it prints when it asks for a permission, by the name of the answer: `press_1`, `press_p`."""
    keys: Mapping[str, str] = {}
    """What is typed for an answer; `press_1` types `1` and Enter if it is not named here."""
    max_keys: Annotated[int, Field(ge=1, le=1000)] = 5
    """How often each answer is given in one attempt. A program that asks on is blocked."""
    grace_sec: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """How long the program may go on after its completion marker before it is ended, which counts as its normal end."""
    env: Mapping[str, str] = {}
    """Variables of its environment. Keys of models never belong here: code inside can read them."""
    mounts: tuple[str, ...] = ()
    """Directories of this machine that it needs, for example where it is installed; they are read-only inside."""
    hosts: tuple[str, ...] = ()
    """Hosts that it may reach through the proxy."""
    files: Mapping[str, str] = {}
    """Files laid into its private HOME before it starts, by path. In their text `{directory}` is where it works, and
    `{key}` the end of the key that it has for the model gateway. `{NAME}` is a variable of its environment."""

    def typed(self, answer: str) -> str:
        """The characters that give an answer."""
        return self.keys.get(answer, answer.removeprefix("press_") + "\r")


class Attempt(Contract):
    """What one attempt of a batch task runs, and when it is complete."""

    task_id: str
    number: Annotated[int, Field(ge=1)] = 1
    prompt: str
    profile: Profile
    answers: tuple[str, ...] = ()
    """The permission prompts that may be answered, for example `press_1`."""
    timeout_sec: Annotated[float, Field(gt=0)] = 1800.0
    in_place: bool = False
    """True if it works on the directory itself instead of a copy."""

    @property
    def marker(self) -> str:
        return MARKER + self.task_id


class KeysSent(Contract):
    """A permission prompt of a program on a terminal was answered."""

    answer: str
    prompt: str
    """The line of the prompt."""


class AttemptEnded(Contract):
    """How an attempt ended. Code classifies it, never a model."""

    outcome: Outcome
    marker_seen: bool
    exit_code: int | None = None
    """The program's exit code; None if it was ended."""
    ended: End
    keys: Mapping[str, int] = {}
    """How often each answer was given."""
    message: str = ""
    log: ArtifactRef | None = None
    """What the program wrote, or its end if that was much."""
    reset_at: int | None = None
    """When the quota is there again, if the program reported it."""


@dataclass(frozen=True)
class Seen:
    """What is known of a program that has ended."""

    ended: End
    marker: bool
    exit_code: int | None
    text: str
    """The end of its own output, without the echo of the prompt."""


def classify(seen: Seen, auth: Sequence[str], quota: Sequence[str]) -> Outcome:
    """The class of an attempt: complete, else the most specific failure."""
    if seen.marker and (seen.ended == "after_marker" or (seen.ended == "exit" and seen.exit_code == 0)):
        return "completed"
    if seen.ended == "blocked":
        return "failed_permission_blocked"
    if matching(auth, seen.text):
        return "failed_auth"
    if matching(quota, seen.text):
        return "failed_quota"
    if seen.ended == "timeout":
        return "failed_timeout"
    return "failed_process" if seen.exit_code != 0 else "failed_incomplete"


def matching(patterns: Sequence[str], text: str) -> str:
    """The line of `text` that the first matching pattern is on; empty if none matches."""
    for pattern in patterns:
        if found := re.search(pattern, text, re.IGNORECASE):
            start, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
            return text[start : end if end >= 0 else None].strip() or found[0]
    return ""


# The prompt -----------------------------------------------------------------------------------------

_FIELD = re.compile(r"\{\{|\}\}|\{(\w+)\}")


def render(template: str, values: Mapping[str, object]) -> str:
    """The template with `{name}` replaced; `{{` and `}}` are braces. A name without a value is a `KeyError`."""

    def value(found: re.Match[str]) -> str:
        return str(values[found[1]]) if found[1] else found[0][0]

    return _FIELD.sub(value, template)


def with_marker(prompt: str, task_id: str) -> str:
    """The prompt, which asks for the marker if it did not yet."""
    marker = MARKER + task_id
    return prompt if marker in prompt else f"{prompt.rstrip()}\n\nWhen complete, print exactly: {marker}"


# The marker -----------------------------------------------------------------------------------------

_BREAK = r"(?:[ \t]*(?:[│┃|][ \t]*)?\n[ \t]*(?:[│┃|][ \t]*)?)?"
"""Programs break what is too long for their own lines, and may draw a frame around it."""
_CONTEXT = 8
"""So many letters and digits before a marker tell the echo of the prompt from the agent's own words."""


class MarkerWatch:
    """Finds the completion marker in output that may echo the prompt, which has the marker too.

    A marker counts only if no echo of the prompt follows it.
    """

    def __init__(self, marker: str, prompt: str) -> None:
        broken = _BREAK.join(map(re.escape, marker))
        self._token = re.compile(rf"(?<![A-Za-z0-9_]){broken}(?![A-Za-z0-9_-])(?!\.[A-Za-z0-9])")
        self._contexts = [
            (letters_of(prompt[: found.start()])[-_CONTEXT:], letters_of(prompt[found.end() :])[:_CONTEXT])
            for found in self._token.finditer(prompt)
        ]
        self.seen = False
        self._sure = False
        self.own = 0
        """Where, in the text that was looked at last, the agent's own output begins."""

    def look(self, text: str, *, going_on: bool = False) -> bool:
        """Look at the output so far, or at its end. What was seen stays seen until an echo follows.

        Of output that is going on, a marker at the very end may still turn out to be a part of a longer word.
        """
        self.own = 0
        self.seen = self._sure
        for found in self._token.finditer(text):
            echo = self._is_echo(text, found)
            self.seen = not echo
            self._sure = not echo and not (going_on and found.end() == len(text))
            self.own = found.end() if echo else self.own
        return self.seen

    def _is_echo(self, text: str, found: re.Match[str]) -> bool:
        before = letters_of(text[max(0, found.start() - 400) : found.start()])
        after = letters_of(text[found.end() : found.end() + 400])
        return any(
            before.endswith(lead) and (len(lead) == _CONTEXT or after.startswith(tail)) and bool(lead or tail)
            for lead, tail in self._contexts
        )


def letters_of(text: str) -> str:
    """Letters and digits alone: terminals wrap, indent and frame what they show."""
    return "".join(filter(str.isalnum, text))


# The reset of a quota -------------------------------------------------------------------------------

_IN = re.compile(
    r"(?:in|after)\s+(\d+(?:\.\d+)?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)\b"
    r"(?:\s*(?:and\s+)?(\d+)\s*(s|sec|seconds?|m|min|minutes?)\b)?",
    re.IGNORECASE,
)
_ISO = re.compile(r"\b(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)")
_CLOCK = re.compile(r"(?:resets?|again|until)\s+(?:at\s+)?(\d{1,2})(?::(\d\d))?\s*([ap]m)?\b", re.IGNORECASE)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


LONGEST_RESET = timedelta(days=366)


def reset_time(text: str, now: datetime) -> datetime | None:
    """When a program says that its quota is there again; `now` has the user's time zone."""
    try:
        found = _reset_time(text, now)
        return found if found is not None and abs(found - now) <= LONGEST_RESET else None
    except (ValueError, OverflowError):  # no moment that there is
        return None


def _reset_time(text: str, now: datetime) -> datetime | None:
    if found := _ISO.search(text):
        at = datetime.fromisoformat(found[1])
        return at if at.tzinfo else at.replace(tzinfo=now.tzinfo)
    if found := _IN.search(text):
        seconds = float(found[1]) * _UNITS[found[2][0].lower()]
        seconds += int(found[3]) * _UNITS[found[4][0].lower()] if found[3] else 0
        return now + timedelta(seconds=seconds)
    if (found := _CLOCK.search(text)) and (found[2] or found[3]):
        hour, minute = int(found[1]), int(found[2] or 0)
        if hour > (12 if found[3] else 23) or minute > 59:
            return None
        if found[3]:
            hour = hour % 12 + (12 if found[3].lower() == "pm" else 0)
        at = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return at if at > now else at + timedelta(days=1)
    return None
