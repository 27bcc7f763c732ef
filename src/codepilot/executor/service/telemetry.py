"""The service's log and metrics. Bodies, tokens and environments are never logged."""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from collections.abc import Mapping

from codepilot.executor.service.admission import AdmissionQueue
from codepilot.telemetry import METRICS, now_us, redact, rfc3339

_LOCK = threading.Lock()


def log(event: str, *, error: BaseException | None = None, **fields: object) -> None:
    if error is not None:
        fields["error"] = redact("".join(traceback.format_exception(error)))
    line = json.dumps({"at": rfc3339(now_us()), "event": event, **fields}, default=str)
    with _LOCK:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class JsonHandler(logging.Handler):
    """Writes the logs of libraries in the same form."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        log("log", error=error, level=record.levelname.lower(), source=record.name, message=redact(record.getMessage()))


class Measures:
    def __init__(self) -> None:
        self._requests = METRICS.counter(
            "codepilot_executor_requests_total", "Requests answered", labels=("route", "status")
        )
        self._seconds = METRICS.histogram(
            "codepilot_executor_request_duration_seconds", "Time to answer", labels=("route",)
        )
        self._waiting = METRICS.gauge("codepilot_executor_queue_depth", "Requests that wait", labels=("queue",))
        self._active = METRICS.gauge("codepilot_executor_in_flight", "Requests being carried out", labels=("queue",))
        self._workspaces = METRICS.gauge("codepilot_executor_workspaces", "Workspaces in the home")
        self._processes = METRICS.gauge("codepilot_executor_processes", "Processes that callers speak to")

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._requests.inc(route=route, status=str(status))
        self._seconds.observe(seconds, route=route)

    def now(self, queues: Mapping[str, AdmissionQueue], workspaces: int, processes: int) -> None:
        for name, queue in queues.items():
            self._waiting.set(queue.waiting, queue=name)
            self._active.set(queue.active, queue=name)
        self._workspaces.set(workspaces)
        self._processes.set(processes)
