"""Changes single values of a JSON text and leaves every other byte as it is: order, indentation, unknown fields."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Span:
    """Where a value is in the text."""

    start: int
    end: int


def members(text: str, start: int) -> dict[str, Span]:
    """The members of the object that begins at `start`; of two with one name the last, as JSON readers take it."""
    found = {}
    at = _skip(text, start + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, value)
        found[name] = Span(value, end)
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return found


def items(text: str, start: int) -> Iterator[Span]:
    """The items of the array that begins at `start`."""
    at = _skip(text, start + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        yield Span(at, end)
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at


def with_members(text: str, start: int, values: Mapping[str, Any]) -> str:
    """The text in which the object at `start` has these members: replaced where they are, else added at its end."""
    present = members(text, start)
    unit, newline = _unit(text), "\r\n" if "\r\n" in text else "\n"
    margin = _margin(text, start, present)

    def written(value: Any) -> str:
        if margin is None or unit is None:
            return json.dumps(value, ensure_ascii=False)
        body = json.dumps(value, ensure_ascii=False, indent=unit)
        return body.replace("\n", newline + margin)

    added = [name for name in values if name not in present]
    if added:
        last = max((span.end for span in present.values()), default=start + 1)
        between = " " if margin is None else newline + margin
        more = [f"{between}{json.dumps(name)}: {written(values[name])}" for name in added]
        lead = "," if present else ""
        text = text[:last] + (lead + ",".join(more)).removeprefix("" if present else " ") + text[last:]
    for name in sorted(values.keys() - set(added), key=lambda one: present[one].start, reverse=True):
        span = present[name]
        text = text[: span.start] + written(values[name]) + text[span.end :]
    return text


def first(text: str) -> int:
    """Where the document begins."""
    return _skip(text, 0)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _unit(text: str) -> str | None:
    """One step of the text's indentation; None if it has none."""
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else None


def _margin(text: str, start: int, present: Mapping[str, Span]) -> str | None:
    """The spaces before a member of the object; None if its members are all on one line."""
    line = text.rfind("\n", start, min((span.start for span in present.values()), default=start))
    if line < 0:
        return None
    found = re.compile(r"[ \t]*").match(text, line + 1)
    return found[0] if found else ""
