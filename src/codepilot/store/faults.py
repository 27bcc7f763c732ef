"""What the disk and the database say when they fail, as typed failures that name the file."""

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
_POSTGRES_FULL = "53100"


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
    if getattr(error, "sqlstate", None) == _POSTGRES_FULL:
        return CodePilotError(FailureKind.DISK_FULL, f"The disk of the database {place} is full.", database=place)
    code = getattr(error, "sqlite_errorcode", None)
    primary = code & 0xFF if isinstance(code, int) else None
    if primary == sqlite3.SQLITE_FULL:
        return CodePilotError(FailureKind.DISK_FULL, f"The disk of the database {place} is full.", database=place)
    if primary in _LOCKED:
        message, action = f"The database {place} is locked by another process.", "End that process, then try again."
    elif primary in _DAMAGED:
        message = f"The database {place} is damaged or is not a CodePilot database: {error}."
        action = "Move it away (keep a copy) and restore it from a backup."
    elif primary in _UNREACHABLE:
        message, action = (
            f"The database {place} cannot be used: {error}.",
            "Check the file, its directory and its owner.",
        )
    elif primary is None:
        message, action = f"The database {place} cannot be used: {error}.", ""
    else:
        return CodePilotError(FailureKind.INTERNAL, f"The database {place} refused a write: {error}.", database=place)
    return CodePilotError(FailureKind.STORE_UNAVAILABLE, message, next_action=action, database=place)
