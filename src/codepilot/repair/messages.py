"""The messages between the search and a worker inside the sandbox. A worker's messages are hostile input.

Values from a worker have the types that were asked for, are in range, and are bounded; else `ProtocolError`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from codepilot.repair.edit import Edit, Source, Unit
from codepilot.repair.localise import TestTrace
from codepilot.sandbox import ProtocolError

MAX_TEXT = 10_000
MAX_NUMBER = 1 << 40
_MAX_SECONDS = 1e7
_MAX_REACH = 8
_MAX_FAILED = 100
_MAX_NAME, _MAX_BEHAVIOUR = 200, 64
Mode = Literal["warm", "cold"]
Outcome = Literal["passed", "failed", "timeout", "died", "invalid", "reload"]
_OUTCOMES: tuple[Outcome, ...] = ("passed", "failed", "timeout", "died", "invalid", "reload")


@dataclass(frozen=True)
class Selection:
    """The tests that judge a candidate: targets first, then those it must not break."""

    targets: tuple[str, ...]
    others: tuple[str, ...] = ()
    thorough: bool = False
    """Run them exactly as the project's runner would, even where a plain call gives the same sooner."""
    cheap: tuple[str, ...] = ()
    """The others again, cheapest first, where their cost is known."""

    def few(self, count: int) -> list[str]:
        """The cheapest of the others, in their order."""
        chosen = set((self.cheap or self.others)[:count])
        return [test for test in self.others if test in chosen]


@dataclass(frozen=True)
class Job:
    """One candidate as a worker takes it: an edit of a function to swap, or (without a unit) a file to load anew."""

    number: int
    source: Source
    edit: Edit
    selection: Selection
    unit: Unit | None = None

    @property
    def content(self) -> bytes | None:
        """The whole file with the edit made; None if its encoding has no way to write it."""
        return self.source.apply(self.edit)

    @property
    def unchanged(self) -> Job:
        """The same tests without any change."""
        at = self.unit.end if self.unit else 0
        return replace(self, edit=Edit(at, at, "", ""))

    def message(self, mode: Mode, suite: str, unit: str) -> dict[str, Any]:
        shared = {"n": self.number, "suite": suite}
        if mode == "cold" or self.unit is None:
            content = self.content or b""
            return {**shared, "path": self.source.path, "content": base64.b64encode(content).decode()}
        start, end = self.unit.place(self.edit)
        return {**shared, "unit": unit, "start": start, "end": end, "text": self.edit.replacement}


@dataclass(frozen=True)
class TrialResult:
    """How a candidate ended. `reach` grows with how far it came: tests passed, then lines of the test that failed."""

    number: int
    outcome: Outcome
    test: str | None
    kind: str = ""
    """The name of the exception."""
    reach: tuple[int, ...] = ()
    failed: tuple[str, ...] = ()
    """All tests besides the targets that failed, where that is known."""


@dataclass(frozen=True)
class Evidence:
    """Evidence for a candidate besides its tests: documentation, and its behaviour on further inputs."""

    examples: int = 0
    """Examples that the documentation gives."""
    examples_held: int = 0
    behaviour: str = ""
    """A hash of the results on further inputs: equal for candidates that do the same; empty if unknown."""
    unchanged: float = 1.0
    """The share of inputs like those of passing tests whose result stays the same."""
    new_crashes: float = 0.0
    """The share of those inputs that had a result and now crash."""
    crash_rate: float = 0.0
    """The share of inputs like those of the failing tests that crash."""
    new_types: float = 0.0
    """The share of results of a type that neither the annotation nor any result before has."""
    lost: tuple[int, ...] = ()
    """Which of the examples hold on the base and not with the candidate."""


UNKNOWN = Evidence(unchanged=0.0)
"""The evidence for a candidate that ended the process that examined it: none."""


# --- reading ----------------------------------------------------------------------------------------------------


def results_of(message: Mapping[str, Any]) -> Iterator[TrialResult]:
    found = message.get("results")
    for one in found if isinstance(found, list) else ():
        if not isinstance(one, dict) or one.get("outcome") not in _OUTCOMES:
            raise ProtocolError("it sent an unknown outcome")
        reach = [count(one.get("passed")), *wholes(one.get("lines"))] if "passed" in one else []
        yield TrialResult(
            count(one.get("n")),
            one["outcome"],
            text(one.get("test")) or None,
            text(one.get("kind"), _MAX_NAME),
            tuple(reach[:_MAX_REACH]),
            strings(one.get("failed"))[:_MAX_FAILED] if one["outcome"] == "failed" else (),
        )


def evidence_of(message: Mapping[str, Any], asked: int) -> Evidence:
    examples = count(message.get("examples"), asked)
    return Evidence(
        examples,
        count(message.get("examples_held"), examples),
        text(message.get("behaviour"), _MAX_BEHAVIOUR),
        share(message.get("unchanged")),
        share(message.get("new_crashes")),
        share(message.get("crash_rate")),
        share(message.get("new_types")),
        tuple(at for at in wholes(message.get("lost")) if at < asked),
    )


def trace_of(message: Mapping[str, Any]) -> TestTrace:
    return TestTrace(
        test=text(message.get("test")),
        outcome=text(message.get("outcome"), _MAX_NAME),
        cpu_sec=number(message.get("cpu")),
        wall_sec=number(message.get("wall")),
        lines={path: frozenset(wholes(one)) for path, one in by_path(message.get("lines"))},
        branches={path: frozenset(_pairs(one)) for path, one in by_path(message.get("branches"))},
        exception=text(message.get("exception"), _MAX_NAME),
        message=text(message.get("message")),
        frames=places(message.get("frames")),
    )


def count(value: object, most: int = MAX_NUMBER) -> int:
    """A whole number, at most `most`; None is 0."""
    if value is None:
        return 0
    if not _whole(value):
        raise ProtocolError("it sent something else where a count was expected")
    assert isinstance(value, int)
    return min(value, most)


def number(value: object, most: float = _MAX_SECONDS) -> float:
    """A number from 0 to `most`; None is 0."""
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_NUMBER:
        raise ProtocolError("it sent something else where a number was expected")
    return min(float(value), most)


def share(value: object) -> float:
    return number(value, 1.0)


def text(value: object, most: int = MAX_TEXT) -> str:
    """A text that can be encoded, cut to `most` characters; None is empty."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ProtocolError("it sent something else where a text was expected")
    return value[:most].encode("utf-8", "backslashreplace").decode()[:most]


def strings(value: object) -> tuple[str, ...]:
    return tuple(text(item) for item in _listed(value))


def wholes(value: object) -> list[int]:
    """The items of a list that can be line numbers: generated code may have others."""
    return [item for item in _listed(value) if _whole(item)]


def places(value: object) -> tuple[tuple[str, int], ...]:
    """Pairs of a path and a line."""
    pairs = [_listed(pair) for pair in _listed(value)]
    if any(len(pair) != 2 for pair in pairs):
        raise ProtocolError("it sent something else where a path and a line were expected")
    return tuple((text(path), count(line)) for path, line in pairs)


def by_path(value: object) -> Iterator[tuple[str, object]]:
    """Values by path."""
    if value is not None and not isinstance(value, dict):
        raise ProtocolError("it sent something else where paths were expected")
    for path, one in (value or {}).items():
        yield text(path), one


def _pairs(value: object) -> Iterator[tuple[int, int]]:
    for pair in map(wholes, _listed(value)):
        if len(pair) == 2:
            yield pair[0], pair[1]


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_NUMBER


def _listed(value: object) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ProtocolError("it sent something else where a list was expected")
    return value
