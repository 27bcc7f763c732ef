"""The floor: one row inserted and committed, again and again, with nothing around it."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable

from benchmarks.drivers.lines import Talk

_TABLE = "CREATE TABLE IF NOT EXISTS bare (client INTEGER, number INTEGER, payload TEXT, PRIMARY KEY (client, number))"
_TEXT = "x" * 100


def _server(url: str, client: int) -> Callable[[int], None]:
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    connection.execute("SET client_min_messages = warning")
    connection.execute(_TABLE)

    def insert(number: int) -> None:
        connection.execute("INSERT INTO bare VALUES (%s, %s, %s)", (client, number, _TEXT))

    return insert


def _file(path: str, client: int) -> Callable[[int], None]:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(_TABLE)

    def insert(number: int) -> None:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO bare VALUES (?, ?, ?)", (client, number, _TEXT))
        connection.execute("COMMIT")

    return insert


def main() -> None:
    """Insert for as many seconds as each line says, and tell how many rows there were."""
    talk, url, client = Talk(), sys.argv[1], int(sys.argv[2])
    insert = _server(url, client) if "://" in url else _file(url, client)
    talk.say("ready", version="")
    number = 0
    for line in sys.stdin:
        first, began = number, time.monotonic()
        until = began + float(json.loads(line)["seconds"])
        while time.monotonic() < until:
            insert(number)
            number += 1
        talk.say("inserted", rows=number - first, seconds=time.monotonic() - began)


if __name__ == "__main__":
    main()
