"""Statements of the hot path: compiled once by SQLAlchemy for the engine at hand, then run by its driver.

On a server they are sent without waiting for their answers; the first answer that is asked for brings all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ClauseElement, Connection

PIPELINE = "codepilot_pipeline"
"""Where a connection keeps the pipeline that its transaction runs in, if it has one."""


@dataclass(frozen=True)
class _Compiled:
    sql: str
    constants: Mapping[str, Any]
    order: Sequence[str] | None
    """The parameters' names in their order, where the driver takes them by place."""

    def parameters(self, values: Mapping[str, Any]) -> Any:
        named = {**self.constants, **values} if self.constants else values
        return named if self.order is None else [named[name] for name in self.order]


class Sent:
    """A statement on its way."""

    def __init__(self, cursor: Any, pipeline: Any) -> None:
        self._cursor = cursor
        self._pipeline = pipeline

    @property
    def touched(self) -> int:
        """How many rows it changed."""
        if self._pipeline is not None and self._cursor.rowcount < 0:
            self._pipeline.sync()
        return int(self._cursor.rowcount)

    def row(self) -> Sequence[Any] | None:
        """The first row of its answer, if any."""
        found: Sequence[Any] | None = self._cursor.fetchone()
        return found

    def rows(self) -> list[Sequence[Any]]:
        found: list[Sequence[Any]] = self._cursor.fetchall()
        return found


class Prepared:
    """One statement with named parameters, all of them plain numbers and text. Costs a tenth of a full execute."""

    def __init__(self, statement: ClauseElement, columns: Sequence[str] | None = None) -> None:
        self._statement = statement
        self._columns = list(columns) if columns is not None else None
        self._compiled: dict[str, _Compiled] = {}

    def send(self, connection: Connection, *rows: Mapping[str, Any]) -> Sent:
        """Execute it, once for each of `rows`."""
        compiled = self._for(connection)
        cursor = connection.connection.cursor()
        if len(rows) == 1:
            cursor.execute(compiled.sql, compiled.parameters(rows[0]))
        else:
            cursor.executemany(compiled.sql, [compiled.parameters(row) for row in rows])
        return Sent(cursor, connection.info.get(PIPELINE))

    def row(self, connection: Connection, values: Mapping[str, Any]) -> Sequence[Any] | None:
        """The first row it returns, if any."""
        return self.send(connection, values).row()

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> list[Sequence[Any]]:
        return self.send(connection, values).rows()

    def _for(self, connection: Connection) -> _Compiled:
        name = connection.dialect.name
        if name not in self._compiled:
            compiled = self._statement.compile(dialect=connection.dialect, column_keys=self._columns)
            order = getattr(compiled, "positiontup", None)
            constants = {key: value for key, value in compiled.params.items() if value is not None}
            self._compiled[name] = _Compiled(str(compiled), constants, order)
        return self._compiled[name]
