"""Where a bucket is and what opens it, from the environment: what makes no request is refused before one is sent.

The client library panics on an address that is no URI.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from codepilot.core.failures import CodePilotError, FailureKind

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_REGION = re.compile(r"[A-Za-z0-9._-]+")
_PLAIN = r"[A-Za-z0-9._~!$&'()*+,;=:%-]"
_ENDPOINT = re.compile(
    rf"(?P<scheme>https?)://(?:{_PLAIN}*@)?"
    r"(?P<server>(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{0,5}))?)"
    rf"(?:/(?:{_PLAIN}|[/@])*)?"
)
_LARGEST_PORT = 65_535
_ENTRIES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
_KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclass(frozen=True)
class Address:
    """A bucket, and the prefix of our keys in it; without an endpoint it is Amazon's."""

    bucket: str
    prefix: str
    endpoint: str
    region: str
    place: str
    """All that as messages name it: without the user and password that someone may have written into the endpoint."""

    @classmethod
    def read(cls, bucket: str, prefix: str, environ: Mapping[str, str]) -> Address:
        """What the environment says of a bucket; INVALID_SPEC if nothing could be sent there, or should not be."""
        _check_name(bucket, prefix)
        place = f"s3://{bucket}/{prefix}".rstrip("/")
        variable = "AWS_ENDPOINT_URL_S3" if environ.get("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL"
        endpoint, encrypted = environ.get(variable, ""), True
        if endpoint:
            scheme, host, server = _server(endpoint, variable)
            place += f" at {scheme}://{server}"
            encrypted = scheme == "https" or host in _LOOPBACK
        _check_keys(environ, place)
        if not encrypted and environ.get("AWS_ALLOW_HTTP", "").lower() not in ("1", "true", "yes"):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The artifact store {place} would be spoken to without encryption.",
                next_action="Use an https:// endpoint, or set AWS_ALLOW_HTTP=true.",
            )
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        if not _REGION.fullmatch(region):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{region!r} cannot be the region of the artifact store {place}.",
                next_action="Set AWS_REGION to a name like us-east-1.",
            )
        return cls(bucket, prefix, endpoint, region, place)


def _check_name(bucket: str, prefix: str) -> None:
    parts = prefix.split("/") if prefix else []
    if not _BUCKET.fullmatch(bucket):
        wrong = f"{bucket!r} cannot be the name of a bucket."
    elif not prefix.isprintable() or any(part in ("", ".", "..") for part in parts):
        wrong = f"{prefix!r} cannot be the prefix of keys in a bucket."
    else:
        return
    raise CodePilotError(
        FailureKind.INVALID_SPEC,
        wrong,
        next_action="Give s3://BUCKET or s3://BUCKET/PREFIX: a bucket of letters, digits, '.', '_' and '-', "
        "and a prefix without control characters, '//', '.' and '..'.",
    )


def _server(endpoint: str, variable: str) -> tuple[str, str, str]:
    """Scheme, host, and host with port of an endpoint; what it says otherwise may be a secret, and is not shown."""
    if not endpoint.startswith(("http://", "https://")):
        raise CodePilotError(FailureKind.INVALID_SPEC, f"{variable} must begin with https:// or http://.")
    found = _ENDPOINT.fullmatch(endpoint)
    host = found["host"].strip("[]").lower() if found else ""
    if found is None or not _is_port(found["port"]) or (":" in host and not _is_address(host)):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{variable} does not name a server.",
            next_action="Set it to https://HOST or https://HOST:PORT, with a port from 1 to 65535.",
        )
    return found["scheme"], host, found["server"]


def _is_port(text: str | None) -> bool:
    return not text or 0 < int(text) <= _LARGEST_PORT


def _is_address(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _check_keys(environ: Mapping[str, str], place: str) -> None:
    if not any(environ.get(name) for name in _ENTRIES):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"There are no credentials for the artifact store {place} in the environment.",
            next_action="Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
    for name in _KEYS:
        if not environ.get(name, "").isprintable():
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{name} has a line break or another control character in it.",
                next_action=f"Set {name} to the key alone, without a line break at its end.",
            )
