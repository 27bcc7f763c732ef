"""Connections that neither come in any number nor take for ever to say what they want."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol


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
