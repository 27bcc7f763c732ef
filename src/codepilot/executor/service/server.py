"""Runs one service: listens, announces its address, drains on a signal, leaves nothing running."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor.local import LocalExecutor
from codepilot.executor.service.app import HttpApp
from codepilot.executor.service.manager import WorkspaceManager
from codepilot.executor.service.serving import Bounds, listen, serve
from codepilot.executor.service.settings import ServiceSettings, is_loopback
from codepilot.executor.service.telemetry import JsonHandler, log

_TICK = 0.05


def run_service(
    settings: ServiceSettings, open_executor: Callable[[Path], LocalExecutor], ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT. `ready` is called with the address."""
    listener = _listen(settings)
    try:
        manager = WorkspaceManager(settings, open_executor)
    except BaseException:
        listener.close()
        raise
    app = HttpApp(manager)
    logging.basicConfig(handlers=[JsonHandler()], level=logging.WARNING, force=True)
    asyncio.run(_serve(app, listener, ready))
    app.close()
    manager.close()
    log("ended")


async def _serve(app: HttpApp, listener: socket.socket, ready: Callable[[str], None]) -> None:
    settings = app.settings
    bounds = Bounds(settings.header_sec, settings.idle_sec, settings.connections)

    async def drain(serving: asyncio.Task[None], stops: asyncio.Queue[int]) -> None:
        await _until_stopped(app, stops, serving)

    await serve(app.app(), listener, bounds, ready, drain)


async def _until_stopped(app: HttpApp, stops: asyncio.Queue[int], serving: asyncio.Task[None]) -> None:
    """Wait for a signal, let work finish for a while, then end what is left."""
    first = asyncio.create_task(stops.get())
    await asyncio.wait((first, serving), return_when=asyncio.FIRST_COMPLETED)
    app.draining = True
    log("draining", active=app.active)
    second = asyncio.create_task(stops.get())
    deadline = asyncio.get_running_loop().time() + app.settings.drain_sec
    while app.active and not second.done() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(_TICK)
    for task in (first, second):
        task.cancel()
    log("ending", active=app.active)
    await asyncio.get_running_loop().run_in_executor(None, app.manager.executor.close)


def _listen(settings: ServiceSettings) -> socket.socket:
    listener = listen(settings.host, settings.port)
    if settings.token is None and not is_loopback(listener.getsockname()[0]):
        listener.close()
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"without a token the executor does not listen on {settings.host}",
            "Give it a token, or listen on 127.0.0.1.",
        )
    return listener
