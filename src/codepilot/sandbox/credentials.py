"""Secrets that the proxy adds to requests on the host, so that they never enter a sandbox."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.allowlist import Rule

_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "expect"})


@dataclass(frozen=True)
class Credential:
    """A header for requests to one host. Its value is read from the host's environment each time it is used.

    Inside, the host is asked with `http://`; towards it the proxy speaks TLS unless `tls` is off. A credential allows
    nothing: the host must be among the allowed ones as well.
    """

    host: str
    header: str
    environment: str
    prefix: str = ""
    tls: bool = True

    def __post_init__(self) -> None:
        if Rule.parse(self.host).wildcard:
            raise CodePilotError(FailureKind.INVALID_SPEC, f"a credential belongs to one host, not to {self.host}")
        if not _HEADER.fullmatch(self.header) or self.header.lower() in _OURS:
            raise CodePilotError(FailureKind.INVALID_SPEC, f"{self.header!r} is no header for a credential")

    def port(self, asked: int) -> int:
        """The port to speak to for a request that names `asked`."""
        return 443 if self.tls and asked == 80 else asked

    def matches(self, host: str, asked: int) -> bool:
        return Rule.parse(self.host).matches(host, self.port(asked))

    def value(self) -> str | None:
        """What to send; None if the environment holds nothing that can be sent."""
        secret = os.environ.get(self.environment, "")
        return self.prefix + secret if _VALUE.fullmatch(secret) else None
