"""A SQLite connection that fails when it is told to: before any statement, before a commit, or right after it."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy import event

from codepilot.store import Store


class Fuse:
    """Burns one step a statement and two a commit; what happens when it is out fails."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.blown = 0

    def burn(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            self.blown += 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error


def fail_by(store: Store, fuse: Fuse) -> None:
    """From here on the store's connections hang on `fuse`."""

    class Cursor(sqlite3.Cursor):
        def execute(self, *args: Any) -> sqlite3.Cursor:
            fuse.burn()
            return super().execute(*args)

        def executemany(self, *args: Any) -> sqlite3.Cursor:
            fuse.burn()
            return super().executemany(*args)

    class Connection(sqlite3.Connection):
        def cursor(self, factory: type[sqlite3.Cursor] = Cursor) -> sqlite3.Cursor:
            return super().cursor(factory)

        def commit(self) -> None:
            fuse.burn()
            super().commit()
            fuse.burn()

    def connect(_dialect: object, _record: object, args: list[Any], kwargs: dict[str, Any]) -> sqlite3.Connection:
        return sqlite3.connect(*args, factory=Connection, **kwargs)

    database = store._database
    event.listen(database._engine, "do_connect", connect)
    database._drop_writer()
    database._engine.dispose()
