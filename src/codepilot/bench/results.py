"""The results of a sweep: one line for each bug, appended at once, so that a resumed sweep repeats nothing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import codepilot

FILE = "results.jsonl"
ROOMS = {"search": ("repair",), "fix": ("repair", "verify", "agents", "engine")}
"""The packages whose source affects the result of a search, and those that affect a whole run."""


@dataclass(frozen=True)
class Result:
    """One bug's row. `correct` has one entry for each offer, the first being the one that would be applied."""

    set: str
    bug: str
    kind: str
    engine: str
    seconds: float
    status: str = "ERROR"
    verdict: str | None = None
    confidence: float = 0.0
    reason: str = ""
    plausible: bool = False
    correct: tuple[bool, ...] = ()
    judged: tuple[str, ...] = ()
    inputs: int = 0
    tried: int = 0
    trying_sec: float = 0.0
    search_sec: float = 0.0
    first_plausible_sec: float | None = None
    total_sec: float = 0.0
    peak_mib: float = 0.0
    template: str = ""
    features: dict[str, float] = field(default_factory=dict)
    """The ingredients of the first offer's confidence."""
    proof: str = ""
    """Why the change is called what it is, where the whole engine is run."""
    patches: tuple[str, ...] = ()
    python: str = ""
    """The interpreter of the bugs, where another than the engine's own was asked for."""
    outside: tuple[str, ...] = ()
    """What happened outside the sandbox while the bug ran, the first of it: files changed, processes left behind."""
    outside_count: int = 0
    watched: int = 0
    """How many files were looked at for that; none in rows of before there was such a look."""

    @property
    def first_correct(self) -> bool:
        return bool(self.correct) and self.correct[0]

    @property
    def any_correct(self) -> bool:
        return any(self.correct[:5])

    @property
    def key(self) -> tuple[str, str, str, float, str]:
        return (self.set, self.bug, self.engine, self.seconds, self.python)


OUTSIDE = 20
"""How many changes outside the sandbox a row names; all are counted."""


def with_outside(result: Result, changes: Sequence[str], watched: int) -> Result:
    """The row with what happened outside the sandbox."""
    return replace(result, outside=tuple(changes[:OUTSIDE]), outside_count=len(changes), watched=watched)


def tried_again(result: Result, earlier: Result | None) -> Result:
    """The row of a bug that was an error before: what that try did outside the sandbox is not forgotten."""
    if earlier is None or not earlier.outside_count:
        return result
    changes = (*earlier.outside, *result.outside)[:OUTSIDE]
    return replace(result, outside=changes, outside_count=earlier.outside_count + result.outside_count)


_KNOWN = {each.name for each in fields(Result)}


def make_result(row: dict[str, Any]) -> Result:
    """A row as it was written; what this version does not know is left out."""
    known: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in row.items() if key in _KNOWN
    }
    return Result(**known)


def rows_of(file: Path) -> list[dict[str, Any]]:
    """Every whole row; what a kill cut short, or is no row, is as if it were not there."""
    found = []
    for line in file.read_bytes().split(b"\n"):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            found.append(row)
    return found


class Results:
    """The file of one output directory."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE

    def read(self) -> list[Result]:
        """Every row that is one of a sweep's."""
        found = []
        for row in rows_of(self._file) if self._file.exists() else []:
            with suppress(TypeError):
                found.append(make_result(row))
        return found

    def append(self, result: Result) -> None:
        """Add a line durably; a torn one before it is closed off first."""
        line = json.dumps(asdict(result)).encode() + b"\n"
        with self._file.open("a+b") as file:
            if file.seek(0, os.SEEK_END) and not self._ends_line(file.tell()):
                line = b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _ends_line(self, size: int) -> bool:
        with self._file.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) == b"\n"

    def clear(self) -> None:
        self._file.unlink(missing_ok=True)


def engine_version(through: str) -> str:
    """The engine that is measured: its version, the source of what a bug goes through, and how it is gone through."""
    digest = hashlib.sha256()
    root = Path(codepilot.__file__).parent
    for room in ROOMS[through]:
        for file in sorted((root / room).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return f"{codepilot.__version__}+{digest.hexdigest()[:10]}/{through}"
