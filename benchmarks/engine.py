"""Runs the benchmarks of CodePilot's engine and its peers and writes their tables. See the package."""

from __future__ import annotations

import argparse
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.servers import PostgresServer, postgres_server

from benchmarks import durable, large, requests
from benchmarks.arena import Arena
from benchmarks.figures import Table, shown
from benchmarks.machine import Quiet, described
from benchmarks.peers import default_directory
from benchmarks.sizes import ENGINE_FULL, ENGINE_QUICK, ENGINE_TINY

_SIZES = {"full": ENGINE_FULL, "quick": ENGINE_QUICK, "tiny": ENGINE_TINY}
_INTRODUCTION = """\
# Benchmarks of the durable engine

The command below writes this page; every figure comes from that one run, on one PostgreSQL server and one disk. The
engines take turns, each time on an empty database and in processes of their own. Do not compare figures of different
runs or machines; ratios within a run are comparable.
"""
_SYNCS = 50


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    started = time.monotonic()
    quiet = Quiet()
    with tempfile.TemporaryDirectory(prefix="codepilot-bench-") as directory:
        place = Path(directory)
        with postgres_server(place / "server") as server:
            arena = Arena(server, place, None if options.no_peers else options.peers)
            disk = [("Servers", _servers(server)), ("Disk", _disk(place))]
            found = durable.measure(_SIZES[options.size], arena, quiet, _tell)
            _tell("cancel and pause")
            asked = requests.measure(_SIZES[options.size], arena)
            _tell("a large store")
            stored = large.measure(_SIZES[options.size], arena)
    command = ["python -m benchmarks.engine"]
    command += [f"--size {options.size}"] if options.size != "full" else []
    command += ["--no-peers"] if options.no_peers else []
    command += ["--write docs/benchmarks-engine.md"] if options.write is not None else []
    facts = [("Command", f"`{' '.join(command)}`, {time.monotonic() - started:.0f} s")]
    facts += [
        *described({name: message for name, message in arena.versions.items() if name}),
        *disk,
        ("Load", str(quiet)),
    ]
    text = _page(facts, found, asked, stored)
    print(text)
    if options.write is not None:
        options.write.write_text(text)
    return 0


def _tell(what: str) -> None:
    print(f"measuring {what} …", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there too")
    parser.add_argument("--size", choices=_SIZES, default="full", help="how much is measured")
    parser.add_argument("--no-peers", action="store_true", help="do not install or run peers")
    parser.add_argument(
        "--peers", type=Path, metavar="DIR", default=default_directory(), help="where peers are installed"
    )
    return parser


def _page(
    facts: Sequence[tuple[str, str]], found: durable.Durable, asked: requests.Requests, stored: large.Large
) -> str:
    head = "".join(f"- {name}: {message}\n" for name, message in facts)
    message = "Each engine with the number of parallel runs that suits it best; medians of the rounds."
    rows = [goal.row() for goal in (*found.goals(), *asked.goals(), *stored.goals())]
    tables = [Table("Goals", message, ["", "goal", "measured", "met"], rows), *found.tables()]
    tables += [asked.table(), stored.table()]
    return "\n".join([_INTRODUCTION, head, *(table.markdown() for table in tables)])


def _servers(server: PostgresServer) -> str:
    import psycopg

    with psycopg.connect(server.database().replace("+psycopg", "")) as connection:
        row = connection.execute("SHOW server_version").fetchone()
    return f"PostgreSQL {row[0] if row else '?'} on a Unix socket, SQLite {sqlite3.sqlite_version}"


def _disk(place: Path) -> str:
    """How long the disk takes to promise a page: what every durable commit pays at least."""
    times = []
    file = os.open(place / "synced", os.O_WRONLY | os.O_CREAT)
    try:
        for _ in range(_SYNCS):
            os.write(file, bytes(4096))
            began = time.perf_counter()
            os.fdatasync(file)
            times.append((time.perf_counter() - began) * 1000)
    finally:
        os.close(file)
    return f"{shown(statistics.median(times))} ms for 4 KiB and an `fdatasync`, median of {_SYNCS}"


if __name__ == "__main__":
    sys.exit(main())
