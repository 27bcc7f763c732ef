"""Statements of the hot path: compiled once by SQLAlchemy for the engine at hand, then run by its driver.

On a server they are sent without waiting for their answers; the first answer that is asked for brings all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ClauseElement, Connection

from codepilot.store.wire import Wire, by_number, several_rows

_names = itertools.count()

_ROWS_AT_ONCE = 16

WIRE = "codepilot_wire"
"""The attribute of a connection that has the stream which its transaction runs in, if it does."""


@dataclass(frozen=True)
class _Compiled:
    sql: str
    constants: Mapping[str, Any]
    order: Sequence[str] | None
    """The parameters' names in their order, where the driver takes them by place."""
    numbered: str
    number_order: Sequence[str]

    def parameters(self, values: Mapping[str, Any]) -> Any:
        named = self._named(values)
        return named if self.order is None else [named[name] for name in self.order]

    def numbers(self, values: Mapping[str, Any]) -> list[Any]:
        named = self._named(values)
        return [named[name] for name in self.number_order]

    def _named(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**self.constants, **values} if self.constants else values


class Sent(Protocol):
    """A statement on its way."""

    @property
    def touched(self) -> int:
        """How many rows it changed."""
        ...

    def rows(self) -> list[Sequence[Any]]:
        """The rows of its answer."""
        ...


class _Done:
    """A statement that was run at once."""

    def __init__(self, cursor: Any) -> None:
        self._rows: list[Sequence[Any]] = cursor.fetchall() if cursor.description else []
        self.touched = int(cursor.rowcount)

    def rows(self) -> list[Sequence[Any]]:
        return self._rows


class Prepared:
    """One statement with named parameters, all of them plain numbers and text. Costs a tenth of a full execute."""

    def __init__(self, statement: ClauseElement, columns: Sequence[str] | None = None) -> None:
        self._statement = statement
        self._columns = list(columns) if columns is not None else None
        self._compiled: dict[str, _Compiled] = {}
        self._name = f"codepilot_{next(_names)}"

    def send(self, connection: Connection, *rows: Mapping[str, Any]) -> Sent:
        """Execute it, once for each of `rows`; what comes of the last."""
        compiled = self._for(connection)
        wire: Wire | None = vars(connection).get(WIRE)
        if wire is not None:
            if len(rows) == 1:
                return wire.send(self._name, compiled.numbered, compiled.numbers(rows[0]))
            return self._send_together(wire, compiled, rows)
        cursor = connection.connection.cursor()
        if len(rows) == 1:
            cursor.execute(compiled.sql, compiled.parameters(rows[0]))
        else:
            cursor.executemany(compiled.sql, [compiled.parameters(row) for row in rows])
        return _Done(cursor)

    def _send_together(self, wire: Wire, compiled: _Compiled, rows: Sequence[Mapping[str, Any]]) -> Sent:
        """An insert of a few rows as one statement; of many, several at a time."""
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            few = rows[start : start + _ROWS_AT_ONCE]
            values = [value for row in few for value in compiled.numbers(row)]
            reply = wire.send(f"{self._name}x{len(few)}", several_rows(compiled.numbered, len(few)), values)
        return reply

    def row(self, connection: Connection, values: Mapping[str, Any]) -> Sequence[Any] | None:
        """The first row it returns, if any."""
        found = self.rows(connection, values)
        return found[0] if found else None

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> list[Sequence[Any]]:
        return self.send(connection, values).rows()

    def _for(self, connection: Connection) -> _Compiled:
        name = connection.dialect.name
        if name not in self._compiled:
            compiled = self._statement.compile(dialect=connection.dialect, column_keys=self._columns)
            order = getattr(compiled, "positiontup", None)
            constants = {key: value for key, value in compiled.params.items() if value is not None}
            self._compiled[name] = _Compiled(str(compiled), constants, order, *by_number(str(compiled)))
        return self._compiled[name]
