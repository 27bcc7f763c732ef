"""DBOS: a workflow of eight steps, started where it runs, or enqueued by a client elsewhere."""

from __future__ import annotations

import logging
from importlib.metadata import version

from dbos import DBOS, DBOSClient  # type: ignore[import-not-found,unused-ignore]

from benchmarks.drivers.lines import STEPS, Engine, Role, Talk, serve

_APP = "bench"
_QUEUE = "runs"
_VERSION = "1"


class Worker:
    """It works from its launch on."""

    def __init__(self, role: Role, talk: Talk) -> None:
        DBOS(
            config={
                "name": _APP,
                "system_database_url": role.url,
                "application_version": _VERSION,
                "executor_id": role.name,
                "max_executor_threads": role.concurrency,
                "log_level": "ERROR",
            }
        )

        @DBOS.step()  # type: ignore[untyped-decorator,unused-ignore]
        def step(number: int) -> None:
            if number == 1:
                role.started(talk)

        @DBOS.workflow(name="run")  # type: ignore[untyped-decorator,unused-ignore]
        def run() -> None:
            for number in range(1, STEPS + 1):
                step(number)
            role.finished(talk)

        self._run = run
        DBOS.launch()
        DBOS.register_queue(_QUEUE)

    def enqueue(self) -> None:
        DBOS.start_workflow(self._run)

    def work(self) -> None:
        pass

    def stop(self) -> None:
        DBOS.destroy()


class Client:
    def __init__(self, role: Role) -> None:
        self._client = DBOSClient(system_database_url=role.url, application_name=_APP)

    def enqueue(self) -> None:
        self._client.enqueue({"queue_name": _QUEUE, "workflow_name": "run", "app_version": _VERSION})

    def work(self) -> None:
        raise RuntimeError("a client does not work")

    def stop(self) -> None:
        self._client.destroy()


def _make(role: Role, talk: Talk) -> Engine:
    return Worker(role, talk) if role.works else Client(role)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    serve(_make, version("dbos"))
