"""One source file's symbols, references and imports."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple, get_args

Kind = Literal["class", "interface", "enum", "type", "function", "method", "constant"]
KINDS: frozenset[str] = frozenset(get_args(Kind))
_LINES = re.compile(r"\d{1,9}(,\d{1,9}){0,99}")


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
    references: Mapping[str, str] = field(default_factory=dict)
    """The names that the file uses, with the first lines on which it does as `3,17`; members of something are `.name`.

    Texts, since there are very many: lists of numbers would keep the garbage collector busy for longer than all else.
    """
    imports: tuple[str, ...] = ()
    """Modules as they are written: `a.b`, `..c`, `./d`, `com.example.Thing`."""
    lines: int = 0
    note: str = ""

    def uses(self, name: str) -> tuple[int, ...]:
        """The first lines on which a name is used, plainly or as a member."""
        uses = (self.references[key] for key in (name, f".{name}") if key in self.references)
        return tuple(sorted({int(line) for lines in uses for line in lines.split(",")}))


class Unreadable(ValueError):
    """A payload that our parser did not write."""


def decoded(payload: bytes) -> FileSymbols:
    """An answer that was checked when it came."""
    try:
        value = json.loads(payload)
        return FileSymbols(
            tuple(map(Symbol._make, value["symbols"])),
            value["references"],
            tuple(value["imports"]),
            value["lines"],
            value["note"],
        )
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error


def check(payload: bytes) -> None:
    """Hold a parser's answer to its shape: it has read hostile input, and may say anything."""
    file = decoded(payload)
    names = (text for symbol in file.symbols for text in (symbol.kind, symbol.name, symbol.parent, symbol.signature))
    numbers = (line for symbol in file.symbols for line in (symbol.line, symbol.end))
    references: dict[str, Any] = file.references if isinstance(file.references, dict) else {"": None}
    if not (
        all(type(text) is str for text in (file.note, *file.imports, *names, *references.values()))
        and all(type(number) is int and number >= 0 for number in (file.lines, *numbers))
        and all(map(_LINES.fullmatch, references.values()))
        and all(symbol.kind in KINDS for symbol in file.symbols)
    ):
        raise Unreadable("this is no parser's answer")


MAX_BYTES = 512 << 10
"""Larger files are data or generated; they are listed, not parsed."""
LONG_LINE, LONG_MEAN = 20_000, 400

_LANGUAGES = {
    ".py": "python",
    ".pyi": "python",
    ".java": "java",
    ".js": "javascript",
    ".jsx": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".ts": "typescript",
    ".mts": "typescript",
    ".cts": "typescript",
    ".tsx": "tsx",
}
_DOCS = frozenset((".md", ".rst", ".txt", ".adoc"))
VENDORED = frozenset(("node_modules", "site-packages", ".venv", "venv", "vendor", "third_party", "dist", "__pycache__"))
"""Folders of others' code and of what is made from sources."""


def language_of(path: str) -> str | None:
    """The language a file is parsed as; None for all that is not parsed."""
    folder, _, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    language = _LANGUAGES.get(f".{ending.lower()}") if stem and dot else None
    return None if language is None or VENDORED.intersection(folder.split("/")) else language


def unfit(source: bytes) -> str:
    """Why a source is not parsed; empty if it is."""
    if len(source) > MAX_BYTES:
        return "too large"
    if b"\0" in source:
        return "binary"
    lines = source.split(b"\n")
    if len(source) > 4096 and (len(source) / len(lines) > LONG_MEAN or max(map(len, lines)) > LONG_LINE):
        return "minified"
    return ""


def is_doc(path: str) -> bool:
    pure = PurePosixPath(path)
    return pure.suffix.lower() in _DOCS or pure.stem.upper() in ("README", "CONTRIBUTING")
