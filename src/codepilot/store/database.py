"""Transactions: short reads by anyone, writes one at a time on SQLite, and typed failures from both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.faults import database_failure, disk_faults
from codepilot.store.gate import Gate
from codepilot.store.liveness import FileLocks, Liveness
from codepilot.store.migrations import MIGRATIONS, migrate, refuse_newer, schema_version
from codepilot.store.prepared import WIRE
from codepilot.store.sessions import ServerLocks
from codepilot.store.statements import EXCLUDE, NOT_DURABLE, RING, SERVER_NOW
from codepilot.store.url import no_store, shown, store_url
from codepilot.store.wakeup import FileWakeup, ServerWakeup, Wakeup, ring
from codepilot.store.wire import Wire

_BUSY_MS = 30_000
_CONNECTIONS = 8
_MORE_CONNECTIONS = 56
_CONNECT_SEC = 10
_KNOWN = "codepilot_known"
_SERVER_OPTIONS = (
    "-c lock_timeout=30s -c idle_in_transaction_session_timeout=10s -c timezone=UTC "
    "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
)
"""A process that is stopped within a transaction keeps the others waiting for so long, and then has lost it. A machine
that is gone without a word is missed after a minute, and what it had locked is free."""
_NOTICING = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 30_000}
"""A server that is gone without a word is missed within half a minute; the system would wait for hours."""


class Database:
    """One database and how to read and write it. Safe to use from any thread, not across a fork."""

    def __init__(
        self, engine: Engine, place: str, locks: Path | None, gate: Gate | None, sessions: Engine | None = None
    ) -> None:
        self._engine = engine
        self._sessions = sessions or engine
        """Gives new connections only, for those who keep one."""
        self.place = place
        """The file or the server, as messages name it."""
        self._locks = locks
        self._inode: tuple[int, int] | None = None
        self._gate = gate
        self._reading = engine if gate else engine.execution_options(isolation_level="REPEATABLE READ")
        self._looking = engine if gate else engine.execution_options(isolation_level="AUTOCOMMIT")
        self._driver_error: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._writer: Connection | None = None
        self._writer_durable: bool | None = None
        self._rings = False
        """Whether workers are to be woken when this turn is over: before, they would find the gate shut."""
        self._closing = threading.Lock()
        self._closed = False
        self._spare: list[Connection] = []
        """Connections for writing that are not in use: a pool's bookkeeping costs more than many a transaction."""

    @classmethod
    def open(cls, url_or_path: str | Path, locks: Path | None = None) -> Database:
        """Connect and bring the schema up to date."""
        url = store_url(url_or_path)
        if url.get_backend_name() == "sqlite":
            path = Path(url.database or "")
            database = cls._sqlite(path, locks or path.parent / "locks")
        else:
            place = shown(url)
            sessions = _server_engine(url, place, poolclass=NullPool)
            sizes = {"pool_size": _CONNECTIONS, "max_overflow": _MORE_CONNECTIONS, "pool_use_lifo": True}
            database = cls(_server_engine(url, place, **sizes), place, None, None, sessions)
        try:
            database._migrate()
        except BaseException:
            database.close()
            raise
        return database

    @classmethod
    def _sqlite(cls, path: Path, locks: Path) -> Database:
        with disk_faults(FailureKind.STORE_UNAVAILABLE, f"Opening the database {path}"):
            if not path.exists():
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.touch(mode=0o600, exist_ok=True)
        engine = create_engine(
            URL.create("sqlite", database=str(path)),
            connect_args={"timeout": _BUSY_MS / 1000, "cached_statements": 256},
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return cls(engine, str(path), locks, Gate(locks / "database.gate", _BUSY_MS / 1000))

    @property
    def shared(self) -> bool:
        """Whether it is a server that other machines may use as well."""
        return self._locks is None

    @property
    def replaced(self) -> bool:
        """Whether another file is in its place than when this was first asked, or none: nobody will read what it gets.

        To be asked first after a write: that is when a layered file system puts a copy in the place of its file.
        """
        if self._locks is None:
            return False
        try:
            found = Path(self.place).stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # it cannot be told; whoever reads or writes will say what is wrong
            return False
        self._inode = self._inode or (found.st_dev, found.st_ino)
        return self._inode != (found.st_dev, found.st_ino)

    def liveness(self) -> Liveness:
        return ServerLocks(self._sessions, self.place) if self._locks is None else FileLocks(self._locks)

    def wakeup(self) -> Wakeup:
        return ServerWakeup(self._sessions) if self._locks is None else FileWakeup(self._locks)

    def now(self, connection: Connection, clock: Callable[[], int]) -> int:
        """Microseconds by the clock that all who use the database share."""
        row = SERVER_NOW.row(connection, {}) if self._locks is None else None
        return clock() if row is None else int(row[0])

    def exclude(self, connection: Connection) -> None:
        """Let no other transaction that asks the same go on before this one has ended; on SQLite none does."""
        if self._locks is None:
            EXCLUDE.send(connection, {})

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view of the database, for several statements."""
        with self._typed(), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def look(self) -> Iterator[Connection]:
        """For one statement that reads."""
        with self._typed(), self._looking.connect() as connection:
            yield connection

    @contextmanager
    def ask(self) -> Iterator[Connection]:
        """The same for one that is `Prepared`; several times quicker."""
        with self._typed(), self._connected() as connection, self._asking(connection):
            yield connection

    @contextmanager
    def write(self, *, durable: bool, rings: bool = False) -> Iterator[Connection]:
        """One write transaction, all or nothing. `durable` survives a power cut, the rest a killed process.

        With `rings`, workers that wait are woken when it is done. Only `Prepared` statements may be run in it: it is
        the driver's transaction, and on a server a stream.
        """
        with self.turn(), self.write_in_turn(durable=durable, rings=rings) as connection:
            yield connection

    def turn(self) -> AbstractContextManager[None]:
        """Our turn to write: on SQLite nobody else may until it is over, on a server anybody may at any time."""
        return nullcontext() if self._gate is None else self._only_writer(self._gate)

    @contextmanager
    def write_in_turn(self, *, durable: bool, rings: bool) -> Iterator[Connection]:
        """As `write`, when it is our turn."""
        if self._locks is None:
            with self._typed(), self._connected() as connection, self._streamed(connection):
                if not durable:
                    NOT_DURABLE.send(connection, {})
                yield connection
                if rings:
                    RING.send(connection, {})
            return
        with self._typed():
            try:
                connection = self._sqlite_writer(durable)
                with _bare_transaction(connection):
                    yield connection
            except (DBAPIError, self._driver_error):
                self._drop_writer()
                raise
        self._rings = self._rings or rings

    @contextmanager
    def _only_writer(self, gate: Gate) -> Iterator[None]:
        with gate.hold():
            yield
            rings, self._rings = self._rings, False
        if rings and self._locks is not None:
            ring(self._locks)

    @contextmanager
    def overhaul(self) -> Iterator[Connection]:
        """A durable write transaction in which any statement may be run."""
        with self._gate.hold() if self._gate else nullcontext(), self._typed(), self._engine.connect() as connection:
            if self._gate:
                _synchronous(connection, "FULL")
            try:
                with connection.execution_options(sqlite_begin="BEGIN IMMEDIATE").begin():
                    yield connection
            except DBAPIError:
                connection.invalidate()
                raise

    def forget(self) -> None:
        """Close the connections that are idle: the server they led to is gone."""
        if self._gate is None:
            self._drop_spare()
            self._engine.dispose()

    def close(self) -> None:
        with self._closing:
            self._closed = True
            self._drop_writer()
            self._drop_spare()
            self._engine.dispose()
        if self._gate is not None:
            self._gate.close()

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        try:
            connection = self._spare.pop()
        except IndexError:
            connection = self._engine.connect()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._closing:
            if not self._closed and len(self._spare) < _CONNECTIONS:
                self._spare.append(connection)
                return
        connection.close()

    def _asking(self, connection: Connection) -> AbstractContextManager[None]:
        return self._streamed(connection, whole=False) if self._gate is None else nullcontext()

    def _drop_spare(self) -> None:
        while self._spare:
            with suppress(IndexError):  # another thread took the last one
                self._spare.pop().close()

    def _sqlite_writer(self, durable: bool) -> Connection:
        if self._writer is None:
            self._writer = self._engine.connect()
        if self._writer_durable is not durable:
            _synchronous(self._writer, "FULL" if durable else "NORMAL")
            self._writer_durable = durable
        return self._writer

    def _drop_writer(self) -> None:
        writer, self._writer, self._writer_durable = self._writer, None, None
        if writer is not None:
            writer.invalidate()
            writer.close()

    def _migrate(self) -> None:
        """A file that proves to be no database, or a newer one, has been left alone, and nothing was made beside it."""
        with self.read() as connection:
            version = schema_version(connection)
        refuse_newer(version, self.place)
        if self._locks is not None:
            with disk_faults(FailureKind.STORE_UNAVAILABLE, f"Opening the database {self.place}"):
                self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        if version < MIGRATIONS[-1].version:
            with self.overhaul() as connection:
                migrate(connection, self.place)

    @contextmanager
    def _streamed(self, connection: Connection, whole: bool = True) -> Iterator[None]:
        """Statements that are sent together, as one transaction if `whole`. One that broke is not used again."""
        driver: Any = connection.connection.dbapi_connection
        wire = Wire(driver, connection.info.setdefault(_KNOWN, {}))
        vars(connection)[WIRE] = wire
        try:
            wire.begin(whole)
            yield
            wire.end(whole)
        except BaseException:
            try:
                wire.abandon()
            except self._driver_error:
                connection.invalidate()
            raise
        finally:
            del vars(connection)[WIRE]

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise database_failure(error.orig or error, self.place) from error
        except self._driver_error as error:
            raise database_failure(error, self.place) from error


def _server_engine(url: URL, place: str, **pool: Any) -> Engine:
    connection = {
        "options": f"{_SERVER_OPTIONS} {url.query.get('options', '')}",
        "connect_timeout": _CONNECT_SEC,
        **{name: value for name, value in _NOTICING.items() if name not in url.query},
        "prepare_threshold": None,  # else the driver would now and then deallocate what `Wire` has prepared
    }
    try:
        # Without asking the server for a type that is never used, each time that a connection is opened.
        return create_engine(url, connect_args=connection, use_native_hstore=False, **pool)
    except ModuleNotFoundError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The store {place} needs a driver that is not installed: {error.name}.",
            next_action="Install it into the same environment: pip install 'psycopg[binary]'",
        ) from error
    except ArgumentError as error:
        raise no_store(url.drivername, str(error)) from error


@contextmanager
def _bare_transaction(connection: Connection) -> Iterator[None]:
    """By the driver alone, which is several times quicker."""
    driver: Any = connection.connection.dbapi_connection
    driver.cursor().execute("BEGIN IMMEDIATE")
    try:
        yield
        driver.commit()
    except BaseException:
        driver.rollback()
        raise


def _synchronous(connection: Connection, level: str) -> None:
    driver: Any = connection.connection.dbapi_connection
    driver.execute(f"PRAGMA synchronous = {level}")


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
