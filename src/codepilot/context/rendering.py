"""The map as a model reads it: the most important files, each with its most important signatures in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from codepilot.context.ranking import NOTHING, Focus, Ranks, graph_of, rank
from codepilot.context.repository import RepositoryMap
from codepilot.context.symbols import MAX_BYTES, Symbol

_HOLDERS = ("class", "interface", "enum")


def render_map(repository: RepositoryMap, focus: Focus = NOTHING, budget_tokens: int = 2000) -> str:
    """A tree of files and signatures with their lines, the best of them that fit the budget."""
    ranks = rank(repository, graph_of(repository), focus)
    return render_ranked(repository, ranks, budget_tokens)


def render_ranked(repository: RepositoryMap, ranks: Ranks, budget_tokens: int) -> str:
    """The same from ranks that are known already."""
    room = int(budget_tokens * BYTES_PER_TOKEN)
    shown: dict[str, set[Symbol]] = {}
    for path, symbol in _by_rank(repository, ranks):
        there = shown.get(path)
        holders = _holders(repository, path, symbol)
        fresh = [one for one in (*holders, symbol) if there is None or one not in there]
        cost = sum(bytes_of(_line(one)) for one in fresh) + (bytes_of(f"{path}:\n") if there is None else 0)
        if not fresh:
            continue
        if cost > room:
            break
        room -= cost
        shown.setdefault(path, set()).update(fresh)
    order = sorted(shown, key=lambda path: (-ranks.files.get(path, 0.0), path))
    return "".join(f"{path}:\n" + "".join(map(_line, sorted(shown[path], key=_place))) for path in order)


def _by_rank(repository: RepositoryMap, ranks: Ranks) -> Iterator[tuple[str, Symbol]]:
    every = [
        (-ranks.symbols.get((path, symbol.name), 0.0), path, symbol)
        for path, file in repository.files.items()
        for symbol in file.symbols
    ]
    every.sort(key=lambda one: (one[0], one[1], one[2].line, one[2].name))
    return ((path, symbol) for _, path, symbol in every)


def _holders(repository: RepositoryMap, path: str, symbol: Symbol) -> list[Symbol]:
    """The classes around a symbol, outermost first."""
    if not symbol.parent:
        return []
    around = (one for one in repository.files[path].symbols if one.kind in _HOLDERS)
    return [
        one
        for one in around
        if one.line <= symbol.line and symbol.end <= one.end and f"{symbol.parent}.".startswith(f"{one.qualified}.")
    ]


def _line(symbol: Symbol) -> str:
    depth = symbol.parent.count(".") + 1 if symbol.parent else 0
    return f"{symbol.line:>6}: {'  ' * depth}{symbol.signature}\n"


def _place(symbol: Symbol) -> tuple[int, int, str]:
    return symbol.line, -symbol.end, symbol.name


BYTES_PER_TOKEN = 3.5


def bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def tokens_of(text: str) -> int:
    return math.ceil(bytes_of(text) / BYTES_PER_TOKEN)


AROUND = (4, 1)
"""So many lines are kept on either side of a marked one, at the first and the second try."""
HEADS = ((20, 8), (6, 2))
"""So many lines are kept of a text without symbols: first and last."""
MAX_LINE = 400


class Texts:
    """The lines of files, each read once; a file that is no text has none."""

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._read = read
        self._lines: dict[str, tuple[str, ...]] = {}

    def lines(self, path: str) -> tuple[str, ...]:
        known = self._lines.get(path)
        if known is None:
            known = self._lines[path] = _lines(self._read(path))
        return known


def whole(lines: Sequence[str], start: int, end: int) -> str:
    return "".join(f"{_short(line)}\n" for line in lines[start - 1 : end])


def condensed(
    lines: Sequence[str], start: int, end: int, symbols: Sequence[Symbol], marks: Iterable[int]
) -> Iterator[str]:
    """Shorter and shorter versions of a piece: signatures and marked lines, then marked lines alone, or its ends."""
    marked = [mark for mark in marks if start <= mark <= end]
    signatures = {line for symbol in symbols for line in _signature_lines(symbol, lines) if start <= line <= end}
    for around, (head, tail) in zip(AROUND, HEADS, strict=True):
        near = {line for mark in marked for line in range(mark - around, mark + around + 1)}
        kept = near | signatures
        if not kept:
            kept = {*range(start, start + head), *range(end - tail + 1, end + 1)}
        yield _elided(lines, start, end, kept)
        signatures = set() if marked else signatures


def _signature_lines(symbol: Symbol, lines: Sequence[str]) -> list[int]:
    """The line that names a symbol: decorators may stand above it."""
    last = min(symbol.line + 8, symbol.end, len(lines))
    return next(([line] for line in range(symbol.line, last + 1) if symbol.name in lines[line - 1]), [symbol.line])


def _elided(lines: Sequence[str], start: int, end: int, kept: set[int]) -> str:
    parts = []
    missing = 0
    for number in range(start, min(end, len(lines)) + 1):
        if number not in kept:
            missing += 1
            continue
        if missing:
            parts.append(_gap(missing))
            missing = 0
        parts.append(f"{_short(lines[number - 1])}\n")
    if missing:
        parts.append(_gap(missing))
    return "".join(parts)


def _gap(count: int) -> str:
    return f"… {count} line{'s' if count > 1 else ''}\n"


def _short(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]}…"


def _lines(data: bytes | None) -> tuple[str, ...]:
    if data is None or len(data) > MAX_BYTES or b"\0" in data:
        return ()
    text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return tuple(text.removesuffix("\n").split("\n")) if text else ()
