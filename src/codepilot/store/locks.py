"""Named locks that expire, for what several runs must not change at once. Their holder passes the token along."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, and_, bindparam, select, text, update

from codepilot.store.database import Database
from codepilot.store.rows import Lock
from codepilot.store.schema import locks

LOCK_SEC = 300.0

_take = text(
    "INSERT INTO locks (name, holder, token, expires_at) VALUES (:name, :holder, 1, :expires_at) "
    "ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at, "
    "token = CASE WHEN locks.holder = excluded.holder AND locks.expires_at > :now THEN locks.token "
    "ELSE locks.token + 1 END "
    "WHERE locks.holder IS NULL OR locks.holder = excluded.holder OR locks.expires_at <= :now RETURNING token"
)
"""Free, expired or already the holder's: the token stays the same only if nobody could have held it in between."""
_this_lock = and_(
    locks.c.name == bindparam("of_name"),
    locks.c.holder == bindparam("of_holder"),
    locks.c.token == bindparam("of_token"),
)


class Locks:
    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    def take(self, name: str, holder: str, seconds: float = LOCK_SEC) -> Lock | None:
        """The lock, if it is free, has expired or is the holder's already. Its token is higher than any before."""

        def change(connection: Connection) -> Lock | None:
            now = self._database.now(connection, self._clock)
            until = now + int(seconds * 1e6)
            asked = {"name": name, "holder": holder, "now": now, "expires_at": until}
            token = connection.execute(_take, asked).scalar()
            return None if token is None else Lock(name, holder, int(token), until)

        return self._database.writing(change)

    def renew(self, lock: Lock, seconds: float = LOCK_SEC) -> Lock | None:
        """The lock for so much longer from now; None if it has expired or is another's."""

        def change(connection: Connection) -> Lock | None:
            now = self._database.now(connection, self._clock)
            until = now + int(seconds * 1e6)
            renewed = update(locks).where(_this_lock, locks.c.expires_at > now).values(expires_at=until)
            held = connection.execute(renewed, _named(lock)).rowcount
            return Lock(lock.name, lock.holder, lock.token, until) if held else None

        return self._database.writing(change)

    def free(self, lock: Lock) -> bool:
        """Let others have it; whether it was still ours."""
        freed = update(locks).where(_this_lock).values(holder=None, expires_at=0)
        return self._database.writing(lambda db: bool(db.execute(freed, _named(lock)).rowcount))

    def holds(self, lock: Lock) -> bool:
        """Whether the lock is held with this token at this moment."""

        def ask(connection: Connection) -> bool:
            expires_at = connection.execute(select(locks.c.expires_at).where(_this_lock), _named(lock)).scalar()
            return expires_at is not None and int(expires_at) > self._database.now(connection, self._clock)

        return self._database.reading(ask)


def _named(lock: Lock) -> dict[str, str | int]:
    return {"of_name": lock.name, "of_holder": lock.holder, "of_token": lock.token}
