"""`codepilot worker`: a worker pool with its endpoint, ended by signals."""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType

from codepilot.cli.output import say
from codepilot.cli.text import plain
from codepilot.core.contract import JsonObject
from codepilot.core.decide import LEFT
from codepilot.core.events import Event, ProofRecorded, RunBlocked, RunFinished, RunPaused, State
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.engine import Runtime, Settings, Worker, WorkerPool, open_webhook
from codepilot.store.faults import Interrupted
from codepilot.store.meta import in_words
from codepilot.store.queue import Lease
from codepilot.telemetry.clock import rfc3339
from codepilot.telemetry.endpoint import Endpoint, Health
from codepilot.telemetry.process_log import json_logging

START_SEC = 60.0
"""How long a store that cannot be reached is asked again when a worker starts."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Working:
    store: str | None
    artifacts: str | None
    concurrency: int
    most_running: int | None
    listen: str
    drain_sec: float
    stale_sec: float
    until_idle: bool
    as_json: bool


def work(working: Working, environ: Mapping[str, str]) -> int:
    """Work until a signal or, if asked for, until nothing is left. The first signal drains, the second hurries."""
    host, port = _address(working.listen)
    settings = Settings.load(None, environ, {"store": working.store, "artifacts": working.artifacts})
    json_logging(logging.INFO, settings.redact)
    with _open_runtime(working, settings) as runtime:
        if runtime.apart:
            _log.warning("%s", runtime.apart)
        limit = runtime.store.queue.limit
        if working.most_running is not None:
            limit.set(working.most_running or None)
        worker = Worker(runtime) if working.as_json else Worker(runtime, Endings(runtime.redact).hear)
        pool = WorkerPool(
            runtime,
            worker,
            concurrency=working.concurrency,
            drain_sec=working.drain_sec,
            until_idle=working.until_idle,
            webhook=open_webhook(runtime),
        )

        def stop(number: int, frame: FrameType | None) -> None:
            pool.stop(hurry=pool.stopping)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)

        def health() -> Health:
            facts: JsonObject = {
                "worker": worker.name,
                "busy": pool.busy,
                "concurrency": working.concurrency,
                "draining": pool.stopping,
                "store": "answers" if pool.healthy else "away",
            }
            return Health(pool.healthy, pool.healthy and not pool.stopping, facts)

        with Endpoint(host, port, health) as endpoint:
            pool.run(lambda: _say(working, worker.name, endpoint.address, limit.most_running()))
    return 0


def _open_runtime(working: Working, settings: Settings) -> Runtime:
    """The runtime; a server that starts, or that is away for the moment, is waited for."""
    lease = Lease(beat_sec=working.stale_sec / 3, stale_sec=working.stale_sec)
    deadline = time.monotonic() + START_SEC
    told = ""
    while True:
        try:
            runtime = Runtime.open(settings, lease)
        except Interrupted as error:
            if time.monotonic() > deadline:
                raise
            if str(error) != told:
                _log.warning("waiting up to %d s for the store: %s", START_SEC, told := str(error))
            time.sleep(1.0)
        else:
            gc.freeze()  # what is loaded by now stays
            return runtime


class Endings:
    """Tells a person who looks at the worker how runs ended here, or why they wait: a line each."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._verdicts: dict[str, str] = {}

    def hear(self, event: Event) -> None:
        match event.data:
            case ProofRecorded(verdict=verdict) if verdict is not None:
                self._verdicts[event.run_id] = verdict
            case RunFinished(state=state, failure=failure):
                proved = self._verdicts.pop(event.run_id, "")
                self._tell(event, state, failure, proved if state is State.DONE else "")
            case RunBlocked(failure=failure):
                self._tell(event, State.BLOCKED, failure)
            case RunPaused(reason=reason) if reason != LEFT.reason:
                self._tell(event, State.PAUSED)

    def _tell(self, event: Event, state: State, failure: Failure | None = None, verdict: str = "") -> None:
        with contextlib.suppress(Exception):  # whoever read it is gone, or cannot be told; the runs go on
            why = f": {failure.kind}: {self._redact(failure.message)}" if failure else f", {verdict}" if verdict else ""
            say(f"{rfc3339(event.at)}  {event.run_id}  {plain(f'{state}{why}')}")


def _say(working: Working, name: str, address: str, most_running: int | None) -> None:
    if working.as_json:
        said = {"schema_version": 1, "worker": name, "listen": address, "most_running": most_running}
        say(json.dumps(said))
    else:
        text = f"{name} works on up to {working.concurrency} run(s), {in_words(most_running)}"
        say(f"{text}; http://{address}/metrics")


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise CodePilotError(
            FailureKind.INVALID_SPEC, f"{listen!r} is not an address.", next_action="For example: 127.0.0.1:9100."
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
