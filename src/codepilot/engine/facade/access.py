"""The part of the façade that a service needs for its users: tokens, sessions, login links and signatures."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Literal

from codepilot.core.access import (
    Credential,
    CredentialKind,
    IssuedCredential,
    Principal,
    Scope,
    digest_of,
    id_in,
    make_secret,
    matches,
    signature,
)
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.facade.base import FacadeBase

LINK_SEC = 15 * 60.0
MAX_DAYS = 3650.0


class Access(FacadeBase):
    def create_token(self, name: str, scope: Scope, days: float = 90.0) -> IssuedCredential:
        """A new token for programs. Its secret is shown once and cannot be had again."""
        if not 0 < days <= MAX_DAYS:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"A token cannot be valid for {days:g} days.",
                next_action=f"Give a number of days up to {MAX_DAYS:g}.",
            )
        return self._issue(CredentialKind.TOKEN, name, scope, days * 86_400)

    def tokens(self) -> list[Credential]:
        """Every token that was created, oldest first."""
        return self._runtime.store.credentials.of(CredentialKind.TOKEN)

    def revoke_token(self, named: str) -> Credential:
        """End a token, given its id or its name, with the user's browser sessions: requests are refused from now on."""
        wanted = [one for one in self.tokens() if named in (one.credential_id, one.name)]
        found = [one for one in wanted if one.ended_at is None] or wanted[:1]
        if len(found) != 1:
            how = "There is no token" if not found else "Several tokens are called"
            raise CodePilotError(
                FailureKind.INVALID_SPEC, f"{how} {named!r}.", next_action="`codepilot token list` shows their ids."
            )
        self._runtime.store.credentials.end(found[0].credential_id)
        self._runtime.store.credentials.end_sessions(found[0].name)
        return next(one for one in self.tokens() if one.credential_id == found[0].credential_id)

    def login_link(self, name: str = "owner", scope: Scope = Scope.ADMIN, seconds: float = LINK_SEC) -> str:
        """The secret of a link that logs one browser in, once."""
        return self._issue(CredentialKind.LINK, name, scope, seconds).secret

    def log_in(self, link: str, hours: float = 12.0) -> IssuedCredential | None:
        """A session for the secret of a login link; None if it is wrong, too old or used."""
        found = self._usable(link, CredentialKind.LINK)
        if found is None or not self._runtime.store.credentials.end(found.credential_id):
            return None
        return self._issue(CredentialKind.SESSION, found.name, found.scope, hours * 3600)

    def log_in_with_token(self, token: str, hours: float = 12.0) -> IssuedCredential | None:
        """A session for the bearer of a token; it ends with the token at the latest. None if the token is no good."""
        found = self._usable(token, CredentialKind.TOKEN)
        if found is None:
            return None
        left = (found.expires_at - self._runtime.store.credentials.now()) / 1e6
        return self._issue(CredentialKind.SESSION, found.name, found.scope, min(hours * 3600, left))

    def log_out(self, session: str) -> None:
        if (found := self._usable(session, CredentialKind.SESSION)) is not None:
            self._runtime.store.credentials.end(found.credential_id)

    def authenticate(self, secret: str, kind: CredentialKind) -> Principal | None:
        """Who a token or a session stands for; None if it is wrong, revoked or expired."""
        found = self._usable(secret, kind)
        if found is None:
            return None
        by: Literal["session", "token"] = "session" if kind is CredentialKind.SESSION else "token"
        return Principal(name=found.name, scope=found.scope, by=by, credential_id=found.credential_id)

    def sign(self, purpose: str, *parts: str) -> str:
        """A signature that only the servers of this store can make."""
        return signature(self._signing_key, purpose, *parts)

    def sign_until(self, purpose: str, seconds: float, *parts: str) -> tuple[int, str]:
        """A signature that expires, with the second at which it does."""
        expires = int(time.time() + seconds)
        return expires, self.sign(purpose, str(expires), *parts)

    def signed(self, given: str, purpose: str, expires: int, *parts: str) -> bool:
        """True if `given` is the signature of `sign_until`, and not expired."""
        return matches(given, self.sign(purpose, str(expires), *parts)) and time.time() < expires

    @cached_property
    def _signing_key(self) -> bytes:
        return self._runtime.store.credentials.signing_key()

    def _issue(self, kind: CredentialKind, name: str, scope: Scope, seconds: float) -> IssuedCredential:
        credentials = self._runtime.store.credentials
        credential_id, secret = make_secret(kind)
        now = credentials.now()
        try:
            made = Credential(
                credential_id=credential_id,
                kind=kind,
                name=name,
                scope=scope,
                created_at=now,
                expires_at=now + int(seconds * 1e6),
            )
        except ValueError as error:
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{name!r} cannot be the name of a user.",
                next_action="Use up to 100 letters, digits, spaces and any of . _ @ + -",
            ) from error
        credentials.add(made, digest_of(secret))
        return IssuedCredential(credential=made, secret=secret)

    def _usable(self, secret: str, kind: CredentialKind) -> Credential | None:
        credential_id = id_in(secret, kind)
        found = None if credential_id is None else self._runtime.store.credentials.find(credential_id)
        if found is None:
            return None
        credential, digest = found
        fits = matches(digest, digest_of(secret)) and credential.kind is kind
        return credential if fits and credential.usable(self._runtime.store.credentials.now()) else None
