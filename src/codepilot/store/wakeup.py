"""Wakes workers that wait for a step. It only wakes: the tables say what there is to do, and workers read them now and
then even when nothing wakes them.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from codepilot.store.session_locks import open_session

CHANNEL = "codepilot_steps"
_numbers = itertools.count()


class Wakeup(Protocol):
    """A write that workers wait for wakes them: on a server in its transaction (NOTIFY), else by `wake_all`."""

    def wait(self, seconds: float) -> None:
        """Return when woken since the last call, at the latest after `seconds`. For one thread.

        The first call returns at once, since nothing was listening before it: read the tables again.
        """
        ...

    def poke(self) -> None:
        """Wake the thread that waits here."""
        ...

    def close(self) -> None: ...


class FileWakeup:
    """A datagram socket for each waiting thread, in a directory that all processes of the store share."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mine: socket.socket | None = None
        self._name = f"{os.getpid()}-{next(_numbers)}.wakeup"
        self._guard = threading.Lock()

    def poke(self) -> None:
        if self._mine is not None:
            with (
                contextlib.suppress(FileNotFoundError),  # the directory is gone, and the socket with it
                _place(self._directory) as place,
                contextlib.closing(_datagram()) as sender,
            ):
                _send(sender, f"{place}/{self._name}", self._directory / self._name)

    def wait(self, seconds: float) -> None:
        mine = self._mine
        if mine is None:
            self._listen()
            return
        if select.select([mine], [], [], seconds)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    mine.recv(1)

    def close(self) -> None:
        with self._guard:
            if self._mine is not None:
                (self._directory / self._name).unlink(missing_ok=True)
                self._mine.close()
                self._mine = None

    def _listen(self) -> None:
        with self._guard, _place(self._directory) as place:
            mine = _datagram()
            mine.bind(f"{place}/{self._name}")
            self._mine = mine


def wake_all(directory: Path) -> None:
    """Wake every thread that waits in this directory."""
    with _place(directory) as place, contextlib.closing(_datagram()) as sender:
        for path in directory.glob("*.wakeup"):
            _send(sender, f"{place}/{path.name}", path)


@contextlib.contextmanager
def _place(directory: Path) -> Iterator[str]:
    """The directory by descriptor: a socket's address has room for 107 bytes only."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _datagram() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    made.setblocking(False)
    return made


def _send(sender: socket.socket, address: str, path: Path) -> None:
    try:
        sender.sendto(b"!", address)
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            path.unlink(missing_ok=True)  # its process is gone
        elif error.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.ENOENT):
            raise


class ServerWakeup:
    """LISTEN and NOTIFY of a PostgreSQL server."""

    def __init__(self, sessions: Engine) -> None:
        self._sessions = sessions
        self._driver_error: type[Exception] = sessions.dialect.loaded_dbapi.Error
        self._session: Any = None
        self._poked, self._poke = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def poke(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._poke, b"!")

    def wait(self, seconds: float) -> None:
        if self._session is None and self._listen():
            return
        listening = [] if self._session is None else [self._session]
        ready = select.select([self._poked, *listening], [], [], seconds)[0]
        if self._poked in ready:
            os.read(self._poked, 4096)
        if listening and self._session in ready:
            self._drain()

    def close(self) -> None:
        self._drop()
        if self._poke >= 0:
            os.close(self._poked)
            os.close(self._poke)
            self._poke = -1

    def _listen(self) -> bool:
        try:
            self._session = open_session(self._sessions)
            self._session.execute(f"LISTEN {CHANNEL}")
        except (DBAPIError, self._driver_error):
            self._drop()
        return self._session is not None

    def _drain(self) -> None:
        """All notifications mean the same. The next `wait` replaces a session that ended."""
        try:
            self._session.pgconn.consume_input()
            while self._session.pgconn.notifies() is not None:
                pass
        except self._driver_error:
            self._drop()
            time.sleep(0.1)

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
