"""What a service costs: pages and API with many runs, event to screen, memory and CPU with idle clients.

`python -m benchmarks.service [--runs 1000] [--events 2000] [--write docs/benchmarks-service.md]`. A real `codepilot
serve` on SQLite; the database is filled with copies of one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from codepilot.core.access import Scope
from codepilot.core.task import TaskKind
from codepilot.engine import CodePilot, Request, Settings

CODEPILOT = Path(sys.executable).parent / "codepilot"
ASKED = 40


def filled(home: Path, runs: int, events: int) -> str:
    """A home with so many ended runs of so many events each; returns the id of one that is queued."""
    checkout = home.parent / "project"
    checkout.mkdir()
    (checkout / "test_x.py").write_text("def test_x():\n    assert False\n")
    _commit(checkout)
    with CodePilot(Settings.load(flags={"home": home})) as pilot:
        model = pilot.submit(Request(repo=str(checkout), prompt="Totals include tax")).run_id
        pilot.cancel(model)
        with closing(sqlite3.connect(home / "codepilot.db")) as database, database:
            _multiply(database, model, runs - 1, events)
        return pilot.submit(Request(repo=str(checkout), prompt="Watched")).run_id


def large_change(home: Path, lines: int = 2500) -> str:
    """A judged run whose diff has twice as many lines; returns its id."""
    checkout = home.parent / "large"
    checkout.mkdir()
    (checkout / "big.py").write_text("".join(f"VALUE_{number} = min({number}, 1)\n" for number in range(lines)))
    (checkout / "test_big.py").write_text("from big import VALUE_9\n\n\ndef test_it():\n    assert VALUE_9 == 2\n")
    _commit(checkout)
    (checkout / "big.py").write_text("".join(f"VALUE_{number} = min({number}, 2)\n" for number in range(lines)))
    with CodePilot(Settings.load(flags={"home": home})) as pilot:
        run = pilot.submit(Request(repo=str(checkout), kind=TaskKind.PROVE))
        pilot.work(run.run_id)
        assert pilot.diff(run.run_id).count(b"\n") > 2 * lines
        return run.run_id


def _commit(checkout: Path) -> None:
    identity = ("-c", "user.name=b", "-c", "user.email=b@b.invalid", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *arguments], cwd=checkout, check=True)


def _multiply(database: sqlite3.Connection, model: str, copies: int, events: int) -> None:
    """Copies of a run with its log made longer; triggers check every row as they do for a real one."""
    run = dict(zip(*_row(database, "runs", model), strict=True))
    view = dict(zip(*_row(database, "views", model), strict=True))
    step = dict(zip(*_row(database, "steps", model), strict=True))
    first = database.execute("SELECT * FROM events WHERE run_id = ? ORDER BY seq", (model,)).fetchall()
    turn = json.dumps({"turn": 1, "observation": {"stdout": "x" * 200}, "tree": None, "calls": []})
    for number in range(copies):
        name, at = f"r-b{number:07d}", run["created_at"] - number * 60_000_000
        run_row = {**run, "run_id": name, "created_at": at, "updated_at": at, "last_seq": events}
        shown = view["view"].replace(model, name).replace(f'"last_seq":{run["last_seq"]}', f'"last_seq":{events}')
        _insert(database, "runs", [tuple(run_row.values())])
        _insert(database, "views", [tuple({**view, "run_id": name, "seq": events, "view": shown}.values())])
        _insert(database, "steps", [tuple({**step, "run_id": name}.values())])
        rest = [
            (name, seq, at, "turn_finished", step["step_id"], 1, turn, "[]")
            for seq in range(len(first) + 1, events + 1)
        ]
        _insert(database, "events", [(name, *one[1:]) for one in first] + rest)


def _row(database: sqlite3.Connection, table: str, run_id: str) -> tuple[list[str], Sequence[object]]:
    found = database.execute(f"SELECT * FROM {table} WHERE run_id = ?", (run_id,))
    return [column[0] for column in found.description], found.fetchone()


def _insert(database: sqlite3.Connection, table: str, rows: Sequence[Sequence[object]]) -> None:
    marks = ", ".join("?" * len(rows[0]))
    database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def latencies(ask: Callable[[], httpx2.Response]) -> tuple[float, float]:
    """p50 and p95 in milliseconds."""
    took: list[float] = []
    for _ in range(ASKED):
        begun = time.perf_counter()
        answer = ask()
        took.append((time.perf_counter() - begun) * 1000)
        assert answer.status_code == 200, answer.text
    return statistics.median(took), percentile(took, 0.95)


async def watch(url: str, token: str, run_id: str, clients: int, act: Callable[[], float], acts: int) -> list[float]:
    """Open streams, let `act` record events, and measure from each event to each client, in milliseconds."""
    parts = urlsplit(url)
    late: list[float] = []
    begun = [float("inf")]
    ready = asyncio.Semaphore(0)
    stopping = asyncio.Event()

    async def client() -> None:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        head = f"GET /v1/runs/{run_id}/events HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        writer.write(f"{head}Accept: text/event-stream\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        while (line := await reader.readline()) and not line.startswith(b"retry"):
            pass
        ready.release()
        while not stopping.is_set() and (line := await reader.readline()):
            if line.startswith(b'data: {"eventId') and _at(line) >= begun[0]:
                late.append(time.time() * 1000 - _at(line))
        writer.close()

    tasks = [asyncio.create_task(client()) for _ in range(clients)]
    for _ in range(clients):
        await ready.acquire()
    await asyncio.sleep(0.5)
    begun[0] = time.time() * 1000
    for _ in range(acts):
        await asyncio.to_thread(act)
        await asyncio.sleep(0.3)
    await asyncio.sleep(1)
    stopping.set()
    for task in tasks:
        task.cancel()
    return late


def _at(line: bytes) -> float:
    from codepilot.client.decoding import microseconds

    return microseconds(json.loads(line[6:])["at"]) / 1000


def memory_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def cpu_sec(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(runs: int, events: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="codepilot-bench-") as made:
        home = Path(made) / "home"
        run_id, sample = filled(home, runs, events), f"r-b{runs // 2:07d}"
        large = large_change(home)
        pilot = CodePilot(Settings.load(flags={"home": home}))
        token = pilot.create_token("bench", Scope.ADMIN).secret
        environ = {
            **os.environ,
            "CODEPILOT_HOME": str(home),
            "CODEPILOT_SERVICE_REQUESTS_PER_MIN": "1000000",
        }
        serving = subprocess.Popen(
            [CODEPILOT, "serve", "--port", "0", "--no-workers", "--json"],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert serving.stdout is not None
            url = json.loads(serving.stdout.readline())["url"]
            time.sleep(2)
            idle = memory_mb(serving.pid)
            rows = [f"| idle memory | {idle:.0f} MB | |"]
            headers = {"Authorization": f"Bearer {token}"}
            with httpx2.Client(base_url=url, headers=headers, timeout=60) as client:
                client.get("/v1/me")
                for path in (
                    "/v1/me",
                    "/v1/runs?limit=50",
                    f"/v1/runs/{sample}",
                    f"/v1/runs/{sample}/events?limit=500",
                    "/",
                    "/runs",
                    f"/runs/{sample}",
                    "/analytics",
                    "/audit",
                    f"/runs/{large}/diff",
                ):
                    middle, high = latencies(
                        lambda path=path: client.get(path, headers={"Accept": "text/html"} if "/v1" not in path else {})  # type: ignore[misc]
                    )
                    shown = path.replace(sample, "RUN").replace(large, "5,000-LINES")
                    rows.append(f"| `GET {shown}` | {middle:.1f} ms | {high:.1f} ms |")
            turns = [pilot.pause, pilot.resume]

            def act() -> float:
                turns.reverse()
                turns[0](run_id)
                return time.time()

            turns.reverse()
            for clients in (1, 200):
                late = asyncio.run(watch(url, token, run_id, clients, act, 10))
                row = f"| event to screen, {clients} clients | {statistics.median(late):.0f} ms |"
                rows.append(f"{row} {percentile(late, 0.95):.0f} ms |")
            rows.append(_idle_streams(serving.pid, url, token, run_id))
            return rows
        finally:
            pilot.close()
            serving.send_signal(signal.SIGTERM)
            serving.wait(30)


def _idle_streams(pid: int, url: str, token: str, run_id: str) -> str:
    """CPU and memory with 1,000 clients to whom nothing is sent."""
    spent: list[float] = []

    def act() -> float:
        before = cpu_sec(pid)
        time.sleep(10)
        spent.append((cpu_sec(pid) - before) / 10)
        return 0.0

    asyncio.run(watch(url, token, run_id, 1000, act, 1))
    return f"| 1,000 idle streams | {memory_mb(pid):.0f} MB | {spent[0] * 100:.0f}% of one CPU |"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--events", type=int, default=2000, help="events of each run")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    rows = measure(given.runs, given.events)
    head = f"{given.runs:,} runs with {given.runs * given.events:,} events on SQLite, {os.cpu_count()} CPUs."
    table = "\n".join(["| what | p50 | p95 |", "|---|---|---|", *rows])
    text = f"# Benchmarks of the service\n\n{head} Measured by `python -m benchmarks.service`.\n\n{table}\n"
    print(text)
    if given.write:
        given.write.write_text(text)


if __name__ == "__main__":
    main()
