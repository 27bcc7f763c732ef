"""Runs the service: API, pages and workers in one process; drains on a signal."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import FastAPI

from codepilot.api.app import create_app
from codepilot.api.service import Service
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor.service import is_loopback
from codepilot.executor.service.serving import Bounds, listen, serve
from codepilot.telemetry.metrics import METRICS

if TYPE_CHECKING:
    from codepilot.engine import CodePilot, WorkerPool

_log = logging.getLogger(__name__)
_TICK = 0.05


@dataclass(frozen=True)
class ServeOptions:
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 2
    """How many runs this process works on at a time; 0 where workers run elsewhere."""
    drain_sec: float = 25.0
    behind_tls: bool = False
    """True if a proxy in front of it adds TLS."""


def run_server(pilot: CodePilot, options: ServeOptions, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT. `ready` is called with the address."""
    if not is_loopback(options.host) and not options.behind_tls:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Tokens and sessions would travel unencrypted to {options.host}.",
            next_action="Listen on 127.0.0.1, or put a proxy with TLS in front of it and say --behind-tls-proxy.",
        )
    listener = listen(options.host, options.port, "--host and --port")
    METRICS.enabled = True
    pool = pilot.worker(concurrency=options.workers, drain_sec=options.drain_sec) if options.workers else None
    thread = threading.Thread(target=_work, args=(pool,), name="workers") if pool else None
    app = create_app(pilot)
    if thread is not None:
        thread.start()
    try:
        with pilot.landing_worker() as landing:
            app.state.service.landing = landing
            asyncio.run(_serve(app, listener, pool, ready))
    finally:
        if pool is not None and thread is not None:
            pool.stop()
            thread.join()


def _work(pool: WorkerPool) -> None:
    try:
        pool.run()
    except CodePilotError as error:
        _log.error("the workers ended: %s", error)


async def _serve(app: FastAPI, listener: socket.socket, pool: WorkerPool | None, ready: Callable[[str], None]) -> None:
    service: Service = app.state.service
    bounds = Bounds(connections=service.settings.streams + 512)

    async def drain(serving: asyncio.Task[None], stops: asyncio.Queue[int]) -> None:
        first = asyncio.create_task(stops.get())
        await asyncio.wait((first, serving), return_when=asyncio.FIRST_COMPLETED)
        _log.info("draining")
        service.draining.set()
        service.live.close()
        if service.landing is not None:
            service.landing.stop()
        if pool is not None:
            pool.stop()
            second = asyncio.create_task(stops.get())
            while pool.busy and not serving.done():
                if second.done():
                    pool.stop(hurry=True)
                await asyncio.sleep(_TICK)
            second.cancel()
        first.cancel()

    await serve(app, listener, bounds, ready, drain)
