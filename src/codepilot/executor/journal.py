"""The last word on each key, in one file that only grows, and is written anew when it holds much that is old.

It survives the death of its process at any byte: a line that did not come to its end was never written.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path

_TIMES = 4
"""The file may hold so many times what is kept."""
_HEAD = 65
"""The digest of a key and a space, before its text."""


class Journal:
    """Used by one thread at a time. The last `kept` texts are kept, as far as they have no more than `kept_bytes`."""

    def __init__(self, file: Path, kept: int, kept_bytes: int) -> None:
        self._file = file
        self._kept = kept
        self._kept_bytes = kept_bytes
        self._fd: int | None = None
        self._places: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._lines = 0
        self._size = 0

    def read(self, key: str) -> bytes | None:
        fd, place = self._open(), self._places.get(_name(key))
        return None if place is None else os.pread(fd, place[1] - _HEAD - 1, place[0] + _HEAD)

    def write(self, key: str, text: bytes, busy: Collection[str] = ()) -> None:
        """The text of a key from now on, on one line; an empty one for none. Busy keys are kept however old."""
        fd, name = self._open(), _name(key)
        line = b"%s %s\n" % (name, text)
        _write_all(fd, line)
        self._note(name, len(line), bool(text))
        if self._lines > _TIMES * self._kept or self._size > _TIMES * self._kept_bytes:
            self._shorten({_name(one) for one in busy})

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> int:
        if self._fd is None:
            fd = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._places.clear()
            self._lines = self._size = 0
            with os.fdopen(os.dup(fd), "rb") as lines:
                for line in lines:
                    if line.endswith(b"\n"):
                        self._note(line[: _HEAD - 1], len(line), len(line) > _HEAD + 1)
            os.ftruncate(fd, self._size)
            self._fd = fd
        return self._fd

    def _note(self, name: bytes, size: int, there: bool) -> None:
        self._places.pop(name, None)
        if there:
            self._places[name] = (self._size, size)
        self._size += size
        self._lines += 1

    def _shorten(self, busy: Collection[bytes]) -> None:
        """Write what is kept to a file of its own, which then takes this one's place."""
        fd, kept, size = self._open(), [], 0
        for number, (name, (start, length)) in enumerate(reversed(self._places.items())):
            size += length
            if name in busy or not number or (number < self._kept and size <= self._kept_bytes):
                kept.append((start, length))
        partial = self._file.with_suffix(".partial")
        with partial.open("wb") as file:
            for start, length in reversed(kept):
                file.write(os.pread(fd, length, start))
        partial.rename(self._file)
        self.close()


def _name(key: str) -> bytes:
    return hashlib.sha256(key.encode()).hexdigest().encode()


def _write_all(fd: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
