"""Runs durable engines on one PostgreSQL server and one disk, with a new database for every figure."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.servers import PostgresServer

from benchmarks.children import Child, Inbox, Late, children, python_for
from benchmarks.drivers.lines import STEPS

POSTGRES, SQLITE = "PostgreSQL", "SQLite FULL"
PAUSE_SEC = 0.03
SPREAD_SEC = 1.0
"""Between two runs that are enqueued one by one lies a pause, and anything up to this: a worker has gone to rest by
then, and one that polls is met anywhere between two of its polls."""
_GOLDEN = 0.618
SETTLE_SEC = 1.5
DWELL_SEC = 0.3
"""How long a step is at work at least before something is asked of its run."""


@dataclass(frozen=True)
class Contender:
    """A durable engine. One that is `direct` starts runs quickest in the process that also works on them."""

    name: str
    driver: str
    store: str
    package: str = ""
    direct: bool = False


CODEPILOT = Contender("CodePilot", "codepilot_engine", POSTGRES)
CODEPILOT_SQLITE = Contender("CodePilot", "codepilot_engine", SQLITE)
DBOS = Contender("DBOS", "dbos_engine", POSTGRES, "dbos", direct=True)
PROCRASTINATE = Contender("procrastinate", "procrastinate_engine", POSTGRES, "procrastinate")
CONTENDERS = (CODEPILOT, DBOS, PROCRASTINATE, CODEPILOT_SQLITE)


@dataclass
class Arena:
    server: PostgresServer
    directory: Path
    peers: Path | None
    versions: dict[str, str] = field(default_factory=dict)
    _places: Iterator[int] = field(default_factory=itertools.count)

    def rate(self, who: Contender, processes: int, concurrency: int, runs: int) -> float:
        """Steps a second while so many processes work off runs that were waiting for them."""
        with self._open(who) as contender_process:
            if not who.direct:
                contender_process.sender().ask(do="enqueue", count=runs)
                contender_process.receive("all enqueued")
            workers = [contender_process.worker(f"--concurrency={concurrency}") for _ in range(processes)]
            began = time.monotonic()
            for number, worker in enumerate(workers):
                share = len(range(number, runs, processes))
                worker.ask(**({"do": "enqueue", "count": share} if who.direct else {"do": "work"}))
            ended = max(float(one["at"]) for one in contender_process.inbox.take("finished", runs))
        return runs * STEPS / (ended - began)

    def starts(self, who: Contender, across: bool, count: int) -> tuple[list[float], list[float]]:
        """Milliseconds from asking for a run to its first step, and from asking to having been promised it."""
        started, promised = [], []
        with self._open(who) as contender_process:
            worker = contender_process.worker("--concurrency=1", "--tells-starts")
            worker.ask(do="work")
            contender_process.receive("working")
            sender = contender_process.sender("--tells-starts") if across else worker
            for number in range(count + 1):
                time.sleep(PAUSE_SEC + number * _GOLDEN % 1 * SPREAD_SEC)
                sender.ask(do="enqueue", count=1)
                asked, begun = contender_process.receive("enqueued"), contender_process.receive("started")
                contender_process.receive("finished")
                if number:  # The first one finds nothing warm.
                    started.append((begun["at"] - asked["asked"]) * 1000)
                    promised.append((asked["at"] - asked["asked"]) * 1000)
        return started, promised

    def takeover(self, who: Contender, patience: float) -> float | None:
        """Seconds from the end of a worker by -9 to the start of its step elsewhere; None if that took too long."""
        with self._open(who) as contender_process:
            doomed = contender_process.worker("--tells-starts", "--holds")
            doomed.ask(do="work")
            contender_process.receive("working")
            contender_process.sender().ask(do="enqueue", count=1)
            contender_process.receive("started")
            successor = contender_process.worker("--tells-starts")
            successor.ask(do="work")
            contender_process.receive("working")
            time.sleep(SETTLE_SEC)
            killed = time.monotonic()
            doomed.kill()
            try:
                return float(contender_process.inbox.take("started", 1, patience)[0]["at"]) - killed
            except Late:
                return None

    def requests(self, who: Contender, count: int) -> dict[str, list[float]]:
        """Seconds from asking for so many cancels and pauses until each is on record, and until workspaces are gone."""
        times: dict[str, list[float]] = {"cancel": [], "pause": [], "gone": []}
        with self._open(who) as contender_process:
            worker = contender_process.worker("--tells-starts", "--dwells")
            worker.ask(do="work")
            contender_process.receive("working")
            asker = contender_process.sender("--dwells")
            for number in range(count * 2):
                asker.ask(do="enqueue", count=1)
                contender_process.receive("started")
                time.sleep(DWELL_SEC + number * _GOLDEN % 1 * SPREAD_SEC)
                what = ("cancel", "pause")[number % 2]
                asker.ask(do=what)
                answer = contender_process.receive(what)
                times[what].append(answer["at"] - answer["asked"])
                if "gone" in answer:
                    times["gone"].append(answer["gone"] - answer["asked"])
        return times

    def floor(self, store: str, clients: int, seconds: float) -> float:
        """Rows inserted and committed a second."""
        inbox, place = Inbox(), self._place()
        url = self._url(store, place)
        with children() as made:
            for client in range(clients):
                arguments = [url, str(client)]
                made.append(Child(python_for("", None), "bare_inserts", arguments, place, inbox))
                inbox.take("ready")
            for child in made:
                child.ask(seconds=seconds)
            return sum(float(one["rows"]) / float(one["seconds"]) for one in inbox.take("inserted", clients))

    @contextmanager
    def _open(self, who: Contender) -> Iterator[ContenderProcess]:
        python = python_for(who.package, self.peers)
        place = self._place()
        with children() as made:
            contender_process = ContenderProcess(who, python, self._url(who.store, place), place, made)
            yield contender_process
            if contender_process.version:
                self.versions[who.package] = contender_process.version

    def _place(self) -> Path:
        place = self.directory / str(next(self._places))
        place.mkdir()
        return place

    def _url(self, store: str, place: Path) -> str:
        if store == SQLITE:
            return str(place / "bench.db")
        return self.server.database().replace("postgresql+psycopg://", "postgresql://")


class ContenderProcess:
    """One contender on one empty database, for one figure."""

    def __init__(self, who: Contender, python: str, url: str, place: Path, made: list[Child]) -> None:
        self._who, self._python, self._url, self._place, self._made = who, python, url, place, made
        self.inbox = Inbox()
        self.version = ""

    def worker(self, *arguments: str) -> Child:
        return self.sender("--works", f"--name=worker-{len(self._made)}", *arguments)

    def sender(self, *arguments: str) -> Child:
        asked = [self._url, *arguments]
        child = Child(self._python, self._who.driver, asked, self._place, self.inbox)
        self._made.append(child)
        self.version = str(self.receive("ready")["version"])
        return child

    def receive(self, kind: str) -> dict[str, Any]:
        return self.inbox.take(kind)[0]
