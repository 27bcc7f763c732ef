"""Transactions: short reads by anyone, writes one at a time on SQLite, and typed failures from both engines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.faults import database_failure, disk_faults
from codepilot.store.gate import Gate
from codepilot.store.migrations import MIGRATIONS, migrate, refuse_newer, schema_version

_BUSY_MS = 30_000


class Database:
    """One database and how to read and write it. Safe to use from any thread, not across a fork."""

    def __init__(self, engine: Engine, place: str, locks: Path, gate: Gate | None) -> None:
        self._engine = engine
        self.place = place
        """The file or the server, as messages name it."""
        self.locks = locks
        self._gate = gate
        self._driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._writer: Connection | None = None
        self._writer_durable: bool | None = None
        self._closing = threading.Lock()

    @classmethod
    def open(cls, url_or_path: str | Path, locks: Path | None = None) -> Database:
        """Connect and bring the schema up to date."""
        url = _url(url_or_path)
        if url.get_backend_name() == "sqlite":
            path = Path(url.database or "")
            database = cls._sqlite(path, locks or path.parent / "locks")
        else:
            place = url.render_as_string(hide_password=True)
            if locks is None:
                raise CodePilotError(FailureKind.INVALID_SPEC, f"A store on {place} needs a directory for lock files.")
            database = cls(_server_engine(url, place), place, locks, None)
        try:
            database._migrate()
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def _sqlite(cls, path: Path, locks: Path) -> Database:
        with disk_faults(FailureKind.STORE_UNAVAILABLE, f"Opening the database {path}"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            locks.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600, exist_ok=True)
        engine = create_engine(
            URL.create("sqlite", database=str(path)),
            connect_args={"timeout": _BUSY_MS / 1000, "cached_statements": 256},
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return cls(engine, str(path), locks, Gate(locks / "database.gate", _BUSY_MS / 1000))

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view of the database."""
        with self._typed(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def write(self, *, durable: bool) -> Iterator[Connection]:
        """One write transaction, all or nothing. `durable` survives a power cut, the rest a killed process."""
        if self._gate is None:
            with self._typed(), self._engine.begin() as connection:
                if not durable:
                    connection.exec_driver_sql("SET LOCAL synchronous_commit = off")
                yield connection
            return
        with self._gate.hold(), self._typed():
            try:
                connection = self._sqlite_writer(durable)
                with connection.begin():
                    yield connection
            except (DBAPIError, self._driver_error):
                self._drop_writer()
                raise

    def close(self) -> None:
        with self._closing:
            self._drop_writer()
            self._engine.dispose()

    def _sqlite_writer(self, durable: bool) -> Connection:
        if self._writer is None:
            self._writer = self._engine.connect().execution_options(sqlite_begin="BEGIN IMMEDIATE")
        if self._writer_durable is not durable:
            raw: Any = self._writer.connection.dbapi_connection
            raw.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._writer_durable = durable
        return self._writer

    def _drop_writer(self) -> None:
        writer, self._writer, self._writer_durable = self._writer, None, None
        if writer is not None:
            writer.invalidate()
            writer.close()

    def _migrate(self) -> None:
        with self.read() as connection:
            version = schema_version(connection)
        refuse_newer(version, self.place)
        if version < MIGRATIONS[-1].version:
            with self.write(durable=True) as connection:
                migrate(connection, self.place)

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise database_failure(error.orig or error, self.place) from error
        except self._driver_error as error:
            raise database_failure(error, self.place) from error


def _url(url_or_path: str | Path) -> URL:
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        return URL.create("sqlite", database=str(Path(url_or_path).absolute()))
    try:
        url = make_url(url_or_path)
        url.get_dialect()
    except (ArgumentError, NoSuchModuleError) as error:
        scheme = url_or_path.partition("://")[0]
        raise CodePilotError(FailureKind.INVALID_SPEC, f"A {scheme!r} URL does not name a store: {error}") from error
    if url.get_backend_name() == "sqlite" and not url.database:
        raise CodePilotError(FailureKind.INVALID_SPEC, "A store needs a file: a database in memory loses everything.")
    return url


def _server_engine(url: URL, place: str) -> Engine:
    try:
        return create_engine(url, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The store {place} needs a driver that is not installed: {error.name}.",
            next_action="Install it into the same environment: pip install 'psycopg[binary]'",
        ) from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    for pragma in (
        "journal_mode = WAL",
        "synchronous = NORMAL",
        "foreign_keys = ON",
        "journal_size_limit = 67108864",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN"))
