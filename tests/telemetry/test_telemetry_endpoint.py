"""What scrapers and probes are answered."""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from codepilot.telemetry.endpoint import Endpoint, Health


@pytest.fixture
def address() -> Iterator[str]:
    with Endpoint("127.0.0.1", 0, lambda: Health(False, False, {"store": "away"})) as endpoint:
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


@pytest.mark.parametrize(
    ("path", "status"), [("/metrics", 200), ("/healthz", 503), ("/readyz", 503), ("/elsewhere", 404)]
)
def test_queries_are_ignored_and_head_has_no_body(address: str, path: str, status: int) -> None:
    reported, headers, _ = ask(address, "GET", path)
    assert reported == status
    assert ask(address, "GET", f"{path}?x=1&y=/metrics")[:2] == (status, headers)
    assert ask(address, "HEAD", f"{path}?x=1") == (status, headers, b"")
    for proxied in (f"http://x:9100{path}", f"HTTP://{address}{path}?at=http://y/metrics"):
        assert ask(address, "GET", proxied)[:2] == (status, headers)


def test_a_client_that_goes_away_is_not_reported(capfd: pytest.CaptureFixture[str]) -> None:
    begun: list[bool] = []

    def health() -> Health:
        begun.append(True)
        time.sleep(0.2)
        return Health(True, True, {"much": "x" * 1_000_000})

    with Endpoint("127.0.0.1", 0, health) as endpoint:
        host, port = endpoint.address.split(":")
        for _ in range(3):
            client = socket.create_connection((host, int(port)))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            while not begun:
                time.sleep(0.01)
            client.close()
            begun.clear()
        assert ask(endpoint.address, "GET", "/metrics")[0] == 200
        time.sleep(0.5)
    assert capfd.readouterr().err == ""


def test_what_goes_wrong_with_an_answer_is_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def health() -> Health:
        raise KeyError("nothing is known")

    with (
        caplog.at_level(logging.ERROR, "codepilot.telemetry.endpoint"),
        Endpoint("127.0.0.1", 0, health) as endpoint,
        pytest.raises(ConnectionError),
    ):
        ask(endpoint.address, "GET", "/healthz")
    deadline = time.monotonic() + 30
    while not caplog.records:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [KeyError]
    assert capfd.readouterr().err == ""


def test_a_process_that_drains_is_healthy_and_not_ready() -> None:
    with Endpoint("127.0.0.1", 0, lambda: Health(True, False, {"draining": True})) as endpoint:
        assert ask(endpoint.address, "GET", "/healthz")[0] == 200
        assert ask(endpoint.address, "GET", "/readyz")[0] == 503
