"""What scrapers and probes are answered."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from codepilot.telemetry.endpoint import Endpoint


@pytest.fixture
def address() -> Iterator[str]:
    with Endpoint("127.0.0.1", 0, lambda: (False, {"store": "away"})) as endpoint:
        yield endpoint.address


def ask(address: str, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection(address, timeout=60)
    connection.request(method, path)
    reply = connection.getresponse()
    headers = {name: value for name, value in reply.getheaders() if name not in ("Date", "Content-Length")}
    assert method != "GET" or reply.length == int(reply.headers["Content-Length"])
    body = reply.read()
    connection.close()
    return reply.status, headers, body


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/healthz", 503), ("/elsewhere", 404)])
def test_queries_are_ignored_and_head_has_no_body(address: str, path: str, status: int) -> None:
    told, headers, _ = ask(address, "GET", path)
    assert told == status
    assert ask(address, "GET", f"{path}?x=1&y=/metrics")[:2] == (status, headers)
    assert ask(address, "HEAD", f"{path}?x=1") == (status, headers, b"")
