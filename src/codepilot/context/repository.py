"""The repository map: every file of a tree, with what its parser told of it."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from codepilot.context.cache import SymbolCache, key_of
from codepilot.context.children import Job, parse_all
from codepilot.context.source import language_of, unfit
from codepilot.context.symbols import FileSymbols, Symbol, Unreadable, decoded

MAX_FILES = 20_000
"""Of more source files than this, the first by path are parsed and the others listed."""
SECONDS = 60.0

Read = Callable[[str], bytes | None]
"""A file's bytes; None for one that cannot be had or is too large to be source."""


@dataclass(frozen=True)
class MapFigures:
    """How a map came to be."""

    files: int = 0
    parsed: int = 0
    cached: int = 0
    notes: Mapping[str, int] = field(default_factory=dict)
    """How many files have no symbols, by reason."""


@dataclass(frozen=True)
class RepositoryMap:
    """A tree's files by path, those that were parsed with their symbols."""

    hashes: Mapping[str, str]
    files: Mapping[str, FileSymbols]
    figures: MapFigures = MapFigures()

    @cached_property
    def definitions(self) -> Mapping[str, tuple[tuple[str, Symbol], ...]]:
        """Where each name is defined."""
        found: defaultdict[str, list[tuple[str, Symbol]]] = defaultdict(list)
        for path, file in self.files.items():
            for symbol in file.symbols:
                found[symbol.name].append((path, symbol))
        return {name: tuple(places) for name, places in found.items()}


def map_repository(
    files: Mapping[str, str], read: Read, cache: Path | None = None, seconds: float = SECONDS
) -> RepositoryMap:
    """The map of a tree given as content hashes by path. Nothing in the files can make it fail.

    A name that no screen shows as it is (control characters, undecodable bytes) is left out: it could pass for more.
    `read` is called for what the cache does not hold, in this thread. What is not parsed within `seconds` is noted as
    late and parsed next time.
    """
    deadline = time.monotonic() + seconds
    files = {path: oid for path, oid in files.items() if path.isprintable()}
    languages = {path: language for path in sorted(files) if (language := language_of(path))}
    wanted = {path: key_of(files[path], language) for path, language in list(languages.items())[:MAX_FILES]}
    store = SymbolCache(cache)
    known: dict[str, FileSymbols] = {}
    for key, payload in store.read(dict.fromkeys(wanted.values())).items():
        try:
            known[key] = decoded(payload)
        except Unreadable:
            continue
    missing = {key: path for path, key in wanted.items() if key not in known}
    fresh, lost = _parse(missing, languages, read, deadline)
    store.write(fresh, wanted.values())
    known.update((key, decoded(payload)) for key, payload in fresh.items())
    known.update((key, FileSymbols(note=note)) for key, note in lost.items())
    found = {path: known[key] for path, key in wanted.items()}
    return RepositoryMap(files, found, _figures(files, found, len(fresh)))


def _parse(
    missing: Mapping[str, str], languages: Mapping[str, str], read: Read, deadline: float
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Payloads by key for what can be told of content for ever, and notes for what may be otherwise next time."""
    told: dict[str, bytes] = {}
    lost: dict[str, str] = {}

    def jobs() -> Iterator[Job]:
        for key, path in missing.items():
            source = read(path)
            if source is None:
                lost[key] = "unreadable"
            elif why := unfit(source):
                told[key] = _empty(why, source)
            else:
                yield Job(key, languages[path], source)

    if missing:
        spoken = {languages[path] for path in missing.values()}
        answers, fatal, late = parse_all(jobs(), spoken, len(missing), deadline)
        told.update(answers)
        told.update((key, _empty("unparsable")) for key in fatal)
        lost.update((key, "late") for key in late)
    return told, lost


def _empty(note: str, source: bytes = b"") -> bytes:
    value = {"symbols": [], "references": {}, "imports": [], "lines": source.count(b"\n"), "note": note}
    return json.dumps(value).encode()


def _figures(files: Mapping[str, str], found: Mapping[str, FileSymbols], parsed: int) -> MapFigures:
    notes: defaultdict[str, int] = defaultdict(int)
    for file in found.values():
        if file.note:
            notes[file.note] += 1
    return MapFigures(len(files), parsed, len(found) - parsed, dict(sorted(notes.items())))
