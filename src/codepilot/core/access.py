"""Who may use a service: scopes, and the principal that a credential stands for. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field

from codepilot.core.contract import Contract

NAME_PATTERN = r"^[\w.@+-][\w.@+ -]{0,99}$"
_SECRET = re.compile(r"(cp[tsl])_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Scope(StrEnum):
    """What a principal may do, weakest first: read; also submit and control; also name files of the server."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def allows(self, needed: Self) -> bool:
        ladder = list(Scope)
        return ladder.index(self) >= ladder.index(needed)


class CredentialKind(StrEnum):
    TOKEN = "token"
    """For programs: sent as `Authorization: Bearer`."""
    SESSION = "session"
    """A browser's: kept in a cookie."""
    LINK = "link"
    """Logs a browser in, once."""


class Principal(Contract):
    """Who makes a request."""

    name: str
    scope: Scope
    by: Literal["token", "session", "proxy"]
    credential_id: str = ""
    """The token or the session; empty behind an identity proxy."""


class Credential(Contract):
    """A token, a session or a login link, without its secret."""

    credential_id: str
    kind: CredentialKind
    name: str = Field(pattern=NAME_PATTERN)
    scope: Scope
    created_at: int
    expires_at: int
    ended_at: int | None = None
    """When it was revoked, used or logged out."""

    def usable(self, now: int) -> bool:
        return self.ended_at is None and now < self.expires_at


class IssuedCredential(Contract):
    """A new credential with its secret, which is shown once and stored nowhere."""

    credential: Credential
    secret: str = Field(repr=False)


_MARKS = {CredentialKind.TOKEN: "cpt", CredentialKind.SESSION: "cps", CredentialKind.LINK: "cpl"}


def make_secret(kind: CredentialKind) -> tuple[str, str]:
    """A new credential's id, and its secret, which contains the id."""
    credential_id = secrets.token_hex(6)
    return credential_id, f"{_MARKS[kind]}_{credential_id}_{secrets.token_urlsafe(32)}"


def id_in(secret: str, kind: CredentialKind) -> str | None:
    """The id in a secret of that kind; None if it does not have the form of one."""
    match = _SECRET.fullmatch(secret)
    return match[2] if match and match[1] == _MARKS[kind] else None


def digest_of(secret: str) -> str:
    """What is stored of a secret. It has 256 random bits, so one round of a fast hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def signature(key: bytes, purpose: str, *parts: str) -> str:
    """A keyed signature over the parts; one purpose's signature is never good for another."""
    text = "\0".join((purpose, *parts))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def matches(one: str, other: str) -> bool:
    """True if two secrets or signatures are equal, in constant time."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
