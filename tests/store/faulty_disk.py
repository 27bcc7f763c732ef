"""A SQLite connection that fails when it is asked to: before any statement, before a commit, or right after it."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from sqlalchemy import event

from codepilot.store import Store

_WRITE = re.compile(r"\s*(INSERT|UPDATE|DELETE)\s+(?:OR\s+\w+\s+)?(?:INTO\s+|FROM\s+)?(\w+)", re.IGNORECASE)


class Fuse:
    """Burns one step a statement and two a commit; what happens when it is out fails."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.blown = 0
        self.guarded: set[str] = set()
        """The writes that came by here, as `INSERT events`."""
        self.written: set[str] = set()
        """Those that the engine itself saw: none may get past the fuse."""
        self.hit: set[str] = set()
        """Those that were made to fail."""

    def burn(self, what: str = "") -> None:
        self.guarded |= writes(what)
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            self.blown += 1
            self.hit |= writes(what)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    def see(self, statement: str) -> None:
        self.written |= writes(statement)


def writes(statement: str) -> set[str]:
    found = _WRITE.match(statement)
    return {f"{found[1].upper()} {found[2]}"} if found else set()


def fail_by(store: Store, fuse: Fuse) -> None:
    """From here on the store's connections hang on `fuse`."""

    class Cursor(sqlite3.Cursor):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            fuse.burn(args[0])
            return super().execute(*args)

        def executemany(self, *args: Any) -> sqlite3.Cursor:
            fuse.burn(args[0])
            return super().executemany(*args)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: type[sqlite3.Cursor] = Cursor) -> sqlite3.Cursor:
            return super().cursor(factory)

        def commit(self) -> None:
            fuse.burn()
            super().commit()
            fuse.burn()

    def connect(_dialect: object, _record: object, args: list[Any], kwargs: dict[str, Any]) -> sqlite3.Connection:
        connection = sqlite3.connect(*args, factory=Connection, **kwargs)
        connection.set_trace_callback(fuse.see)
        return connection

    database = store._database
    event.listen(database._engine, "do_connect", connect)
    database._engine.dispose()
