"""The repository map: every file of a tree with its symbols."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path

from codepilot.context import parsing
from codepilot.context.parser_pool import Job, parse_all
from codepilot.context.symbols import FileSymbols, Symbol, Unreadable, decoded, language_of, unfit

MAX_FILES = 20_000
"""The most source files that are parsed, the first by path; the others are listed."""
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
        """The definitions of each name."""
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
    """Payloads by key for results that depend on content alone, and notes for files to try again next time."""
    payloads: dict[str, bytes] = {}
    lost: dict[str, str] = {}

    def jobs() -> Iterator[Job]:
        for key, path in missing.items():
            source = read(path)
            if source is None:
                lost[key] = "unreadable"
            elif why := unfit(source):
                payloads[key] = _empty(why, source)
            else:
                yield Job(key, languages[path], source)

    if missing:
        spoken = {languages[path] for path in missing.values()}
        answers, fatal, late = parse_all(jobs(), spoken, len(missing), deadline)
        payloads.update(answers)
        payloads.update((key, _empty("unparsable")) for key in fatal)
        lost.update((key, "late") for key in late)
    return payloads, lost


def _empty(note: str, source: bytes = b"") -> bytes:
    value = {"symbols": [], "references": {}, "imports": [], "lines": source.count(b"\n"), "note": note}
    return json.dumps(value).encode()


def _figures(files: Mapping[str, str], found: Mapping[str, FileSymbols], parsed: int) -> MapFigures:
    notes: defaultdict[str, int] = defaultdict(int)
    for file in found.values():
        if file.note:
            notes[file.note] += 1
    return MapFigures(len(files), parsed, len(found) - parsed, dict(sorted(notes.items())))


BUSY_SEC = 2.0
KEPT = 20_000
"""Beyond so many entries, those that the last map did not use are let go."""
_CHUNK = 500
_TABLE = """CREATE TABLE IF NOT EXISTS parsed (
    key TEXT PRIMARY KEY, sum INTEGER NOT NULL, payload BLOB NOT NULL
) WITHOUT ROWID"""
_PACKAGES = ("tree-sitter", *(f"tree-sitter-{name}" for name in ("python", "java", "javascript", "typescript")))


@cache
def parser_version() -> str:
    """A digest of everything that affects parsing: our own code and the grammars."""
    ours = hashlib.sha256(Path(parsing.__file__).read_bytes()).hexdigest()
    versions = "\n".join((ours, *map(version, _PACKAGES)))
    return hashlib.sha256(versions.encode()).hexdigest()[:12]


def key_of(content: str, language: str) -> str:
    return f"{content}:{language}:{parser_version()}"


class SymbolCache:
    """Payloads by key in the file at `path`; without a path it keeps nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self, keys: Iterable[str]) -> dict[str, bytes]:
        """The entries there are, whole ones alone."""
        wanted = list(keys)
        found: dict[str, bytes] = {}
        if self._path is None or not self._path.exists():
            return found
        try:
            with self._open() as database:
                for start in range(0, len(wanted), _CHUNK):
                    part = wanted[start : start + _CHUNK]
                    marks = ",".join("?" * len(part))
                    rows = database.execute(f"SELECT key, sum, payload FROM parsed WHERE key IN ({marks})", part)
                    found.update((key, data) for key, total, data in rows if _whole(key, total, data))
        except sqlite3.DatabaseError as error:
            self._give_up(error)
        return found

    def write(self, entries: Mapping[str, bytes], used: Iterable[str] = ()) -> None:
        """Keep what was parsed. `used` are the keys of the whole map, which stay when old ones are let go."""
        if self._path is None or not entries:
            return
        rows = [(key, _sum(key, payload), payload) for key, payload in entries.items()]
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._open() as database, database:
                database.execute(_TABLE)
                database.executemany("INSERT OR REPLACE INTO parsed VALUES (?, ?, ?)", rows)
                self._prune(database, {*used, *entries})
        except sqlite3.DatabaseError as error:
            self._give_up(error)
        except OSError:
            return

    def _prune(self, database: sqlite3.Connection, used: set[str]) -> None:
        held = database.execute("SELECT count(*) FROM parsed").fetchone()[0]
        if held <= max(KEPT, 2 * len(used)):
            return
        stale = [(key,) for (key,) in database.execute("SELECT key FROM parsed") if key not in used]
        database.executemany("DELETE FROM parsed WHERE key = ?", stale)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(str(self._path), timeout=BUSY_SEC)) as database:
            database.execute("PRAGMA synchronous = OFF")
            yield database

    def _give_up(self, error: sqlite3.DatabaseError) -> None:
        """A file that is no database is removed; one that is busy, full or without its table is left as it is."""
        if self._path is not None and not isinstance(error, sqlite3.OperationalError):
            for file in (self._path, self._path.with_name(self._path.name + "-journal")):
                with suppress(OSError):
                    file.unlink(missing_ok=True)


def _sum(key: str, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(key.encode()))


def _whole(key: str, total: object, payload: object) -> bool:
    return isinstance(payload, bytes) and total == _sum(key, payload)
