"""The proxy on the host, spoken to over its Unix socket by a client that may do anything."""

from __future__ import annotations

import contextlib
import http.server
import ipaddress
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox import Allowlist, Bounds, Credential, Proxy
from codepilot.sandbox.proxy.request import Malformed, answer_head, parse
from codepilot.sandbox.proxy.rules import is_public

SECRET = "s3cr3t-token-value"


class Handler(http.server.BaseHTTPRequestHandler):
    """Remembers what it was asked, on the host's side only."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.server.seen.append((self.command, self.path, list(self.headers.items())))  # type: ignore[attr-defined]
        if self.path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/")
            body = b""
        else:
            self.send_response(200)
            body = b"x" * int(self.path[5:]) if self.path.startswith("/big/") else b"hello " + self.path.encode()
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Keep-Alive", "timeout=5")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        body = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()  # closed over unread bytes, a connection takes the answer with it
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(("POST", self.path, list(self.headers.items())))  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        return


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str, list[tuple[str, str]]]] = []
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request: object, address: object) -> None:
        return


@pytest.fixture(scope="module")
def web() -> Iterator[Server]:
    with Server() as server:
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def tls_web(certificate: Path) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with Server(context) as server:
        yield server
        server.shutdown()


class Client:
    """Raw bytes to a proxy, and all that comes back."""

    def __init__(self, proxy: Proxy, timeout: float = 20) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        directory = os.open(proxy.path.parent, os.O_RDONLY)
        self.socket.connect(f"/proc/self/fd/{directory}/{proxy.path.name}")
        os.close(directory)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def rest(self) -> bytes:
        got = b""
        while chunk := self.socket.recv(1 << 16):
            got += chunk
        return got

    def until(self, mark: bytes) -> bytes:
        got = b""
        while mark not in got:
            chunk = self.socket.recv(1)
            assert chunk, got
            got += chunk
        return got


def ask(proxy: Proxy, data: bytes) -> bytes:
    with Client(proxy) as client:
        client.socket.sendall(data)
        return client.rest()


def get(url: str, *headers: str, method: str = "GET") -> bytes:
    host = url.removeprefix("http://").partition("/")[0]
    return "\r\n".join((f"{method} {url} HTTP/1.1", f"Host: {host}", *headers, "", "")).encode()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Proxy]]:
    made: list[Proxy] = []

    def make(*hosts: str, **options: Any) -> Proxy:
        made.append(Proxy(tmp_path / f"network-{len(made)}" / "socket", hosts, **options))
        return made[-1]

    yield make
    for proxy in made:
        proxy.close()


@pytest.fixture
def proxy(make: Callable[..., Proxy], web: Server) -> Proxy:
    return make(f"localhost:{web.server_port}")


# --- what is let through


def test_a_request_and_its_answer(proxy: Proxy, web: Server) -> None:
    message = ask(proxy, get(f"http://localhost:{web.server_port}/a?b=c", "X-Mine: 1", "Connection: X-Mine, close"))
    head, _, body = message.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200") and body == b"hello /a?b=c"
    assert b"Connection: close" in head and b"Keep-Alive" not in head
    headers = dict(web.seen[-1][2])
    assert headers["Host"] == f"localhost:{web.server_port}" and headers["Connection"] == "close"
    assert "X-Mine" not in headers


def test_bodies_pass_whole(proxy: Proxy, web: Server) -> None:
    url = f"http://localhost:{web.server_port}/post"
    body = os.urandom(300_000)
    sent = get(url, f"Content-Length: {len(body)}", method="POST") + body
    assert ask(proxy, sent).partition(b"\r\n\r\n")[2] == body
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:1], body[1:70_000], body[70_000:]))
    sent = get(url, "Transfer-Encoding: chunked", method="POST") + chunks + b"0\r\n\r\n"
    assert ask(proxy, sent).partition(b"\r\n\r\n")[2] == body
    assert len(ask(proxy, get(f"http://localhost:{web.server_port}/big/3000000"))) > 3_000_000


def test_a_client_that_waits_to_be_asked_for_its_body(proxy: Proxy, web: Server) -> None:
    with Client(proxy) as client:
        request = get(
            f"http://localhost:{web.server_port}/", "Expect: 100-continue", "Content-Length: 2", method="POST"
        )
        client.socket.sendall(request)
        assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        client.socket.sendall(b"ok")
        assert client.rest().endswith(b"\r\n\r\nok")


def test_an_answer_without_a_body_and_a_redirect_that_is_not_followed(proxy: Proxy, web: Server) -> None:
    base = f"http://localhost:{web.server_port}"
    assert ask(proxy, get(f"{base}/x", method="HEAD")).endswith(b"\r\n\r\n")
    message = ask(proxy, get(f"{base}/elsewhere"))
    assert b" 302 " in message and b"Location: http://169.254.169.254/" in message


def test_a_tunnel_carries_tls(make: Callable[..., Proxy], tls_web: Server, certificate: Path) -> None:
    proxy = make(f"localhost:{tls_web.server_port}")
    with Client(proxy) as client:
        client.socket.sendall(f"CONNECT localhost:{tls_web.server_port} HTTP/1.1\r\n\r\n".encode())
        assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200")
        context = ssl.create_default_context(cafile=os.fspath(certificate))
        with context.wrap_socket(client.socket, server_hostname="localhost") as secure:
            secure.sendall(b"GET /tls HTTP/1.0\r\n\r\n")
            got = b""
            while chunk := secure.recv(4096):
                got += chunk
    assert got.endswith(b"hello /tls")


def test_a_tunnel_passes_on_that_one_side_has_finished(make: Callable[..., Proxy]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Client(make(f"127.0.0.1:{port}")) as client:
            client.socket.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nearly".encode())
            client.socket.shutdown(socket.SHUT_WR)
            server, _ = listener.accept()
            with server:
                got = b""
                while chunk := server.recv(100):
                    got += chunk
                server.sendall(b"late")
            assert got == b"early" and client.rest().endswith(b"\r\n\r\nlate")


def test_twenty_at_once(proxy: Proxy, web: Server) -> None:
    request = get(f"http://localhost:{web.server_port}/big/50000")
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: ask(proxy, request), range(60)))
    assert all(answer.endswith(b"x" * 50_000) for answer in answers)


# --- what is not


def test_a_host_that_is_not_allowed_is_named_in_the_answer(make: Callable[..., Proxy]) -> None:
    proxy = make("files.example.org", "*.example.com")
    for request in (get("http://pypi.org/simple/"), b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n"):
        head, _, body = ask(proxy, request).partition(b"\r\n\r\n")
        sentence = b"pypi.org is not among the hosts this run may reach: files.example.org, *.example.com"
        assert head.startswith(b"HTTP/1.1 403 " + sentence) and body == sentence + b"\n"


@pytest.mark.parametrize(
    ("rule", "host", "port", "matches"),
    [
        ("example.org", "example.org", 443, True),
        ("example.org", "example.org", 80, True),
        ("example.org", "example.org", 22, False),
        ("example.org", "www.example.org", 443, False),
        ("example.org", "notexample.org", 443, False),
        ("example.org:8443", "example.org", 8443, True),
        ("example.org:8443", "example.org", 443, False),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "example.org.evil.net", 443, False),
        ("*.0.0.1", "127.0.0.1", 443, False),
    ],
)
def test_what_a_rule_matches(rule: str, host: str, port: int, matches: bool) -> None:
    assert bool(Allowlist([rule]).rules(host, port)) is matches


@pytest.mark.parametrize(
    "text", ["", "*", "*.", "a b", "http://a", "a:0", "a:70000", "a/b", "[::1]", "a\n", "UPPER.org"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(CodePilotError) as caught:
        Allowlist([text])
    assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS


INNER = """
    127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.100.100.200 0.0.0.0 224.0.0.1 255.255.255.255
    168.63.129.16 192.0.0.192 :: ::1 fe80::1 fd00:ec2::254 ff02::1 fec0::1
    ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::a9fe:a9fe 2002:7f00:1::
"""


@pytest.mark.parametrize("address", INNER.split())
def test_a_name_that_stands_for_an_inner_address_leads_nowhere(make: Callable[..., Proxy], address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    proxy = make("good.example.org", resolve=lambda host, port: [address])
    assert ask(proxy, b"CONNECT good.example.org:443 HTTP/1.1\r\n\r\n").startswith(
        b"HTTP/1.1 403 good.example.org is allowed, but its address is not one on the internet"
    )


def test_public_addresses_are_public() -> None:
    for address in ("93.184.216.34", "1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"):
        assert is_public(ipaddress.ip_address(address))


def test_a_name_is_resolved_once_and_what_was_judged_is_connected_to(make: Callable[..., Proxy], web: Server) -> None:
    answers = iter((["10.0.0.1", "127.0.0.1"], ["10.0.0.1"]))
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    proxy = make(f"web.localhost:{web.server_port}", resolve=resolve)
    assert b"hello" in ask(proxy, get(f"http://web.localhost:{web.server_port}/"))
    assert asked == ["web.localhost"]
    assert b" 403 " in ask(proxy, get(f"http://web.localhost:{web.server_port}/"))


@pytest.mark.parametrize("host", ["169.254.169.254", "127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1"])
def test_inner_hosts_are_not_reached_unless_named(make: Callable[..., Proxy], web: Server, host: str) -> None:
    proxy = make("example.org", "*.example.org", f"elsewhere.org:{web.server_port}")
    for port in (80, web.server_port):
        assert b" 403 " in ask(proxy, f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())


def test_a_number_that_stands_for_an_address_is_a_name_like_any_other(make: Callable[..., Proxy], web: Server) -> None:
    proxy = make(f"2130706433:{web.server_port}")
    assert b" 403 2130706433 is allowed, but" in ask(proxy, get(f"http://2130706433:{web.server_port}/"))


# --- what is not understood in one way

HOST = "Host: a.org\r\n"
SMUGGLED = [
    "GET / HTTP/1.1\r\nHost: a.org",
    "GET https://a.org/ HTTP/1.1\r\nHost: a.org",
    "GET http://a.org/ HTTP/1.1",
    "GET http://a.org/ HTTP/1.1\r\nHost: b.org",
    "GET http://a.org/ HTTP/1.1\r\nHost: a.org:81",
    "GET http://a.org/ HTTP/1.1\r\nHost: a.org\r\nHost: a.org",
    "GET http://a.org/ HTTP/1.1\r\nHost: a.org\r\nhost: b.org",
    "GET http://user@a.org/ HTTP/1.1\r\nHost: a.org",
    "GET http://a.org#b HTTP/1.1\r\nHost: a.org",
    "GET http://a.org\\@b.org/ HTTP/1.1\r\nHost: a.org",
    "GET  http://a.org/ HTTP/1.1\r\nHost: a.org",
    "GET http://a.org/ HTTP/2.0\r\nHost: a.org",
    "GET http://a.org/ HTTP/1.1\nHost: a.org",
    "GET http://a.org/ HTTP/1.1\r\nHost: a.org\nX: y",
    "GET http://a.org/ HTTP/1.1\r\nHost: a.org\rX: y",
    "GET http://a.org/ HTTP/1.1\r\nHost: a.org\r\n folded: y",
    "GET http://a.org/ HTTP/1.1\r\nHost : a.org",
    "GET http://a.org/ HTTP/1.1\r\nHost: a.org\r\nX: a\0b",
    "GET http://[::1]/ HTTP/1.1\r\nHost: [::1]",
    "GET http://a.org:99999/ HTTP/1.1\r\nHost: a.org:99999",
    f"POST http://a.org/ HTTP/1.1\r\n{HOST}Content-Length: 1\r\nTransfer-Encoding: chunked",
    f"POST http://a.org/ HTTP/1.1\r\n{HOST}Content-Length: 1\r\nContent-Length: 1",
    f"POST http://a.org/ HTTP/1.1\r\n{HOST}Content-Length: +1",
    f"POST http://a.org/ HTTP/1.1\r\n{HOST}Content-Length: 1, 1",
    f"POST http://a.org/ HTTP/1.1\r\n{HOST}Transfer-Encoding: gzip, chunked",
    f"POST http://a.org/ HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    f"POST http://a.org/ HTTP/1.1\r\n{HOST}Transfer_Encoding: chunked\r\nContent-Length: 1",
    f"POST http://a.org/ HTTP/1.0\r\n{HOST}Transfer-Encoding: chunked",
    "CONNECT a.org HTTP/1.1",
    "CONNECT a.org:443/x HTTP/1.1",
    "CONNECT a.org:443 HTTP/1.1\r\nContent-Length: 5",
]


@pytest.mark.parametrize("head", SMUGGLED)
def test_what_could_be_read_in_two_ways_is_refused(head: str) -> None:
    with pytest.raises(Malformed):
        parse(head.encode("latin-1"))


PIECES = st.sampled_from(
    [
        b"GET ",
        b"POST ",
        b"CONNECT ",
        b"http://a.org",
        b"a.org:443",
        b"/",
        b" HTTP/1.1",
        b" HTTP/1.0",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b":",
        b"Host: a.org",
        b"Content-Length: 3",
        b"Transfer-Encoding: chunked",
        b"\0",
        b"\xff",
        b"\t",
        b"Connection: X, Host",
        b"X: y",
        b"@",
        b"#",
        b"?",
    ]
)


@given(st.lists(PIECES | st.binary(max_size=6), max_size=14).map(b"".join))
@settings(max_examples=200)
def test_a_request_is_refused_or_sent_on_in_one_way(head: bytes) -> None:
    try:
        request = parse(head)
    except Malformed:
        return
    assert request.host == request.host.lower() and 0 < request.port < 65536
    if request.tunnel:
        return
    sent = request.head((("X-Key", "value"),))
    assert sent.endswith(b"\r\n\r\n") and sent.count(b"\r\n\r\n") == 1
    lines = sent[:-4].split(b"\r\n")
    assert all(re.fullmatch(rb"[^\r\n\0]+", line) for line in lines)
    names = [line.partition(b":")[0].lower() for line in lines[1:]]
    assert names.count(b"host") == names.count(b"connection") == names.count(b"x-key") == 1
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1


def test_garbage_is_answered_or_dropped_and_the_next_request_served(make: Callable[..., Proxy], web: Server) -> None:
    proxy = make(f"localhost:{web.server_port}", bounds=Bounds(head_sec=0.3))

    @given(st.binary(min_size=1, max_size=200) | st.lists(PIECES, max_size=9).map(b"".join))
    @settings(max_examples=40, deadline=None)
    def throw(data: bytes) -> None:
        with Client(proxy) as client:
            client.socket.sendall(data)
            client.socket.shutdown(socket.SHUT_WR)
            message = client.rest()
            assert message == b"" or re.match(rb"HTTP/1\.1 (400|403|502) ", message)

    throw()
    assert b"hello" in ask(proxy, get(f"http://localhost:{web.server_port}/"))


def test_nothing_behind_the_first_request_is_sent_on(proxy: Proxy, web: Server) -> None:
    url = f"http://localhost:{web.server_port}"
    before = len(web.seen)
    ask(proxy, get(f"{url}/one") + get(f"{url}/two"))
    ask(proxy, get(f"{url}/one", "Content-Length: 1", method="POST") + b"x" + get(f"{url}/two"))
    assert [path for _, path, _ in web.seen[before:]] == ["/one", "/one"]


@pytest.mark.parametrize(
    "body", [b"zz\r\n", b"5;ext=1\r\nhello\r\n0\r\n\r\n", b"2\r\nhello\r\n", b"0\r\nTrailer: x\r\n\r\n"]
)
def test_malformed_chunks_are_refused(proxy: Proxy, web: Server, body: bytes) -> None:
    sent = get(f"http://localhost:{web.server_port}/", "Transfer-Encoding: chunked", method="POST") + body
    assert ask(proxy, sent).startswith(b"HTTP/1.1 400 ")


@given(st.binary(max_size=80) | st.binary(max_size=40).map(lambda end: b"HTTP/1.1 200 OK\r\nX: y\r\n" + end))
def test_an_answer_is_refused_or_passed_on_as_one_head(head: bytes) -> None:
    try:
        status, text, length = answer_head(head)
    except Malformed:
        return
    assert 0 <= status <= 999 and (length is None or length >= 0)
    assert text.count(b"\r\n\r\n") == 1 and text.lower().count(b"\r\nconnection:") == 1


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000])
def test_a_server_that_speaks_something_else(make: Callable[..., Proxy], answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Client(make(f"127.0.0.1:{port}")) as client:
            client.socket.sendall(get(f"http://127.0.0.1:{port}/"))
            server, _ = listener.accept()
            with server:
                server.recv(1000)
                with contextlib.suppress(OSError):
                    server.sendall(answer)
            assert client.rest().startswith(b"HTTP/1.1 502 127.0.0.1 gives no answer")


# --- bounds


def test_slow_and_endless_heads_are_sent_away(make: Callable[..., Proxy], web: Server) -> None:
    proxy = make(f"localhost:{web.server_port}", bounds=Bounds(head_sec=0.3, connections=2, head_bytes=2000))
    slow = [Client(proxy) for _ in range(4)]
    for client in slow:
        client.socket.sendall(b"GET ")
    assert b"hello" in ask(proxy, get(f"http://localhost:{web.server_port}/"))
    for client in slow:
        with client:
            assert b"it comes too slowly" in client.rest()
    assert b"it is too long" in ask(proxy, b"GET http://a.org/" + b"a" * 5000)


def test_a_silent_tunnel_ends(make: Callable[..., Proxy]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with Client(make(f"127.0.0.1:{port}", bounds=Bounds(idle_sec=0.2))) as client:
            client.socket.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
            assert client.rest().startswith(b"HTTP/1.1 200")


def test_all_bytes_of_a_run_are_counted(make: Callable[..., Proxy], web: Server) -> None:
    proxy = make(f"localhost:{web.server_port}", bounds=Bounds(total_bytes=100_000))
    url = f"http://localhost:{web.server_port}/big"
    assert ask(proxy, get(f"{url}/50000")).endswith(b"x" * 50_000)
    assert len(ask(proxy, get(f"{url}/90000"))) < 70_000
    assert b" 403 this run has used up its 100000 bytes of network" in ask(proxy, get(f"{url}/1"))


def test_every_request_is_reported_at_a_bounded_rate(make: Callable[..., Proxy], web: Server) -> None:
    reported: list[tuple[object, ...]] = []
    bounds = Bounds(records=3, records_sec=3600)
    proxy = make(f"localhost:{web.server_port}", seen=lambda *one: reported.append(one), bounds=bounds)
    ask(proxy, get(f"http://localhost:{web.server_port}/"))
    ask(proxy, b"CONNECT pypi.org:443 HTTP/1.1\r\n\r\n")
    ask(proxy, b"what?\r\n\r\n")
    ask(proxy, get(f"http://localhost:{web.server_port}/"))
    assert [one[:4] for one in reported] == [
        ("localhost", web.server_port, "GET", True),
        ("pypi.org", 443, "CONNECT", False),
        ("?", 0, "?", False),
    ]
    assert "pypi.org is not among" in str(reported[1][4])


# --- credentials


@pytest.fixture
def credential(tls_web: Server, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Credential:
    monkeypatch.setenv("TEST_TOKEN", SECRET)
    monkeypatch.setenv("SSL_CERT_FILE", os.fspath(certificate))
    host = f"localhost:{tls_web.server_port}"
    return Credential(host, "Authorization", environment="TEST_TOKEN", prefix="Bearer ", environ=os.environ)


def test_a_credential_is_added_over_tls_in_place_of_the_clients(
    make: Callable[..., Proxy], tls_web: Server, credential: Credential
) -> None:
    reported: list[object] = []
    proxy = make(credential.host, credentials=[credential], seen=lambda *one: reported.append(one))
    message = ask(proxy, get(f"http://{credential.host}/secure", "authorization: mine", "Authorization_: x"))
    assert message.endswith(b"hello /secure")
    sent = [value for name, value in tls_web.seen[-1][2] if name.lower() == "authorization"]
    assert sent == [f"Bearer {SECRET}"]
    assert SECRET not in f"{message!r} {reported} {credential!r} {proxy!r} {vars(proxy)}"


def test_a_credential_goes_to_its_own_host_and_port_only(
    make: Callable[..., Proxy], web: Server, tls_web: Server, credential: Credential
) -> None:
    proxy = make(
        "localhost", f"localhost:{web.server_port}", f"localhost:{tls_web.server_port}", credentials=[credential]
    )
    ask(proxy, get(f"http://localhost:{web.server_port}/plain"))
    assert SECRET not in str(web.seen[-1])
    assert b" 403 TRACE is not let through" in ask(proxy, get(f"http://{credential.host}/", method="TRACE"))


def test_a_credential_allows_nothing_and_is_not_sent_to_an_impostor(
    make: Callable[..., Proxy], tls_web: Server, credential: Credential, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(tls_web.seen)
    assert b" 403 " in ask(make(credentials=[credential]), get(f"http://{credential.host}/"))
    monkeypatch.delenv("SSL_CERT_FILE")
    proxy = make(credential.host, credentials=[credential])
    assert b" 502 localhost is allowed, but no secure connection" in ask(proxy, get(f"http://{credential.host}/"))
    assert len(tls_web.seen) == before


@pytest.mark.parametrize("value", [None, "", "two\r\nX: lines", " "])
def test_a_credential_that_cannot_be_sent_is_marked_as_missing(
    make: Callable[..., Proxy], credential: Credential, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("TEST_TOKEN") if value is None else monkeypatch.setenv("TEST_TOKEN", value)
    message = ask(make(credential.host, credentials=[credential]), get(f"http://{credential.host}/"))
    assert message.startswith(b"HTTP/1.1 502 the credential for localhost")


def test_a_credential_is_for_the_secure_port_unless_it_names_another() -> None:
    credential = Credential(host="api.example.org", header="X-Key", environment="X")
    assert credential.port(80) == credential.port(443) == 443
    assert [port for port in (80, 443, 8080) if credential.matches("api.example.org", port)] == [80, 443]
    assert not credential.matches("www.api.example.org", 443)
    plain = Credential(host="api.example.org:8080", header="X-Key", environment="X", tls=False)
    assert plain.port(80) == 80 and plain.matches("api.example.org", 8080) and not plain.matches("api.example.org", 80)


def test_what_is_no_credential_is_refused() -> None:
    for fields in ({"host": "*.example.org", "header": "X-Key"}, {"host": "example.org", "header": "Host"}):
        with pytest.raises(CodePilotError):
            Credential(environment="X", **fields)


# --- beginning and end


def test_nothing_is_left_of_a_closed_proxy(make: Callable[..., Proxy], web: Server) -> None:
    proxy = make(f"localhost:{web.server_port}")
    assert proxy.path.parent.stat().st_mode & 0o777 == 0o700
    with Client(proxy) as idle, Client(proxy) as tunnel:
        tunnel.socket.sendall(f"CONNECT localhost:{web.server_port} HTTP/1.1\r\n\r\n".encode())
        tunnel.until(b"\r\n\r\n")
        proxy.close()
        assert idle.rest() == tunnel.rest() == b""
    assert not proxy.path.parent.exists()
    assert not [one for one in proxy._threads if one.is_alive()] and not proxy._accepting.is_alive()


def test_a_path_longer_than_a_socket_may_have(tmp_path: Path, web: Server) -> None:
    path = tmp_path / ("d" * 100) / ("e" * 100) / "socket"
    path.parent.mkdir(parents=True)
    path.write_text("left over")
    with Proxy(path, [f"localhost:{web.server_port}"]) as proxy:
        assert b"hello" in ask(proxy, get(f"http://localhost:{web.server_port}/"))
