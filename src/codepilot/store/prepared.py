"""Statements of the hot path: compiled once by SQLAlchemy for the engine at hand, then run by its driver.

On a server they are sent without waiting for their answers; the first answer that is asked for brings all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Protocol

from sqlalchemy import ClauseElement, Connection

from codepilot.store.wire import Wire, by_number, several_rows

_names = itertools.count()

_ROWS_AT_ONCE = 16

WIRE = "codepilot_wire"
"""The attribute of a connection that has the stream which its transaction runs in, if it does."""


Row = Mapping[str, Any]


@dataclass(frozen=True)
class _Compiled:
    sql: str
    constants: Row
    in_order: Callable[[Row], Any]
    """Its parameters as the driver takes them: by place, or by name as they are."""
    numbered: str
    by_number: Callable[[Row], Sequence[Any]]

    def for_driver(self, rows: Sequence[Row]) -> tuple[str, Any]:
        if len(rows) == 1:
            return self.sql, self.in_order(self._named(rows[0]))
        return several_rows(self.sql, len(rows)), [value for row in rows for value in self.in_order(self._named(row))]

    def for_server(self, rows: Sequence[Row]) -> tuple[str, Sequence[Any]]:
        if len(rows) == 1:
            return self.numbered, self.by_number(self._named(rows[0]))
        values = [value for row in rows for value in self.by_number(self._named(row))]
        return several_rows(self.numbered, len(rows)), values

    def _named(self, values: Row) -> Row:
        return {**self.constants, **values} if self.constants else values


def _placed(names: Sequence[str]) -> Callable[[Row], Sequence[Any]]:
    """Values in the order of their names."""
    return itemgetter(*names) if len(names) > 1 else lambda values: [values[name] for name in names]


def _few(rows: Sequence[Row]) -> Iterable[Sequence[Row]]:
    if len(rows) <= _ROWS_AT_ONCE:
        return (rows,)
    return (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))


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

    def send(self, connection: Connection, *rows: Row) -> Sent:
        """Execute it, an insert of several rows as one statement for a few at a time; what comes of the last."""
        compiled = self._for(connection)
        wire: Wire | None = vars(connection).get(WIRE)
        if wire is None:
            cursor = connection.connection.cursor()
            for few in _few(rows):
                cursor.execute(*compiled.for_driver(few))
            return _Done(cursor)
        for few in _few(rows):
            name = self._name if len(few) == 1 else f"{self._name}x{len(few)}"
            reply = wire.send(name, *compiled.for_server(few))
        return reply

    def row(self, connection: Connection, values: Row) -> Sequence[Any] | None:
        """The first row it returns, if any."""
        found = self.rows(connection, values)
        return found[0] if found else None

    def rows(self, connection: Connection, values: Row) -> list[Sequence[Any]]:
        return self.send(connection, values).rows()

    def _for(self, connection: Connection) -> _Compiled:
        name = connection.dialect.name
        if name not in self._compiled:
            compiled = self._statement.compile(dialect=connection.dialect, column_keys=self._columns)
            order = getattr(compiled, "positiontup", None)
            constants = {key: value for key, value in compiled.params.items() if value is not None}
            in_order = dict if order is None else _placed(order)
            numbered, names = by_number(str(compiled))
            self._compiled[name] = _Compiled(str(compiled), constants, in_order, numbered, _placed(names))
        return self._compiled[name]
