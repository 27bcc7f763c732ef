"""What tells a store from all others, wherever it is reached."""

from __future__ import annotations

import secrets

from codepilot.store.database import Database
from codepilot.store.statements import KEEP_META, SELECT_META
from codepilot.store.tries import Tried, twice

_KEY = "store_id"


def identity(database: Database) -> str:
    """The store's name, drawn when it is first asked for."""

    def ask(_: Tried) -> str | None:
        with database.ask() as connection:
            row = SELECT_META.row(connection, {"in_key": _KEY})
        return str(row[0]) if row else None

    def draw(_: Tried) -> None:
        with database.write(durable=True) as connection:
            KEEP_META.send(connection, {"key": _KEY, "value": secrets.token_hex(8)})

    while (found := twice(database, ask)) is None:
        twice(database, draw)
    return found
