"""Parsed symbols by content, kept in one SQLite file for each repository.

A cache promises nothing: an entry that is damaged is parsed again, a file that is no database is made anew, and what
cannot be written (a full disk, another process that writes) is simply not kept. Keys name the content, the language
and the parser's version, so that an entry is right for ever.
"""

from __future__ import annotations

import hashlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

from codepilot.context import parsing

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
    """What decides how a source is parsed: our own code and the grammars."""
    ours = hashlib.sha256(Path(parsing.__file__).read_bytes()).hexdigest()
    told = "\n".join((ours, *map(version, _PACKAGES)))
    return hashlib.sha256(told.encode()).hexdigest()[:12]


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
