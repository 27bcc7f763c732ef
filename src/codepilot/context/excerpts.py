"""A piece of a file as text: whole, or condensed to what a reader needs most of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from codepilot.context.source import MAX_BYTES
from codepilot.context.symbols import Symbol

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
