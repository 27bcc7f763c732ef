"""Runs one service: listens, announces its address, drains on a signal, leaves nothing running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor.local import LocalExecutor
from codepilot.executor.service.app import HttpApp
from codepilot.executor.service.manager import WorkspaceManager
from codepilot.executor.service.settings import ServiceSettings, is_loopback
from codepilot.executor.service.telemetry import JsonHandler, log

_TICK = 0.05
_GRACE_SEC = 5


class _Server(uvicorn.Server):
    """Signals are ours: the first lets running work finish."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


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
    server = _Server(
        uvicorn.Config(
            app.app(),
            http=protocol_for(settings.header_sec, settings.connections),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(settings.idle_sec),
            timeout_graceful_shutdown=_GRACE_SEC,
        )
    )
    stops: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stops.put_nowait, number)
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.005)
    if not serving.done():
        host, port = listener.getsockname()[:2]
        ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        await _until_stopped(app, stops, serving)
        server.should_exit = True
    await serving


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
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=512)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # What is accepted inherits it.
    except (OSError, OverflowError) as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"it is not possible to listen on {settings.host}:{settings.port}: {error}",
            "Name a free address of this machine with --listen.",
        ) from error
    if settings.token is None and not is_loopback(listener.getsockname()[0]):
        listener.close()
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"without a token the executor does not listen on {settings.host}",
            "Give it a token, or listen on 127.0.0.1.",
        )
    return listener


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a bound on the time for a request's head, and on the number of connections."""

    header_sec = 15.0
    most = 512
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.close()
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._headless():
            self._cancel()
        elif self._waiting is None and self.conn.trailing_data[0]:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._waiting = self.loop.call_later(self.header_sec, self._give_up)

    def _give_up(self) -> None:
        self._waiting = None
        if self._headless() and not self.transport.is_closing():
            self.transport.close()

    def _headless(self) -> bool:
        """Whether the head of the next request has not come yet."""
        return repr(self.conn.their_state) == "IDLE"

    def _cancel(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def protocol_for(header_sec: float, connections: int) -> type[PatientProtocol]:
    return type("BoundedProtocol", (PatientProtocol,), {"header_sec": header_sec, "most": connections})
