"""Requests with a key are carried out once; a repeated one gets the same answer.

A mark is written before a request is carried out and its answer after, so that a request whose executor died in the
middle is never carried out twice in silence. With a file the promise outlives this process.
"""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from codepilot.core.contract import canonical_json
from codepilot.core.failures import CodePilotError
from codepilot.executor.protocol import Conflict, RunCode, RunCommand, Unfinished
from codepilot.sandbox import CodeResult, CommandResult

KEPT = 64
KEPT_BYTES = 64 << 20

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS answers (id INTEGER PRIMARY KEY, key TEXT UNIQUE, digest TEXT NOT NULL, answer TEXT);
"""

Answer = TypeVar("Answer", CodeResult, CommandResult)


class IdempotencyCache:
    """The answers of one workspace. A request that was refused, or could not begin, may be asked again."""

    def __init__(self, file: Path | None = None, kept: int = KEPT, kept_bytes: int = KEPT_BYTES) -> None:
        self._file = file
        self._kept, self._kept_bytes = kept, kept_bytes
        self._database: sqlite3.Connection | None = None
        self._removed = False
        self._running: dict[str, tuple[str, Future[Any]]] = {}
        self._lock = threading.Lock()

    def give(self, request: RunCode | RunCommand, kind: type[Answer], carry_out: Callable[[], Answer]) -> Answer:
        """The answer to a request; a second caller with the same key waits for the first one's."""
        key = request.idempotency_key
        if not key:
            return carry_out()
        digest = _digest(request)
        with self._lock:
            known = self._running.get(key) or self._recorded(key, kind)
            if known is None:
                self._execute("INSERT INTO answers (key, digest) VALUES (?, ?)", key, digest)
                mine: Future[Any] = Future()
                self._running[key] = digest, mine
        if known is not None:
            if known[0] != digest:
                raise Conflict(f"the key {key!r} was used for another request", "Use a key of its own for each.")
            earlier: Answer = known[1].result()
            return earlier
        try:
            answer = carry_out()
            with self._lock:
                self._execute(
                    "REPLACE INTO answers (key, digest, answer) VALUES (?, ?, ?)", key, digest, answer.model_dump_json()
                )
                self._prune()
                del self._running[key]
        except BaseException as error:
            with self._lock:
                del self._running[key]
                if _before_it_began(error):
                    self._execute("DELETE FROM answers WHERE key = ?", key)
            mine.set_exception(error)
            raise
        mine.set_result(answer)
        return answer

    def leave(self) -> None:
        """Write nothing more: the directory is about to be removed."""
        with self._lock:
            self._close()
            self._removed = True

    def close(self) -> None:
        """Close the file; it is reopened when needed."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _execute(self, statement: str, *values: str) -> list[Any]:
        if self._removed:
            return []
        if self._database is None:
            name = self._file if self._file is not None else ":memory:"
            self._database = sqlite3.connect(name, isolation_level=None, check_same_thread=False)
            self._database.executescript(_SCHEMA)
        return self._database.execute(statement, values).fetchall()

    def _recorded(self, key: str, kind: type[Answer]) -> tuple[str, Future[Any]] | None:
        for digest, answer in self._execute("SELECT digest, answer FROM answers WHERE key = ?", key):
            future: Future[Any] = Future()
            if answer is None:
                future.set_exception(Unfinished(key))
            else:
                future.set_result(kind.model_validate_json(answer))
            return digest, future
        return None

    def _prune(self) -> None:
        """Keep the newest answers within `kept` and `kept_bytes`, and the marks of running requests."""
        size = 0
        rows = self._execute("SELECT key, length(CAST(coalesce(answer, '') AS BLOB)) FROM answers ORDER BY id DESC")
        for number, (key, length) in enumerate(rows):
            size += length
            if number and key not in self._running and (number >= self._kept or size > self._kept_bytes):
                self._execute("DELETE FROM answers WHERE key = ?", key)


def _before_it_began(error: BaseException) -> bool:
    """True for typed failures and OSError, which mean that the request did not start. Others may come later."""
    return isinstance(error, (CodePilotError, OSError)) or not isinstance(error, Exception)


def _digest(request: RunCode | RunCommand) -> str:
    document = {**request.model_dump(mode="json"), "idempotency_key": type(request).__name__}
    return hashlib.sha256(canonical_json(document).encode()).hexdigest()
