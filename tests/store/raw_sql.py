"""SQL past the store, on either engine: what a person with a database shell could do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool


def raw_sql(place: str, *statements: str) -> Sequence[Any]:
    """Run the statements in one transaction; the rows of the last one."""
    engine = create_engine(place, poolclass=NullPool)
    with engine.begin() as connection:
        for statement in statements[:-1]:
            connection.exec_driver_sql(statement)
        result = connection.exec_driver_sql(statements[-1])
        return result.all() if result.returns_rows else []


def on_postgres(place: str) -> bool:
    return place.startswith("postgresql")
