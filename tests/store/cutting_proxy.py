"""A way to a PostgreSQL server that can be cut at the worst moment: just before a commit, or before its answer."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from pathlib import Path
from typing import Literal

Moment = Literal["before", "after"] | int
"""Before a commit, after it but before its answer, or at the so-and-so-manieth word of a client."""
SOCKET = ".s.PGSQL.5432"


class CuttingProxy:
    """Listens on a socket of its own in `directory` and passes bytes on until it is asked to cut."""

    def __init__(self, directory: Path, server: Path) -> None:
        self._server = server / SOCKET
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(directory / SOCKET))
        self._listening.listen(64)
        self._moments: list[Moment] = []
        self._guard = threading.Lock()
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *moments: Moment) -> None:
        """Break the connections that bring the next such moments, one after the other."""
        with self._guard:
            self._moments = list(moments)

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        with client, server, contextlib.suppress(OSError):
            server.connect(str(self._server))
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    message = ready.recv(65536)
                    if not message:
                        return
                    if ready is client and (moment := self._moment(message)) is not None:
                        if moment == "after":
                            server.sendall(message)
                            server.recv(65536)
                        return
                    (server if ready is client else client).sendall(message)

    def _moment(self, message: bytes) -> Moment | None:
        """The moment to cut at, if it has come: anyone who is informed of it, once, cuts."""
        with self._guard:
            if not self._moments:
                return None
            moment = self._moments[0]
            if isinstance(moment, int):
                self._moments[0] = moment - 1
                come = moment <= 0
            else:
                come = b"COMMIT\0" in message
            if come:
                self.cuts += 1
                del self._moments[0]
            return moment if come else None
