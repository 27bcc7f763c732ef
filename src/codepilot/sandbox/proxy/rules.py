"""Which hosts code inside may reach, at which addresses, and the credentials that the proxy adds on the host."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.policy import HOST_PATTERN

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

DEFAULT_PORTS = frozenset({80, 443})
_SHOWN = 12
_NAME = re.compile(HOST_PATTERN)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_METADATA = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "192.0.0.192")))
"""Instance metadata of cloud providers at addresses that do not look private."""


@dataclass(frozen=True)
class Rule:
    """One allowed host: `example.org`, `*.example.org` (not example.org itself), either with `:port`."""

    name: str
    wildcard: bool = False
    port: int | None = None
    private: bool = False
    """True if the name may also stand for an address of a private network."""

    @classmethod
    def parse(cls, text: str, *, private: bool = False) -> Rule:
        name, _, port = text.partition(":")
        if len(text) > 259 or not _NAME.fullmatch(text) or (port and not 0 < int(port) < 65536):
            raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, f"{text!r} names no host that can be allowed")
        wildcard = name.startswith("*.")
        return cls(name[2:] if wildcard else name, wildcard, int(port) if port else None, private)

    def matches(self, host: str, port: int) -> bool:
        """True if the rule covers a host in lower case without a final dot. An address only matches itself."""
        if port != self.port and (self.port is not None or port not in DEFAULT_PORTS):
            return False
        if self.wildcard:
            return host.endswith("." + self.name) and literal(host) is None
        return host == self.name

    def permits(self, address: Address) -> bool:
        """True if a name of this rule may resolve to an address: only public ones, unless the rule names one."""
        if not self.wildcard:
            if (itself := literal(self.name)) is not None:
                return address == itself
            if self.name == "localhost" or self.name.endswith(".localhost"):
                return address.is_loopback
        return is_public(address) or (self.private and is_of_a_network(address))


class Allowlist:
    """The rules of one proxy."""

    def __init__(self, hosts: Sequence[str], *, private: bool = False) -> None:
        """With `private`, names may stand for addresses of private networks."""
        self._rules = tuple(Rule.parse(host, private=private) for host in dict.fromkeys(hosts))
        shown = [*dict.fromkeys(hosts)][:_SHOWN]
        self.summary = ", ".join(shown) + (", ..." if len(self._rules) > _SHOWN else "") if shown else "none"

    def rules(self, host: str, port: int) -> tuple[Rule, ...]:
        return tuple(rule for rule in self._rules if rule.matches(host, port))


def literal(host: str) -> Address | None:
    """The address that a host already is, if it is one."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """True if an address is on the internet: not this machine, its networks, a group, or a provider's metadata."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local or address.teredo is not None:
            return False
    special = address.is_multicast or address.is_reserved or address.is_link_local or address.is_loopback
    return address.is_global and not special and address not in _METADATA


def is_of_a_network(address: Address) -> bool:
    """True if an address can be another machine's: not this machine's own, nor a group's, nor a provider's metadata."""
    alone = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return not alone and address not in _METADATA and (inner is None or is_of_a_network(inner))


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, in the system's order."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
_OURS = frozenset({"host", "connection", "content-length", "transfer-encoding", "expect"})


@dataclass(frozen=True)
class Credential:
    """A header for requests to one host, with its value in the variable `environment` of `environ`.

    Inside, the host is asked with `http://`; towards it the proxy speaks TLS unless `tls` is off. A credential allows
    nothing: the host must be among the allowed ones as well.
    """

    host: str
    header: str
    environment: str
    prefix: str = ""
    tls: bool = True
    environ: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

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
        """The header's value; None if the environment has no valid one."""
        secret = self.environ.get(self.environment, "")
        return self.prefix + secret if _VALUE.fullmatch(secret) else None
