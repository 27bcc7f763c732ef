"""Measures `history`, `show` and `logs` on a store with many runs and events."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import create_engine
from typer.main import get_command

from benchmarks.arena import POSTGRES, SQLITE, Arena
from benchmarks.figures import Goal, Table, Times, shown
from benchmarks.past import past
from benchmarks.sizes import EngineSize
from codepilot.cli.app import app
from codepilot.core.artifacts import ArtifactType
from codepilot.core.task import Goal as Wish
from codepilot.core.task import TaskSpec
from codepilot.store import Home, Store, new_id, open_artifacts

COMMANDS = ("history", "show", "logs")
BELOW_MS = 100.0
ASKED_RUNS = 5
_SHOWN = {"history": "Mend number", "show": "what went wrong"}
_DIFF = b"--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-broken\n+whole\n" * 20
_TEXT = (
    "`{runs}` runs and `{events}` events in one store. *Asked*: milliseconds of the command's own work in a"
    " running process, median and 95th percentile; `show` prints a run's iterations, `logs` its `{each}` events."
    " *Whole*: the command as a shell starts it, with Python and its imports."
)
_STARTED = '{"action":{"tool":"read_file"},"turn":1,"usage":{"cost_usd":0.001,"tokens":10,"turns":1}}'
_FINISHED = '{"calls":[],"observation":{"stdout":"' + "x" * 300 + '"},"tree":null,"turn":1}'
_NUMBERS = {
    POSTGRES: "generate_series({first}, {last}) AS n(seq)",
    SQLITE: "(WITH RECURSIVE n(seq) AS (SELECT {first} UNION ALL SELECT seq + 1 FROM n WHERE seq < {last})"
    " SELECT seq FROM n) AS n",
}


@dataclass
class Large:
    """What was measured, by store."""

    size: EngineSize
    asked: dict[str, dict[str, Times]] = field(default_factory=dict)
    whole: dict[str, dict[str, Times]] = field(default_factory=dict)

    def goals(self) -> list[Goal]:
        return [
            Goal(f"`{command}` of a large store on {store}, p50 ms", BELOW_MS, times.median)
            for store, asked in self.asked.items()
            for command, times in asked.items()
        ]

    def table(self) -> Table:
        each, runs = self.size.events_each, self.size.stored_runs
        text = _TEXT.format(runs=f"{runs:,}", events=f"{runs * each:,}", each=f"{each:,}")
        rows = [
            [store, *(f"{shown(asked[name].median)} / {shown(asked[name].p95)}" for name in COMMANDS)]
            + [shown(self.whole[store][name].median) for name in COMMANDS]
            for store, asked in self.asked.items()
        ]
        heads = ["store", *(f"{name}, asked" for name in COMMANDS), *(f"{name}, whole" for name in COMMANDS)]
        return Table("A large store", text, heads, rows)


def measure(size: EngineSize, arena: Arena) -> Large:
    """Both stores, one after the other."""
    large = Large(size)
    for store in (POSTGRES, SQLITE):
        home = arena.directory / f"large-{len(large.asked)}"
        url = arena.server.database() if store == POSTGRES else f"sqlite:///{home / 'codepilot.db'}"
        environ = {"CODEPILOT_HOME": str(home), "CODEPILOT_STORE": url, "COLUMNS": "120"}
        home.mkdir()
        asked = _fill(store, url, home, size)
        with _environment(environ):
            large.asked[store] = {name: _ask(name, asked, size) for name in COMMANDS}
            large.whole[store] = {name: _run(name, asked[: 1 + size.questions // 15]) for name in COMMANDS}
    return large


def _fill(store: str, url: str, home: Path, size: EngineSize) -> list[str]:
    """Runs with all their events, and some of their ids, whose views are as a worker leaves them."""
    opened = Store.open(url)
    diff = open_artifacts(Home(home).artifacts, {}).put(_DIFF, ArtifactType.PATCH)
    try:
        ids = [new_id("r-") for _ in range(size.stored_runs)]
        for number, run_id in enumerate(ids):
            task = TaskSpec(task_id=new_id("t-"), goal=Wish(natural=f"Mend number {number}"), repo="/nowhere")
            begun = opened.create_run(run_id, past(task, run_id, diff)).events
        _add_turns(store, url, begun[-1].seq + 1, size.events_each)
        asked = ids[:: max(1, len(ids) // ASKED_RUNS)][:ASKED_RUNS]
        for run_id in asked:
            opened.rebuild(run_id)
    finally:
        opened.close()
    return asked


def _add_turns(store: str, url: str, first: int, last: int) -> None:
    odd = "n.seq - 2 * (n.seq / 2) = 1"
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO events SELECT s.run_id, n.seq, s.queued_at + n.seq,"
            f" CASE WHEN {odd} THEN 'turn_started' ELSE 'turn_finished' END, s.step_id, 1,"
            f" CASE WHEN {odd} THEN '{_STARTED}' ELSE '{_FINISHED}' END, '[]'"
            f" FROM steps s, {_NUMBERS[store].format(first=first, last=last)} WHERE s.status = 'PENDING'"
            " ORDER BY s.run_id, n.seq"
        )
        connection.exec_driver_sql(f"UPDATE runs SET last_seq = {last}, updated_at = created_at + {last}")
    engine.dispose()


def _ask(name: str, runs: list[str], size: EngineSize) -> Times:
    """A process that is up has its commands built."""
    command, times = get_command(app), []
    for number in range(size.questions + 1):
        arguments = [name] if name == "history" else [name, runs[number % len(runs)]]
        message = io.StringIO()
        began = time.perf_counter()
        with redirect_stdout(message):
            command.main(arguments, standalone_mode=False)
        times.append((time.perf_counter() - began) * 1e3)
        output = message.getvalue()
        if not (output.count("\n") >= size.events_each if name == "logs" else _SHOWN[name] in output):
            raise RuntimeError(f"{name}: {output}")
    return Times(tuple(times[1:]))


def _run(name: str, runs: list[str]) -> Times:
    times = []
    for run_id in runs:
        command = [sys.executable, "-m", "codepilot", name, *([] if name == "history" else [run_id])]
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append((time.perf_counter() - began) * 1e3)
    return Times(tuple(times))


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
