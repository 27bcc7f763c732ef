"""Which addresses a repository's URL leads to: those of this machine and of private networks are found and refused.

Names are resolved once. The addresses that were checked are the ones that git connects to: it is set to use them and
to follow no redirect.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Any

from codepilot.core.failures import CodePilotError, FailureKind

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_PORTS = {"https": 443, "http": 80, "ssh": 22, "git+ssh": 22, "git": 9418}
_HOST = r"(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])"
_PATH = r"[\w./~%+@=,-]*"
_URL = re.compile(
    rf"(?P<scheme>[A-Za-z][A-Za-z0-9+]*)://(?:[\w.-]+@)?{_HOST}(?::(?P<port>\d{{1,5}}))?/{_PATH}", re.ASCII
)
_SCP = re.compile(rf"[\w.-]+@{_HOST}:{_PATH}", re.ASCII)
_EMBEDDING = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
"""Networks of IPv6 addresses that stand for the IPv4 address in their last four bytes."""

_PRIVATE = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "fec0::/10", "3fff::/20"))
)
"""Networks that are not of the internet although Python 3.11 calls them global; two of them have metadata services."""


@dataclass(frozen=True)
class Pinned:
    """A repository's host with the addresses that were checked."""

    scheme: str
    host: str
    port: int
    addresses: tuple[str, ...]

    def git_options(self) -> tuple[str, ...]:
        """What makes git connect to these addresses alone."""
        options = ["-c", "http.followRedirects=false", "-c", "http.proxy="]
        if self.scheme in ("http", "https"):
            found = ",".join(f"[{one}]" if ":" in one else one for one in self.addresses)
            options += ["-c", f"http.curloptResolve={self.host}:{self.port}:{found}"]
        return tuple(options)

    def ssh_command(self) -> str:
        """What makes ssh connect to the first of them, with the host's own key, whatever its configuration says."""
        return (
            "ssh -F /dev/null -o BatchMode=yes -o ProxyCommand=none -o ProxyJump=none"
            f" -o HostName={self.addresses[0]} -o HostKeyAlias={self.host}"
        )


def check_public(url: str, allowed: tuple[str, ...] = ()) -> Pinned | None:
    """The addresses of a URL's host; refused unless all of them are public. None if the owner allows the host."""
    scheme, host, port = _target(url)
    if host in allowed or f"{host}:{port}" in allowed:
        return None
    if scheme not in ("https", "http", "ssh", "git+ssh"):
        raise _refused(f"repositories are not fetched by {scheme}://", "Use https:// or ssh://.")
    addresses = _resolved(host, port)
    for address in addresses:
        if not is_public(address):
            raise _refused(
                f"{host} is not a public host",
                "Ask the owner of the service to add it to [service] repository_hosts.",
            )
    return Pinned("ssh" if scheme == "git+ssh" else scheme, host, port, tuple(map(str, addresses)))


def is_public(address: IPAddress) -> bool:
    """True if the address is one of the internet, and stands for no other."""
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    private = any(address in network for network in _PRIVATE)
    return address.is_global and not (private or address.is_multicast or address.is_reserved)


def _inner(address: IPAddress) -> IPAddress | None:
    """The IPv4 address that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in _EMBEDDING):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _target(url: str) -> tuple[str, str, int]:
    """Scheme, host and port. The URL must be so plain that every program reads it alike."""
    match = _URL.fullmatch(url) or _SCP.fullmatch(url)
    if match is None or ".." in match["host"]:
        raise _refused("its URL has no host that can be checked", "Use a plain https:// or ssh:// URL.")
    found = match.groupdict()
    scheme, port = (found.get("scheme") or "ssh").lower(), found.get("port")
    return scheme, match["host"].strip("[]").lower(), int(port) if port else _PORTS.get(scheme, 0)


def _resolved(host: str, port: int) -> list[IPAddress]:
    try:
        found: list[tuple[Any, ...]] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(ipaddress.ip_address(one[4][0].partition("%")[0]) for one in found))
    except (OSError, ValueError, UnicodeError) as error:
        raise _refused(f"the host {host} is not known", "Check the URL.") from error


def _refused(message: str, next_action: str) -> CodePilotError:
    return CodePilotError(FailureKind.REPO_UNREACHABLE, f"The repository cannot be fetched: {message}.", next_action)
