"""Errors of the disk and the database as typed failures that name the file."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from codepilot.core.failures import CodePilotError, FailureKind

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_UNREACHABLE = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_IOERR}
)
_SERVER_FULL = "53100"
_SERVER_AWAY = ("08", "57P0", "25P03", "40001", "40P01", "53300", "55P03")
_SERVER_REFUSED = ("22", "23", "42", "44", "P0")


class Interrupted(CodePilotError):
    """The server went away or turned us down for the moment: the same may succeed when it is tried again.

    Whether the last transaction was committed is unknown.
    """


def disk_is_full(error: OSError) -> bool:
    return error.errno in _FULL


@contextmanager
def disk_faults(kind: FailureKind, what: str) -> Iterator[None]:
    """Operating-system errors inside become DISK_FULL or `kind`, naming the file."""
    try:
        yield
    except OSError as error:
        where = error.filename or what
        if disk_is_full(error):
            raise CodePilotError(FailureKind.DISK_FULL, f"The disk is full: {where}.", path=where) from error
        raise CodePilotError(kind, f"{what} failed: {error.strerror or error} ({where}).", path=where) from error


def database_failure(error: BaseException, place: str) -> CodePilotError:
    """The typed failure for what a database driver raised; `place` is the file or the server."""
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int):
        return _file_failure(error, code & 0xFF, place)
    if hasattr(error, "sqlstate"):
        return _server_failure(error, error.sqlstate or "", place)
    return _unavailable(f"The database {place} cannot be used: {error}.", "", place)


def _file_failure(error: BaseException, primary: int, place: str) -> CodePilotError:
    if primary == sqlite3.SQLITE_FULL:
        return _full(place)
    if primary in _LOCKED:
        return _unavailable(
            f"The database {place} is locked by another process.", "End that process, then try again.", place
        )
    if primary in _DAMAGED:
        message = f"The database {place} is damaged or is not a CodePilot database: {error}."
        return _unavailable(message, "Move it away (keep a copy) and restore it from a backup.", place)
    if primary in _UNREACHABLE:
        message = f"The database {place} cannot be used: {error}."
        return _unavailable(message, "Check the file, its directory and its owner.", place)
    return _refused(error, place)


def _server_failure(error: BaseException, sqlstate: str, place: str) -> CodePilotError:
    """A driver's error without a state of the server's is about the connection to it."""
    if sqlstate == _SERVER_FULL:
        return _full(place)
    if sqlstate.startswith(_SERVER_REFUSED):
        return _refused(error, place)
    message = f"The database {place} cannot be used: {str(error).strip().rstrip('.?')}."
    action = "Check that the server runs and answers, then resume the run."
    if not sqlstate or sqlstate.startswith(_SERVER_AWAY):
        return Interrupted(FailureKind.STORE_UNAVAILABLE, message, next_action=action, database=place)
    return _unavailable(message, action, place)


def _full(place: str) -> CodePilotError:
    return CodePilotError(FailureKind.DISK_FULL, f"The disk of the database {place} is full.", database=place)


def _refused(error: BaseException, place: str) -> CodePilotError:
    return CodePilotError(FailureKind.INTERNAL, f"The database {place} refused a write: {error}.", database=place)


def _unavailable(message: str, action: str, place: str) -> CodePilotError:
    return CodePilotError(FailureKind.STORE_UNAVAILABLE, message, next_action=action, database=place)
