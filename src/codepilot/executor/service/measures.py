"""What the service counts."""

from __future__ import annotations

from collections.abc import Mapping

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
        self._workspaces = METRICS.gauge("codepilot_executor_workspaces", "Workspaces in the home")
        self._processes = METRICS.gauge("codepilot_executor_processes", "Processes that callers speak to")

    def answered(self, route: str, status: int, seconds: float) -> None:
        self._requests.inc(route=route, status=str(status))
        self._seconds.observe(seconds, route=route)

    def now(self, waiting: Mapping[str, int], workspaces: int, processes: int) -> None:
        for queue, count in waiting.items():
            self._waiting.set(count, queue=queue)
        self._workspaces.set(workspaces)
        self._processes.set(processes)
