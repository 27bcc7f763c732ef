"""What may name a database: a file or a PostgreSQL server. And how messages name it, without a password."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from codepilot.core.failures import CodePilotError, FailureKind

_ADVICE = "Name a file, or a server as postgresql://USER@HOST/DATABASE."
_LARGEST_PORT = 65_535
_WHERE = frozenset({"host", "hostaddr", "port", "dbname", "service"})
"""The options of a server's URL that say where it is; others may be secrets."""


def store_url(url_or_path: str | Path) -> URL:
    """The URL of the database that is meant, or INVALID_SPEC."""
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
        raise no_store(scheme, str(error)) from error
    except ValueError:  # it shows what it took for a port, which may be a piece of a password
        raise no_store(scheme, "its host or port cannot be read") from None
    if url.get_backend_name() == "sqlite" and (url.host or url.query or not _is_file(url.database or "")):
        raise _no_file()
    return url


def shown(url: URL) -> str:
    """A server as messages name it."""
    where = {name: value for name, value in url.query.items() if name in _WHERE}
    return url.set(query=where).render_as_string(hide_password=True)


def no_store(scheme: str, reason: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC, f"A {scheme!r} URL does not name a store: {reason}.", next_action=_ADVICE
    )


def _is_file(name: str) -> bool:
    """Whether SQLite would take it for the name of a file, and nothing else."""
    return bool(name) and name != ":memory:" and not name.startswith("file:") and "\0" not in name


def _no_file() -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        "A store needs a file, named without options: a database in memory loses everything.",
        next_action=_ADVICE,
    )
