"""A transaction with a PostgreSQL server as one stream: statements are sent together, answers read when asked for.

The driver's own pipeline talks to the server after every statement, which costs more than the statement itself.
"""

from __future__ import annotations

import re
import select
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

_NUMBERS = frozenset({20, 21, 23})
_TRUTH = 16
_NUMBERED = re.compile(r"\$(\d+)")
_NAMED = re.compile(r"%\((\w+)\)s|%%")


def by_number(sql: str) -> tuple[str, list[str]]:
    """The statement with `$1`, `$2` for its named parameters, and their names in that order."""
    names: list[str] = []

    def place(found: re.Match[str]) -> str:
        if found[1] is None:
            return "%"
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return _NAMED.sub(place, sql), names


@lru_cache(maxsize=64)
def several_rows(insert: str, count: int) -> str:
    """An insert of one row, with parameters by place or by number, as one of `count` rows."""
    head, values, row = insert.partition(" VALUES ")
    width = len(_NUMBERED.findall(row))
    rows = (_NUMBERED.sub(lambda found: f"${int(found[1]) + width * at}", row) for at in range(count))  # noqa: B023
    return f"{head}{values}{', '.join(rows)}"


class Reply:
    """The answer to one statement, once it has come."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.result: Any = None

    def arrive(self, result: Any) -> None:
        self.result = result

    @property
    def touched(self) -> int:
        self._wire.read_until(self)
        return int(self.result.command_tuples or 0)

    def rows(self) -> list[Sequence[Any]]:
        self._wire.read_until(self)
        result, rows = self.result, range(self.result.ntuples)
        if not rows:
            return []
        columns = [
            _read(result.ftype(column), [result.get_value(row, column) for row in rows])
            for column in range(result.nfields)
        ]
        return list(zip(*columns, strict=True))


class Wire:
    """One transaction on a driver's connection. `known` are the statements that this connection has prepared."""

    def __init__(self, driver: Any, known: dict[str, bool]) -> None:
        from psycopg import errors, pq

        self._pgconn = driver.pgconn
        self._refused, self._passed_over = int(pq.ExecStatus.FATAL_ERROR), int(pq.ExecStatus.PIPELINE_ABORTED)
        self._idle = pq.TransactionStatus.IDLE
        self._off = pq.PipelineStatus.OFF
        self._error: Callable[..., Exception] = errors.error_from_result
        self._known = known
        self._waiting: deque[Callable[[Any], None]] = deque()
        self._failure: Exception | None = None

    def begin(self, whole: bool = True) -> None:
        """With `whole`, nothing of it is done before `end`."""
        self._pgconn.enter_pipeline_mode()
        if whole:
            self._pgconn.send_query_params(b"BEGIN", None)
            self._waiting.append(_ignore)

    def send(self, name: str, sql: str, values: Sequence[Any]) -> Reply:
        if name not in self._known:
            self._known[name] = False
            self._pgconn.send_prepare(name.encode(), sql.encode())
            self._waiting.append(lambda _: self._known.__setitem__(name, True))
        reply = Reply(self)
        written = [
            value.encode() if value.__class__ is str else b"%d" % value if value.__class__ is int else _written(value)
            for value in values
        ]
        self._pgconn.send_query_prepared(name.encode(), written)
        self._waiting.append(reply.arrive)
        return reply

    def end(self, whole: bool = True) -> None:
        if whole:
            self._pgconn.send_query_params(b"COMMIT", None)
            self._waiting.append(_ignore)
        self._finish()

    def abandon(self) -> None:
        """Roll back whatever was begun; raises where the connection is broken."""
        if self._pgconn.pipeline_status != self._off:
            self._finish(quietly=True)
        if self._pgconn.transaction_status != self._idle:
            self._pgconn.exec_(b"ROLLBACK")
        for name in [name for name, prepared in self._known.items() if not prepared]:
            del self._known[name]

    def read_until(self, reply: Reply) -> None:
        """With a sync, not a mere flush: only then does the server notice if nothing more comes for too long."""
        if reply.result is None:
            self._pgconn.pipeline_sync()
            self._waiting.append(_ignore)
        while reply.result is None:
            if self._failure is not None:
                raise self._failure
            self._read()

    def _finish(self, quietly: bool = False) -> None:
        """Bring the stream to its end: after this, statements may be run in other ways again."""
        self._pgconn.pipeline_sync()
        synced: list[Any] = []
        self._waiting.append(synced.append)
        while not synced:
            self._read()
        self._pgconn.exit_pipeline_mode()
        if self._failure is not None and not quietly:
            raise self._failure

    def _read(self) -> None:
        """Take in what has come. The first refusal is kept; the statements after it were passed over."""
        self._exchange()
        while self._waiting and not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                continue
            take, status = self._waiting.popleft(), result.status
            if status == self._refused:
                self._failure = self._failure or self._error(result)
            elif status != self._passed_over:
                take(result)

    def _exchange(self) -> None:
        """Send what is unsent and wait for more to come."""
        poll = select.poll()
        unsent = self._pgconn.flush()
        poll.register(self._pgconn.socket, select.POLLIN | (select.POLLOUT if unsent else 0))
        for _, happened in poll.poll():
            if happened & ~select.POLLOUT:
                self._pgconn.consume_input()


def _ignore(_: Any) -> None:
    """An answer that says nothing but yes."""


def _written(value: Any) -> bytes | None:
    write = _WRITTEN.get(type(value))
    return write(value) if write is not None else str(value).encode()


_WRITTEN: dict[type, Callable[[Any], bytes | None]] = {
    bool: lambda value: b"t" if value else b"f",
    bytes: lambda value: value,
    type(None): lambda value: None,
}


def _read(kind: int, values: Sequence[bytes | None]) -> list[Any]:
    if kind in _NUMBERS:
        return [None if value is None else int(value) for value in values]
    if kind == _TRUTH:
        return [None if value is None else value == b"t" for value in values]
    return [None if value is None else value.decode() for value in values]
