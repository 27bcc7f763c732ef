"""Named locks that expire: for what several runs must not change at once. Whoever uses one carries its token along."""

from __future__ import annotations

from collections.abc import Callable

from codepilot.store.database import Database
from codepilot.store.rows import Lock
from codepilot.store.statements import FREE_LOCK, RENEW_LOCK, SELECT_LOCK, TAKE_LOCK
from codepilot.store.tries import Tried, twice

LOCK_SEC = 300.0


class Locks:
    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    def take(self, name: str, holder: str, seconds: float = LOCK_SEC) -> Lock | None:
        """The lock, if it is free, has expired or is the holder's already. Its token is higher than any before."""

        def write(_: Tried) -> Lock | None:
            with self._database.write(durable=True) as connection:
                now = self._database.now(connection, self._clock)
                until = now + int(seconds * 1e6)
                row = TAKE_LOCK.row(connection, {"name": name, "holder": holder, "now": now, "expires_at": until})
                return None if row is None else Lock(name, holder, int(row[0]), until)

        return twice(self._database, write)

    def renew(self, lock: Lock, seconds: float = LOCK_SEC) -> Lock | None:
        """The lock for so much longer from now; None if it has expired or is another's."""

        def write(_: Tried) -> Lock | None:
            with self._database.write(durable=True) as connection:
                now = self._database.now(connection, self._clock)
                until = now + int(seconds * 1e6)
                sent = RENEW_LOCK.send(connection, {**_named(lock), "in_now": now, "new_expires_at": until})
                return Lock(lock.name, lock.holder, lock.token, until) if sent.touched else None

        return twice(self._database, write)

    def free(self, lock: Lock) -> bool:
        """Let others have it; whether it was still ours."""

        def write(_: Tried) -> bool:
            with self._database.write(durable=True) as connection:
                return bool(FREE_LOCK.send(connection, _named(lock)).touched)

        return twice(self._database, write)

    def holds(self, lock: Lock) -> bool:
        """Whether the lock is held with this token at this moment."""

        def read(_: Tried) -> bool:
            with self._database.read() as connection:
                row = SELECT_LOCK.row(connection, _named(lock))
                return row is not None and int(row[0]) > self._database.now(connection, self._clock)

        return twice(self._database, read)


def _named(lock: Lock) -> dict[str, str | int]:
    return {"in_name": lock.name, "in_holder": lock.holder, "in_token": lock.token}
