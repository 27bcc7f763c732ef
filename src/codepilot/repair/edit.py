"""Source files as text, the functions in them, and edits of one span that leave every other byte alone.

A language's backend derives its own classes from `Source` and `Unit`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

_NEWLINE = re.compile(r"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
PROPOSED = "proposed"
"""The template name of changes that come from outside the search."""


@dataclass(frozen=True)
class Edit:
    """Put `replacement` in place of the characters from `start` to `end`."""

    start: int
    end: int
    replacement: str
    template: str


class Unreadable(Exception):
    """The file cannot be edited safely: it does not parse, or does not survive decoding and encoding."""


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """One file of the project."""

    path: str
    data: bytes
    text: str
    encoding: str

    @property
    @abstractmethod
    def units(self) -> Sequence[Unit]:
        """The functions that can be replaced one by one."""

    @property
    @abstractmethod
    def constants(self) -> frozenset[str]:
        """The file's literals as they are written."""

    @staticmethod
    def decoded(data: bytes, encoding: str) -> str:
        return data.removeprefix(_BOM).decode(encoding)

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in _NEWLINE.finditer(self.text))]

    @cached_property
    def newline(self) -> str:
        match = _NEWLINE.search(self.text)
        return match.group() if match else "\n"

    def line_of(self, offset: int) -> int:
        return bisect_right(self._starts, offset)

    def line_start(self, line: int) -> int:
        return self._starts[line - 1]

    def line_end(self, line: int) -> int:
        """The offset after the line's newline."""
        return self._starts[line] if line < len(self._starts) else len(self.text)

    def apply(self, edit: Edit) -> bytes | None:
        """The file with the edit made, or None if its text cannot be written in the file's encoding."""
        try:
            middle = edit.replacement.encode(self.encoding)
            head = self.text[: edit.start].encode(self.encoding)
            tail = self.text[edit.end :].encode(self.encoding)
        except UnicodeEncodeError:
            return None
        return (_BOM if self.data.startswith(_BOM) else b"") + head + middle + tail

    def unit_at(self, offset: int) -> Unit | None:
        return next((unit for unit in self.units if unit.start <= offset < unit.end), None)

    def difference(self, content: bytes) -> Edit | None:
        """The one edit that makes the file this content; None if there is none in its encoding."""
        try:
            new = self.decoded(content, self.encoding)
        except UnicodeDecodeError:
            return None
        old = self.text
        if new == old:
            return None
        head, tail = shared_ends(old, new)
        edit = Edit(head, len(old) - tail, new[head : len(new) - tail], PROPOSED)
        return edit if self.apply(edit) == content else None


def shared_ends(one: Sequence[object], other: Sequence[object]) -> tuple[int, int]:
    """How many items two sequences share at the beginning, and behind that at the end."""
    shorter = min(len(one), len(other))
    head = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    return head, next((at for at in range(shorter - head) if one[-1 - at] != other[-1 - at]), shorter - head)


@dataclass(frozen=True, eq=False)
class Unit(ABC):
    """The smallest piece of a file that can be compiled alone and put in place of the running one: a function."""

    source: Source = field(repr=False)
    qualname: str
    start: int
    end: int

    @property
    @abstractmethod
    def first_line(self) -> int:
        """The line at which the running function says it begins."""

    @property
    @abstractmethod
    def lines(self) -> range: ...

    @abstractmethod
    def place(self, edit: Edit) -> tuple[int, int]:
        """The span of the edit in the text that is compiled alone."""

    @abstractmethod
    def message(self) -> dict[str, Any]:
        """The data that a worker needs to replace the function."""

    def holds(self, edit: Edit) -> bool:
        """True if the edit lies in the function, so that replacing it makes the whole change."""
        return self.start <= edit.start and edit.end <= self.end


@dataclass(frozen=True, eq=False)
class Proposal:
    """One edit of one file, in its place in the search."""

    position: int
    source: Source
    unit: Unit | None
    """The function whose code is swapped to try it; None if the module must be loaded anew."""
    edit: Edit
    score: float
    line: int
    after: int = -1
    """How many were tried before it, where its position does not say."""
    overfit_penalty: float = 1.0
    """Below 1 where the edit may only please the tests instead of stating an intention."""

    @property
    def penalised(self) -> float:
        return self.score * self.overfit_penalty

    @property
    def effort(self) -> int:
        """How many were tried before it."""
        return self.after if self.after >= 0 else self.position

    @property
    def function(self) -> tuple[str, int]:
        """Identifies the edited function among all files; everything outside of functions counts as one."""
        return self.source.path, self.unit.start if self.unit else -1


Sources = Mapping[str, Source]
