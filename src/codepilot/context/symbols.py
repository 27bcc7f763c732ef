"""What is known of one source file: its symbols, the names it refers to, and what it imports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast, get_args

Kind = Literal["class", "interface", "enum", "type", "function", "method", "constant"]
KINDS: frozenset[str] = frozenset(get_args(Kind))


class Symbol(NamedTuple):
    """One definition. Lines count from 1, both ends included; `parent` is the class it belongs to."""

    kind: Kind
    name: str
    line: int
    end: int
    parent: str
    signature: str

    @property
    def qualified(self) -> str:
        return f"{self.parent}.{self.name}" if self.parent else self.name


@dataclass(frozen=True)
class FileSymbols:
    """One file, parsed. `note` says why a file has no symbols; it is empty for one that was read whole."""

    symbols: tuple[Symbol, ...] = ()
    references: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The names that the file uses, with the first lines on which it does; members of something are `.name`."""
    imports: tuple[str, ...] = ()
    """Modules as they are written: `a.b`, `..c`, `./d`, `com.example.Thing`."""
    lines: int = 0
    note: str = ""


class Unreadable(ValueError):
    """Text that no parser of ours has written."""


def decoded(payload: bytes) -> FileSymbols:
    """A parser's answer. It has read hostile input, so its answer is held to its shape too."""
    try:
        value = json.loads(payload)
        symbols = tuple(map(_symbol, value["symbols"]))
        references = {_text(name): tuple(map(_number, lines)) for name, lines in value["references"].items()}
        imports = tuple(map(_text, value["imports"]))
        return FileSymbols(symbols, references, imports, _number(value["lines"]), _text(value["note"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def _symbol(row: Any) -> Symbol:
    kind, name, line, end, parent, signature = row
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of symbol")
    return Symbol(cast(Kind, kind), _text(name), _number(line), _number(end), _text(parent), _text(signature))


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("a text was expected")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("a number was expected")
    return value
