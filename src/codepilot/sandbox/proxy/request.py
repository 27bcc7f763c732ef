"""Parses proxy requests strictly: anything that two parsers could read differently is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}) ([!-~]{1,16384}) HTTP/1\.([01])")
_VALUE = re.compile(r"[\t -~\x80-\xff]*")
_AUTHORITY = re.compile(r"((?:[A-Za-z0-9_-]{1,63}\.){0,126}[A-Za-z0-9_-]{1,63})\.?(?::([0-9]{1,5}))?")
_URI = re.compile(r"http://([^/?]*)(/[^#]*|\?[^#]*)?", re.IGNORECASE)
_DIGITS = re.compile(r"[0-9]{1,15}")
_HEADERS = 100

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


class Malformed(Exception):
    """A request that is not understood in exactly one way. Its text is shown to the client."""


@dataclass(frozen=True)
class Request:
    """One request. `path` is empty for CONNECT; `length` is None if the body comes in chunks."""

    method: str
    host: str
    port: int
    path: str
    version: int
    headers: tuple[tuple[str, str], ...]
    length: int | None

    @property
    def tunnel(self) -> bool:
        return self.method == "CONNECT"

    @property
    def expects_continue(self) -> bool:
        return self.version == 1 and any(name.lower() == "expect" for name, _ in self.headers)

    def head(self, extra: tuple[tuple[str, str], ...] = ()) -> bytes:
        """The request as it is sent on: for one host, one exchange, with `extra` in place of what the client sent."""
        dropped = HOP_BY_HOP | {"host", "content-length", "expect"} | _named(self.headers)
        replaced = {_folded(name) for name, _ in extra}
        kept = [(name, value) for name, value in self.headers if _folded(name) not in dropped | replaced]
        host = self.host if self.port == 80 else f"{self.host}:{self.port}"
        lines = [("Host", host), *kept, *self._framing(), *extra, ("Connection", "close")]
        text = f"{self.method} {self.path} HTTP/1.{self.version}\r\n" + "".join(f"{n}: {v}\r\n" for n, v in lines)
        return text.encode("latin-1") + b"\r\n"

    def _framing(self) -> list[tuple[str, str]]:
        if self.length is None:
            return [("Transfer-Encoding", "chunked")]
        if self.length == 0 and self.method not in ("POST", "PUT", "PATCH"):
            return []
        return [("Content-Length", str(self.length))]


def parse(head: bytes) -> Request:
    """The request of a head, given without its final empty line."""
    first, *rest = head.decode("latin-1").split("\r\n")
    found = _LINE.fullmatch(first)
    if found is None:
        raise Malformed("the request line is not one of HTTP/1.1")
    method, target, version = found[1], found[2], int(found[3])
    headers = _headers(rest)
    length = _length(headers, version)
    if method == "CONNECT":
        if length != 0:
            raise Malformed("a CONNECT has no body")
        host, port = authority(target)
        if port is None:
            raise Malformed("a CONNECT names a port")
        return Request(method, host, port, "", version, headers, 0)
    uri = _URI.fullmatch(target)
    if uri is None:
        raise Malformed("this is a proxy: ask for http://host/path, or CONNECT host:443 for TLS")
    host, port = authority(uri[1])
    _check_host((host, port or 80), headers, version)
    path = uri[2] or "/"
    return Request(method, host, port or 80, path if path[0] == "/" else "/" + path, version, headers, length)


def authority(text: str) -> tuple[str, int | None]:
    """Host and port. A user part, an IPv6 literal or a character beyond ASCII is no host here."""
    found = _AUTHORITY.fullmatch(text)
    if found is None or len(found[1]) > 253:
        raise Malformed("the host is not a name")
    port = int(found[2]) if found[2] else None
    if port is not None and not 0 < port < 65536:
        raise Malformed("the port is not one")
    return found[1].lower(), port


def _headers(lines: list[str]) -> tuple[tuple[str, str], ...]:
    if len(lines) > _HEADERS:
        raise Malformed("there are too many headers")
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Malformed("a header is malformed")
        headers.append((name, value.strip(" \t")))
    return tuple(headers)


def _all(headers: tuple[tuple[str, str], ...], wanted: str) -> list[str]:
    """Every value of a header, also where it is spelled as some servers read it too."""
    return [value for name, value in headers if _folded(name) == wanted]


def _length(headers: tuple[tuple[str, str], ...], version: int) -> int | None:
    lengths, encodings = _all(headers, "content-length"), _all(headers, "transfer-encoding")
    if (lengths and encodings) or len(lengths) > 1 or len(encodings) > 1:
        raise Malformed("the body's length is given twice")
    if encodings:
        if version == 0 or encodings[0].lower() != "chunked":
            raise Malformed("the transfer encoding is not understood")
        return None
    if lengths and not _DIGITS.fullmatch(lengths[0]):
        raise Malformed("the body's length is not a number")
    return int(lengths[0]) if lengths else 0


def _check_host(wanted: tuple[str, int], headers: tuple[tuple[str, str], ...], version: int) -> None:
    hosts = _all(headers, "host")
    if len(hosts) > 1 or (not hosts and version == 1):
        raise Malformed("there must be one Host header")
    if hosts:
        host, port = authority(hosts[0])
        if (host, port or 80) != wanted:
            raise Malformed("the Host header names another host than the URL")


def _named(headers: tuple[tuple[str, str], ...]) -> frozenset[str]:
    """The headers that the client declares to be for this connection only."""
    return frozenset(_folded(token.strip()) for value in _all(headers, "connection") for token in value.split(","))


def _folded(name: str) -> str:
    """Lower case with `_` as `-`: servers that pass headers as variables do not tell them apart."""
    return name.lower().replace("_", "-")


def chunk_size(line: bytes) -> int:
    """The size in the line before a chunk. Extensions are refused."""
    if not re.fullmatch(rb"[0-9A-Fa-f]{1,8}", line):
        raise Malformed("a chunk's size is malformed")
    return int(line, 16)


def answer_head(head: bytes) -> tuple[int, bytes, int | None]:
    """The status of a response, the head to pass on, and the length of the body if it is given."""
    first, *lines = head.decode("latin-1").split("\r\n")
    found = re.fullmatch(r"HTTP/1\.[01] ([0-9]{3})( [\t -~\x80-\xff]*)?", first)
    if found is None:
        raise Malformed("it is not an answer of HTTP/1.1")
    headers = _headers(lines)
    dropped = (HOP_BY_HOP - {"transfer-encoding"}) | _named(headers)
    kept = "".join(f"{name}: {value}\r\n" for name, value in headers if _folded(name) not in dropped)
    lengths = set(_all(headers, "content-length"))
    declared = lengths.pop() if len(lengths) == 1 and not _all(headers, "transfer-encoding") else ""
    length = int(declared) if _DIGITS.fullmatch(declared) else None
    return int(found[1]), f"{first}\r\n{kept}Connection: close\r\n\r\n".encode("latin-1"), length
