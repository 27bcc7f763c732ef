"""procrastinate: eight jobs, each of which defers the next."""

from __future__ import annotations

import asyncio
import logging
import threading
from importlib.metadata import version
from typing import Any

from procrastinate import App, PsycopgConnector  # type: ignore[import-not-found,unused-ignore]

from benchmarks.drivers.lines import STEPS, Engine, Role, Talk, serve


class Procrastinate:
    """On an event loop in a thread of its own."""

    def __init__(self, role: Role, talk: Talk) -> None:
        self._role = role
        self._app: Any = App(connector=PsycopgConnector(conninfo=role.url, min_size=2, max_size=role.concurrency + 4))
        self._worker: asyncio.Task[None] | None = None

        @self._app.task(name="step")  # type: ignore[untyped-decorator,unused-ignore]
        async def step(number: int) -> None:
            if number == 1:
                role.started(talk)
            if number < STEPS:
                await step.defer_async(number=number + 1)
            else:
                role.finished(talk)

        self._step = step
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._do(self._open())

    def enqueue(self) -> None:
        self._do(self._step.defer_async(number=1))

    def work(self) -> None:
        self._do(self._begin())

    def stop(self) -> None:
        self._do(self._end())

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        await self._app.open_async()
        if not await self._app.check_connection_async():
            await self._app.schema_manager.apply_schema_async()

    async def _begin(self) -> None:
        running = self._app.run_worker_async(concurrency=self._role.concurrency, install_signal_handlers=False)
        self._worker = asyncio.create_task(running)

    async def _end(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        await self._app.close_async()


def _make(role: Role, talk: Talk) -> Engine:
    return Procrastinate(role, talk)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    serve(_make, version("procrastinate"))
