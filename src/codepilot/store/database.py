"""Transactions on SQLite or PostgreSQL: `read`, `write`, one retry rule, and typed failures from both engines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.faults import Interrupted, database_failure, disk_faults
from codepilot.store.liveness import FileLocks, Liveness
from codepilot.store.migrations import migrate, newest, refuse_newer, schema_version
from codepilot.store.session_locks import SessionLocks
from codepilot.store.wakeup import CHANNEL, FileWakeup, ServerWakeup, Wakeup, wake_all
from codepilot.store.writer_lock import WriterLock

RETRY_SEC = 1.0
_BUSY_SEC = 30.0
_CONNECTIONS = 8
_MORE_CONNECTIONS = 56
_CONNECT_SEC = 10
_CLAIM_LIMIT_LOCK = 0x636F6466
_SERVER_OPTIONS = (
    "-c lock_timeout=30s -c idle_in_transaction_session_timeout=10s -c timezone=UTC "
    "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
)
"""A process stopped inside a transaction blocks the others for 10 s at most, then its transaction is rolled back. The
server notices a client machine that vanished after a minute and frees its locks."""
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4, "tcp_user_timeout": 30_000}
"""The client notices a vanished server within half a minute; the system's default is hours."""
_SERVER_NOW = text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)")
_NOTIFY = text(f"SELECT pg_notify('{CHANNEL}', '')")
_EXCLUDE = text(f"SELECT pg_advisory_xact_lock({_CLAIM_LIMIT_LOCK})")

_ADVICE = "Name a file, or a server as postgresql://USER@HOST/DATABASE."
_LARGEST_PORT = 65_535
_WHERE = frozenset({"host", "hostaddr", "port", "dbname", "service"})
"""The options of a server's URL that say where it is; others may be secrets."""

Answer = TypeVar("Answer")


class Database:
    """One database and how to read and write it. Safe to use from any thread, not across a fork."""

    def __init__(
        self, engine: Engine, place: str, locks: Path | None, writer: WriterLock | None, sessions: Engine | None = None
    ) -> None:
        self._engine = engine
        self._sessions = sessions or engine
        """Opens a new connection each time, for locks and notifications that keep theirs."""
        self.place = place
        """The file or the server, as messages name it."""
        self._locks = locks
        self._inode: tuple[int, int] | None = None
        self._writer = writer
        self._reading = engine if writer else engine.execution_options(isolation_level="REPEATABLE READ")
        self._writing = {
            durable: engine.execution_options(synchronous="FULL" if durable else "NORMAL") for durable in (True, False)
        }

    @classmethod
    def open(cls, url_or_path: str | Path, locks: Path | None = None) -> Database:
        """Connect and bring the schema up to date."""
        url = _store_url(url_or_path)
        if url.get_backend_name() == "sqlite":
            path = Path(url.database or "")
            database = cls._sqlite(path, locks or path.parent / "locks")
        else:
            place = _shown(url)
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
            connect_args={"timeout": _BUSY_SEC, "cached_statements": 256},
            max_overflow=_MORE_CONNECTIONS,
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return cls(engine, str(path), locks, WriterLock(locks / "database.writer", _BUSY_SEC))

    @property
    def shared(self) -> bool:
        """True if it is a server that other machines may use as well."""
        return self._locks is None

    @property
    def replaced(self) -> bool:
        """True if its file was removed or replaced since the first call: what is written to it is lost.

        Ask for the first time after a write: that is when a layered file system replaces its file by a copy.
        """
        if self._locks is None:
            return False
        try:
            found = Path(self.place).stat()
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # unknown; the next read or write reports what is wrong
            return False
        self._inode = self._inode or (found.st_dev, found.st_ino)
        return self._inode != (found.st_dev, found.st_ino)

    def liveness(self) -> Liveness:
        return SessionLocks(self._sessions, self.place) if self._locks is None else FileLocks(self._locks)

    def wakeup(self) -> Wakeup:
        return ServerWakeup(self._sessions) if self._locks is None else FileWakeup(self._locks)

    def now(self, connection: Connection, clock: Callable[[], int]) -> int:
        """Microseconds by the clock that all users of the database share."""
        return int(connection.scalar(_SERVER_NOW) or 0) if self._locks is None else clock()

    def exclude(self, connection: Connection) -> None:
        """Until this transaction ends, block others that ask the same; on SQLite there is one writer anyway."""
        if self._locks is None:
            connection.execute(_EXCLUDE)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One consistent view of the database."""
        with self._typed(), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def write(self, *, durable: bool = True, notify: bool = False) -> Iterator[Connection]:
        """One write transaction, all or nothing; the only one at a time on SQLite.

        A `durable` one survives a power cut, any other a killed process; on a server all are durable. With `notify`,
        workers that wait for steps wake up once it is committed.
        """
        turn = self._writer.hold() if self._writer else nullcontext()
        with turn, self._typed(), self._writing[durable].connect() as connection:
            try:
                with connection.begin():
                    yield connection
                    if notify and self._locks is None:
                        connection.execute(_NOTIFY)
            except DBAPIError:
                connection.invalidate()
                raise
        if notify and self._locks is not None:
            wake_all(self._locks)

    def with_retry(self, work: Callable[[], Answer]) -> Answer:
        """`work`, and once more if the server was lost in it.

        Whether the lost transaction was committed is unknown: `work` must be a read, be harmless when repeated, or
        look for its own earlier write (see `Log.transact`).
        """
        try:
            return work()
        except Interrupted:
            self._engine.dispose()
            time.sleep(RETRY_SEC)
            return work()

    def reading(self, ask: Callable[[Connection], Answer]) -> Answer:
        """Run `ask` on one consistent view and return its result."""

        def read() -> Answer:
            with self.read() as connection:
                return ask(connection)

        return self.with_retry(read)

    def writing(self, change: Callable[[Connection], Answer], *, durable: bool = True, notify: bool = False) -> Answer:
        """Run `change` in one write transaction and return its result. It must be harmless when repeated."""

        def write() -> Answer:
            with self.write(durable=durable, notify=notify) as connection:
                return change(connection)

        return self.with_retry(write)

    def close(self) -> None:
        self._engine.dispose()
        if self._writer is not None:
            self._writer.close()

    def _migrate(self) -> None:
        """A file that is no database, or a newer one, is left alone, and nothing is created next to it."""
        with self.read() as connection:
            version = schema_version(connection)
        refuse_newer(version, self.place)
        if self._locks is not None:
            with disk_faults(FailureKind.STORE_UNAVAILABLE, f"Opening the database {self.place}"):
                self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
        if version < newest():
            with self.write() as connection:
                migrate(connection, self.place)

    @contextmanager
    def _typed(self) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            raise database_failure(error.orig or error, self.place) from error


def _store_url(url_or_path: str | Path) -> URL:
    """The URL of the database."""
    if isinstance(url_or_path, Path) or "://" not in url_or_path:
        if not isinstance(url_or_path, Path) and not _is_file(url_or_path):
            raise _no_file()
        return URL.create("sqlite", database=str(Path(url_or_path).absolute()))
    scheme = url_or_path.partition("://")[0]
    try:
        url = make_url(url_or_path)
        if url.drivername == "postgresql":
            url = url.set(drivername="postgresql+psycopg")
        url.get_dialect()
        if url.get_backend_name() not in ("sqlite", "postgresql"):
            raise ArgumentError("only SQLite and PostgreSQL are known")
        if url.port is not None and not 0 < url.port <= _LARGEST_PORT:
            raise ArgumentError(f"a port is a number from 1 to {_LARGEST_PORT}")
        if "@" in (url.host or ""):  # what comes before it is the rest of a password
            raise ArgumentError("an '@' in a password is written as %40")
    except (ArgumentError, NoSuchModuleError) as error:
        raise _no_store(scheme, str(error)) from error
    except ValueError:  # it shows what it took for a port, which may be a piece of a password
        raise _no_store(scheme, "its host or port cannot be read") from None
    if url.get_backend_name() == "sqlite" and (url.host or url.query or not _is_file(url.database or "")):
        raise _no_file()
    return url


def _shown(url: URL) -> str:
    """A server as messages name it."""
    where = {name: value for name, value in url.query.items() if name in _WHERE}
    return url.set(query=where).render_as_string(hide_password=True)


def _no_store(scheme: str, reason: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC, f"A {scheme!r} URL does not name a store: {reason}.", next_action=_ADVICE
    )


def _is_file(name: str) -> bool:
    """True if SQLite takes it for a plain file name."""
    return bool(name) and name != ":memory:" and not name.startswith("file:") and "\0" not in name


def _no_file() -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        "A store needs a file, named without options: a database in memory loses everything.",
        next_action=_ADVICE,
    )


def _server_engine(url: URL, place: str, **pool: Any) -> Engine:
    connection = {
        "options": f"{_SERVER_OPTIONS} {url.query.get('options', '')}",
        "connect_timeout": _CONNECT_SEC,
        **{name: value for name, value in _KEEPALIVE.items() if name not in url.query},
    }
    try:
        # `use_native_hstore` would ask the server for an unused type on every connect.
        engine = create_engine(url, connect_args=connection, use_native_hstore=False, **pool)
        engine.dialect.use_insertmanyvalues_wo_returning = True  # several rows are one statement, not a pipeline
        return engine
    except ModuleNotFoundError as error:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"The store {place} needs a driver that is not installed: {error.name}.",
            next_action="Install it into the same environment: pip install 'psycopg[binary]'",
        ) from error
    except ArgumentError as error:
        raise _no_store(url.drivername, str(error)) from error


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    for pragma in ("journal_mode = WAL", "foreign_keys = ON", "journal_size_limit = 67108864"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    """A writer locks the database before its first statement: it cannot fail when it comes to write."""
    synchronous = connection.get_execution_options().get("synchronous")
    if synchronous:
        connection.exec_driver_sql(f"PRAGMA synchronous = {synchronous}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if synchronous else "BEGIN")
