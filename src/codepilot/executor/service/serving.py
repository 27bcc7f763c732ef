"""Serves an HTTP application within bounds: one listener, a limit on connections, and time limits on idle ones."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from codepilot.core.failures import CodePilotError, FailureKind

_GRACE_SEC = 5


@dataclass(frozen=True)
class Bounds:
    """The limits of one server's connections."""

    header_sec: float = 15.0
    idle_sec: float = 75.0
    """How long an open connection may stay silent between requests."""
    connections: int = 512


class _Server(uvicorn.Server):
    """Signals are ours: the first lets running work finish."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: FastAPI,
    listener: socket.socket,
    bounds: Bounds,
    ready: Callable[[str], None],
    drain: Callable[[asyncio.Task[None], asyncio.Queue[int]], Awaitable[None]],
) -> None:
    """Serve until `drain` returns. It gets the server's task, and a queue of the signals to end."""
    server = _Server(
        uvicorn.Config(
            app,
            http=protocol_for(bounds.header_sec, bounds.connections),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(bounds.idle_sec),
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
        ready(address_of(listener))
        await drain(serving, stops)
        server.should_exit = True
    await serving


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def listen(host: str, port: int, option: str = "--listen") -> socket.socket:
    """A listening socket. `option` is what the user may change if the address cannot be used."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=512)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # What is accepted inherits it.
    except (OSError, OverflowError) as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"it is not possible to listen on {host}:{port}: {error}",
            f"Name a free address of this machine with {option}.",
        ) from error
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
        """True if the head of the next request has not come yet."""
        return repr(self.conn.their_state) == "IDLE"

    def _cancel(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def protocol_for(header_sec: float, connections: int) -> type[PatientProtocol]:
    return type("BoundedProtocol", (PatientProtocol,), {"header_sec": header_sec, "most": connections})
