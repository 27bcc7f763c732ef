"""What the service counts."""

from __future__ import annotations

from collections.abc import Mapping

from codepilot.executor.service.gate import Gate
from codepilot.telemetry import METRICS


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

    def now(self, gates: Mapping[str, Gate], workspaces: int, processes: int) -> None:
        for queue, gate in gates.items():
            self._waiting.set(gate.waiting, queue=queue)
            self._active.set(gate.active, queue=queue)
        self._workspaces.set(workspaces)
        self._processes.set(processes)
