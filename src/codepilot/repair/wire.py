"""What is heard from a process inside, taken as hostile: of the types that were asked for, in range, and bounded."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

MAX_LINE = 32 << 20
MAX_UNREAD = 64 << 20
"""Bytes that may wait to be read: who says more while nobody listens floods the host."""
MAX_TEXT = 10_000
MAX_NUMBER = 1 << 40
MAX_SECONDS = 1e7


class Garbled(Exception):
    """Something was said that the host did not ask for."""


class Outflow:
    """Lines off a pipe, read by a thread until the pipe ends or too much waits; then `end` is called."""

    def __init__(self, stdout: BinaryIO, end: Callable[[], None], most: int = MAX_UNREAD) -> None:
        self.idle = threading.Event()
        """Set once what was asked for is done, or nothing more will come."""
        self.flooded = False
        self._stdout, self._end, self._most = stdout, end, most
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._unread = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._pump, daemon=True).start()

    def get(self, timeout: float) -> bytes | None:
        """The next line; None at the end. Raises queue.Empty if there is none in time."""
        line = self._lines.get(timeout=timeout)
        self._count(-len(line or b""))
        return line

    def _count(self, size: int) -> int:
        with self._lock:
            self._unread += size
            return self._unread

    def _pump(self) -> None:
        try:
            while line := self._stdout.readline(MAX_LINE):
                if self._count(len(line)) > self._most:
                    self.flooded = True
                    break
                self._lines.put(line)
                if line.startswith(b'{"done"'):
                    self.idle.set()
        except (OSError, ValueError):
            pass  # the pipe was closed while it was read
        finally:
            self._lines.put(None)
            self.idle.set()
        if self.flooded:
            self._end()


def message(line: bytes) -> dict[str, Any]:
    """One JSON object."""
    try:
        found = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError, MemoryError):
        raise Garbled("it said something that is not JSON") from None
    if not isinstance(found, dict):
        raise Garbled("it said something that is not a message")
    return found


def _no_number(name: str) -> float:
    raise ValueError(name)


def count(value: object, most: int = MAX_NUMBER) -> int:
    """A whole number, not more than `most`; none is 0."""
    if value is None:
        return 0
    if not _whole(value):
        raise Garbled("it counted what cannot be counted")
    assert isinstance(value, int)
    return min(value, most)


def number(value: object, most: float = MAX_SECONDS) -> float:
    """A number from 0 to `most`; none is 0."""
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_NUMBER:
        raise Garbled("it measured what cannot be measured")
    return min(float(value), most)


def share(value: object) -> float:
    return number(value, 1.0)


def text(value: object, most: int = MAX_TEXT) -> str:
    """A text that can be written, cut to `most` characters; none is empty."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Garbled("it said something else where a text was asked for")
    return value[:most].encode("utf-8", "backslashreplace").decode()[:most]


def strings(value: object) -> tuple[str, ...]:
    return tuple(text(item) for item in _listed(value))


def wholes(value: object) -> list[int]:
    """The numbers of a list that can be numbers of lines: code that was made by code may have others."""
    return [item for item in _listed(value) if _whole(item)]


def places(value: object) -> tuple[tuple[str, int], ...]:
    """Pairs of a path and a line."""
    pairs = [_listed(pair) for pair in _listed(value)]
    if any(len(pair) != 2 for pair in pairs):
        raise Garbled("it named a place that is none")
    return tuple((text(path), count(line)) for path, line in pairs)


def numbered_lines(value: object) -> dict[str, frozenset[int]]:
    """Numbers of lines, by path."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Garbled("it named lines of no file")
    return {text(path): frozenset(wholes(numbers)) for path, numbers in value.items()}


def numbered_ways(value: object) -> dict[str, frozenset[tuple[int, int]]]:
    """Pairs of such numbers, by path."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Garbled("it named ways of no file")
    return {text(path): frozenset(_pairs(pairs)) for path, pairs in value.items()}


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
        raise Garbled("it said something else where a list was asked for")
    return value
