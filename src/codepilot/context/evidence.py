"""Reads a task's evidence against the map: failing tests, traces, touched files, and the words of the task."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from codepilot.context.ranking import Links
from codepilot.context.repository import RepositoryMap
from codepilot.context.symbols import Symbol

MAX_TRACE, MAX_TASK, MAX_FRAMES, MAX_PATH, MAX_TEST = 64_000, 20_000, 40, 300, 1_000
MAX_SPOTS, MAX_DEPTH, MAX_ITEMS = 500, 30, 100

_FOREIGN = ("site-packages/", "dist-packages/", "node_modules/", "/lib/python", "<frozen", "node:internal")
_SPOT = re.compile(r"\.(?P<ending>pyi?|java|[cm]?[jt]sx?)(?P<then>\", line |:\[?|\()(?P<line>\d{1,7})")
"""Matches a line number of a trace; the file's name precedes it."""
_BOUNDS = "\"'()[]<>,;= \t\n"
_TOKEN = re.compile(r"[\w@./\\-]+")
_WORD = re.compile(r"[A-Za-z_$][\w$]{2,119}")
_CALLED = re.compile(r"\b([A-Za-z_$][\w$]{2,119})\(|`([A-Za-z_$][\w$]{2,119})[`(.]")
_TEST_PARTS = re.compile(r"::|#| > | \u203a ")
_PARAMETERS = re.compile(r"\[.*\]$|\(.*\)$")


@dataclass(frozen=True)
class Evidence:
    """The evidence of a task before the code is read."""

    failing_tests: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    task: str = ""


class Place(NamedTuple):
    """A line of a file, or with line 0 the file as such; `symbol` is what it lies in."""

    path: str
    line: int = 0
    symbol: Symbol | None = None
    title: str = ""
    """For a test that is no symbol: the words it is called by."""


@dataclass(frozen=True)
class Clues:
    """Evidence, read against the map."""

    repository: RepositoryMap
    evidence: Evidence
    links: Links = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "links", Links(self.repository.hashes))

    @cached_property
    def tests(self) -> tuple[Place, ...]:
        """The places of the failing tests."""
        found = (self._test(test) for test in self.evidence.failing_tests[:MAX_ITEMS])
        return tuple(dict.fromkeys(place for place in found if place is not None))

    @cached_property
    def frames(self) -> tuple[Place, ...]:
        """The frames of the traces in this repository, the place of the failure first."""
        found: dict[Place, None] = {}
        for trace in self.evidence.traces[:MAX_ITEMS]:
            found.update(dict.fromkeys(self._frames(trace[-MAX_TRACE:])))
            if len(found) >= MAX_FRAMES:
                break
        return tuple(found)[:MAX_FRAMES]

    @cached_property
    def touched(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(path for path in self.evidence.touched if path in self.repository.hashes))

    @cached_property
    def named_paths(self) -> tuple[str, ...]:
        """Files that the task's text names."""
        tokens = (token.rstrip(".") for token in _TOKEN.findall(self.evidence.task[:MAX_TASK]))
        found = (self.path_of(token) or self._only(token) for token in dict.fromkeys(tokens) if "." in token)
        return tuple(dict.fromkeys(path for path in found if path))

    @cached_property
    def named_symbols(self) -> tuple[Place, ...]:
        """Symbols that the task's text names by a distinctive word."""
        task = self.evidence.task[:MAX_TASK]
        marked = {name for match in _CALLED.finditer(task) for name in match.groups() if name}
        found: list[Place] = []
        for name in dict.fromkeys(_WORD.findall(task)):
            homes = self.repository.definitions.get(name, ())
            telling = name in marked or ("_" in name.strip("_") or not (name.islower() or name.istitle()))
            if homes and (telling or (name.istitle() and len(name) > 4)) and len(homes) <= 6:
                found.extend(Place(path, symbol.line, symbol) for path, symbol in homes)
        return tuple(found)

    @property
    def words(self) -> frozenset[str]:
        return frozenset(word.lower() for word in _WORD.findall(self.evidence.task[:MAX_TASK]))

    def path_of(self, name: str) -> str | None:
        """The file that a path names, wherever the tree was: the longest ending that is in the map."""
        if len(name) > MAX_PATH or any(part in name for part in _FOREIGN):
            return None
        parts = name.replace("\\", "/").removeprefix("file://").removeprefix("./").split("/")
        for start in range(len(parts)):
            if (path := "/".join(parts[start:])) in self.repository.hashes:
                return path
        return None

    def _only(self, name: str) -> str | None:
        """The one file of this name, wherever it lies."""
        places = self._by_name.get(name, ())
        return places[0] if len(places) == 1 else None

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.repository.hashes:
            found.setdefault(path.rpartition("/")[2], []).append(path)
        return found

    def symbol_at(self, path: str, line: int) -> Symbol | None:
        """The innermost function or class around a line."""
        return innermost(self.repository.files[path].symbols if path in self.repository.files else (), line)

    def _frames(self, trace: str) -> list[Place]:
        """Python lists the failing frame last; the other languages list it first."""
        outward: list[Place] = []
        inward: list[Place] = []
        for match in islice(_SPOT.finditer(trace), MAX_SPOTS):
            path = self._file(trace, match)
            if path is not None:
                line = int(match["line"])
                place = Place(path, line, self.symbol_at(path, line))
                (inward if match["ending"].startswith("py") else outward).append(place)
        return [*outward, *reversed(inward)]

    def _file(self, trace: str, match: re.Match[str]) -> str | None:
        """The file whose name ends where the match begins."""
        least = max(0, match.start() - MAX_PATH)
        bounds = '"' if match["then"].startswith('"') else _BOUNDS
        start = max(trace.rfind(bound, least, match.start()) for bound in bounds) + 1 or least
        name = trace[start : match.end("ending")]
        if match["ending"] == "java" and "/" not in name and trace[start - 1 : start] == "(":
            owner = trace[max(0, start - MAX_PATH) : start - 1].rpartition(" ")[2].rpartition("/")[2]
            dotted = owner.rpartition(".")[0].partition("$")[0]
            return next((path for path in self.links.named("java", dotted) if path.endswith(name)), None)
        return self.path_of(name)

    def _test(self, test: str) -> Place | None:
        """The place of a test by its id: `path::Class::name[…]`, `module.Class.name`, `a.B#name`, `path > words`."""
        plain = _PARAMETERS.sub("", test[:MAX_TEST].strip())
        head, *rest = [part for part in _TEST_PARTS.split(plain) if part] or [""]
        path = self.path_of(head)
        if path is None:
            path, more = self._dotted(head)
            rest = [*more, *rest]
        if path is None:
            return None
        symbols = self.repository.files[path].symbols if path in self.repository.files else ()
        wanted = [part for part in rest if part]
        found = _matching(symbols, wanted)
        if found is None:
            return Place(path, title=wanted[-1] if wanted else "")
        return Place(path, found.line, found)

    def _dotted(self, name: str) -> tuple[str | None, list[str]]:
        """The file of the longest beginning of a dotted name that is one, and what follows it."""
        parts = name.split(".", MAX_DEPTH)
        for end in range(len(parts), 0, -1):
            for family in ("python", "java"):
                if found := self.links.named(family, ".".join(parts[:end])):
                    return found[0], parts[end:]
        return None, []


def innermost(symbols: Sequence[Symbol], line: int) -> Symbol | None:
    around = [symbol for symbol in symbols if symbol.line <= line <= symbol.end and symbol.kind != "constant"]
    return min(around, key=lambda symbol: (symbol.end - symbol.line, symbol.line), default=None)


def _matching(symbols: Sequence[Symbol], names: Sequence[str]) -> Symbol | None:
    """The symbol with the last of the names, in the class that the one before it names if there is such."""
    if not names:
        return None
    named = [symbol for symbol in symbols if symbol.name == names[-1]]
    owner = names[-2] if len(names) > 1 else ""
    within = [symbol for symbol in named if symbol.parent.rpartition(".")[2] == owner]
    return next(iter(within or named), None)
