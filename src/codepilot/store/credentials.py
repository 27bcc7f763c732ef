"""Tokens, browser sessions and login links: only the digests of their secrets are stored."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from sqlalchemy import Connection, select, update

from codepilot.core.access import Credential, CredentialKind
from codepilot.store.database import Database
from codepilot.store.meta import kept_value
from codepilot.store.schema import credentials

_SIGNING_KEY = "signing_key"
_COLUMNS = [column for column in credentials.c if column.name != "digest"]
_FORGET_US = 30 * 86_400 * 1_000_000
"""Sessions and links that ended so long ago are removed; tokens stay listed."""


class Credentials:
    def __init__(self, database: Database, clock: Callable[[], int]) -> None:
        self._database = database
        self._clock = clock

    def now(self) -> int:
        return self._database.reading(lambda db: self._database.now(db, self._clock))

    def add(self, credential: Credential, digest: str) -> None:
        row = {**credential.model_dump(mode="json"), "digest": digest}

        def change(connection: Connection) -> None:
            old = credentials.c.expires_at < credential.created_at - _FORGET_US
            connection.execute(credentials.delete().where(credentials.c.kind != CredentialKind.TOKEN, old))
            known = select(credentials.c.credential_id).where(credentials.c.credential_id == row["credential_id"])
            if connection.execute(known).first() is None:  # or this is a repetition
                connection.execute(credentials.insert().values(row))

        self._database.writing(change)

    def find(self, credential_id: str) -> tuple[Credential, str] | None:
        """The credential and the digest of its secret."""
        wanted = select(*_COLUMNS, credentials.c.digest).where(credentials.c.credential_id == credential_id)
        row = self._database.reading(lambda db: db.execute(wanted).first())
        if row is None:
            return None
        values = dict(row._mapping)
        digest = values.pop("digest")
        return Credential(**values), digest

    def end(self, credential_id: str) -> bool:
        """End a credential; False if it had ended before. Of several callers one gets True."""

        def change(connection: Connection) -> bool:
            open_one = (credentials.c.credential_id == credential_id) & credentials.c.ended_at.is_(None)
            now = self._database.now(connection, self._clock)
            return bool(connection.execute(update(credentials).where(open_one).values(ended_at=now)).rowcount)

        return self._database.writing(change)

    def end_sessions(self, name: str) -> None:
        """End every browser session of a user."""

        def change(connection: Connection) -> None:
            theirs = (credentials.c.kind == CredentialKind.SESSION) & (credentials.c.name == name)
            now = self._database.now(connection, self._clock)
            connection.execute(update(credentials).where(theirs, credentials.c.ended_at.is_(None)).values(ended_at=now))

        self._database.writing(change)

    def of(self, kind: CredentialKind) -> list[Credential]:
        """All of that kind, oldest first."""
        wanted = select(*_COLUMNS).where(credentials.c.kind == kind).order_by(credentials.c.created_at)
        rows = self._database.reading(lambda db: db.execute(wanted).all())
        return [Credential(**row._mapping) for row in rows]

    def signing_key(self) -> bytes:
        """The key that signs links and form tokens; the same for every server of the store."""
        return bytes.fromhex(kept_value(self._database, _SIGNING_KEY, lambda: secrets.token_hex(32)))
