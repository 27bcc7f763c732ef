"""The way out as code inside sees it: loopback, variables, and nothing else; commands are what they are without it."""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import os
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox import CommandResult, Credential, Kernel, Limits, Proxy, Sandbox, SandboxSpec
from codepilot.sandbox.limits.tree import readable
from codepilot.sandbox.standalone import bridge

LIMITS = Limits(wall_sec=60)
SECRET = "s3cr3t-token-value"
THROUGH = {"NO_PROXY": "", "no_proxy": ""}
"""Servers of these tests are on the host's loopback; without this, clients inside would look for them on their own."""


class Web(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tokens: list[str | None] = []
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request: object, address: object) -> None:
        return


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Web)
        self.server.tokens.append(self.headers.get("Authorization"))
        body = b"hello " + self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        return


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with Web() as server:
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def tls_web(certificate: Path) -> Iterator[Web]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with Web(context) as server:
        yield server
        server.shutdown()


@pytest.fixture
def proxy(tree: Path, web: Web, tls_web: Web) -> Iterator[Proxy]:
    with Proxy(
        tree.parent / "network" / "socket", [f"localhost:{web.server_port}", f"localhost:{tls_web.server_port}"]
    ) as proxy:
        yield proxy


Inside = Callable[..., CommandResult]


@pytest.fixture
def inside(bubblewrap: Sandbox, view: SandboxSpec, proxy: Proxy) -> Inside:
    def run(*argv: str, stdin: bytes = b"", **env: str) -> CommandResult:
        shown = replace(view, proxy=proxy.path, env={**THROUGH, **env})
        return bubblewrap.run(argv, shown, LIMITS, stdin)

    return run


def python(code: str) -> tuple[str, ...]:
    return ("/usr/bin/python3", "-I", "-c", code)


FETCH = "import sys, urllib.request as u\nprint(u.urlopen({url!r}, timeout=20).read().decode())"


def test_python_reaches_an_allowed_host_and_is_refused_others(inside: Inside, web: Web) -> None:
    done = inside(*python(FETCH.format(url=f"http://localhost:{web.server_port}/simple/")))
    assert done.stdout == b"hello /simple/\n", done.stderr
    for url in ("http://pypi.org/simple/", "https://pypi.org/simple/"):
        done = inside(*python(FETCH.format(url=url)))
        assert b"403" in done.stderr and b"pypi.org is not among the hosts this run may reach" in done.stderr


def test_tls_reaches_the_server_itself(inside: Inside, tls_web: Web, tree: Path, certificate: Path) -> None:
    shutil.copy(certificate, tree / "cert.pem")
    url = f"https://localhost:{tls_web.server_port}/tls"
    code = f"""
import ssl, urllib.request
context = ssl.create_default_context(cafile="cert.pem")
print(urllib.request.urlopen({url!r}, context=context).read())
"""
    done = inside(*python(code))
    assert b"hello /tls" in done.stdout, done.stderr


@pytest.mark.skipif(shutil.which("curl") is None and os.environ.get("CI") != "true", reason="curl is not installed")
def test_curl_reaches_an_allowed_host_both_ways(
    inside: Inside, web: Web, tls_web: Web, tree: Path, certificate: Path
) -> None:
    shutil.copy(certificate, tree / "cert.pem")
    urls = f"http://localhost:{web.server_port}/a https://localhost:{tls_web.server_port}/b"
    done = inside("/bin/sh", "-c", f"curl -sS --cacert cert.pem {urls}; curl -sS https://pypi.org/")
    assert done.stdout == b"hello /ahello /b" and done.exit_code == 56 and b"403" in done.stderr


def test_there_is_no_other_way_out(inside: Inside, web: Web) -> None:
    """Not to the host's loopback, not to an address, not by name, and not past the allowlist over the socket."""
    code = f"""
import socket
for where in (("127.0.0.1", {web.server_port}), ("192.0.2.1", 80), ("169.254.169.254", 80)):
    try:
        socket.create_connection(where, 2)
        print("reached", where)
    except OSError as error:
        print("no")
try:
    print("resolved", socket.getaddrinfo("example.org", 80))
except OSError:
    print("no")
for target in ("169.254.169.254:80", "example.org:443", "127.0.0.1:{web.server_port}"):
    s = socket.socket(socket.AF_UNIX)
    s.connect("/run/codepilot/proxy.sock")
    s.sendall(f"CONNECT {{target}} HTTP/1.1\\r\\n\\r\\n".encode())
    print(s.recv(13).decode())
"""
    done = inside(*python(code))
    assert done.stdout.decode().splitlines() == ["no"] * 4 + ["HTTP/1.1 403 "] * 3, done.stderr


def test_the_socket_inside_can_only_be_connected_to(inside: Inside, proxy: Proxy) -> None:
    script = "cd /run/codepilot; rm proxy.sock; mv proxy.sock x; chmod 777 proxy.sock; touch x; ls"
    done = inside("/bin/sh", "-c", script)
    assert done.stdout.split() == [b"bridge.py", b"proxy.sock"]
    assert proxy.path.stat().st_mode & 0o077 == 0 or proxy.path.parent.stat().st_mode & 0o077 == 0


def test_without_a_proxy_there_is_no_network(bubblewrap: Sandbox, view: SandboxSpec) -> None:
    done = bubblewrap.run(("/bin/sh", "-c", "ls /run/codepilot; env | grep -i _proxy="), view, LIMITS)
    assert done.stdout == b""


def test_a_credential_never_enters(
    bubblewrap: Sandbox,
    view: SandboxSpec,
    tree: Path,
    tls_web: Web,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_TOKEN", SECRET)
    monkeypatch.setenv("SSL_CERT_FILE", os.fspath(certificate))
    host = f"localhost:{tls_web.server_port}"
    credential = Credential(host, "Authorization", environment="TEST_TOKEN", prefix="Bearer ", environ=os.environ)
    script = f"""
curl -sS http://{host}/api || exit 1
cat /proc/*/environ /proc/*/cmdline /proc/*/maps 2>/dev/null | tr '\\0' '\\n' | grep -c [s]{SECRET[1:]}
grep -rs [s]{SECRET[1:]} /run /tmp . | wc -l
"""
    with Proxy(tree.parent / "network" / "socket", [host], credentials=[credential]) as proxy:
        done = bubblewrap.run(("/bin/sh", "-c", script), replace(view, proxy=proxy.path, env=THROUGH), LIMITS)
    assert done.stdout.split() == [b"hello", b"/api0", b"0"], done.stderr
    assert tls_web.tokens[-1] == f"Bearer {SECRET}"


def test_twenty_connections_at_once(inside: Inside, web: Web) -> None:
    code = f"""
import concurrent.futures, urllib.request
get = lambda n: urllib.request.urlopen("http://localhost:{web.server_port}/%d" % n, timeout=30).read().decode()
with concurrent.futures.ThreadPoolExecutor(20) as pool:
    print(list(pool.map(get, range(40))) == ["hello /%d" % n for n in range(40)])
"""
    assert inside(*python(code)).stdout == b"True\n"


def test_a_server_inside_is_reached_without_the_proxy(bubblewrap: Sandbox, view: SandboxSpec, proxy: Proxy) -> None:
    code = """
import http.server, threading, urllib.request
server = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen("http://localhost:%d/" % server.server_port).status)
"""
    assert bubblewrap.run(python(code), replace(view, proxy=proxy.path), LIMITS).stdout == b"200\n"


def test_a_large_transfer_both_ways_is_whole(bubblewrap: Sandbox, view: SandboxSpec, tree: Path) -> None:
    """Through a tunnel whose far end sends back what it gets, while both directions are full."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def echo() -> None:
            connection, _ = listener.accept()
            with connection:
                while chunk := connection.recv(1 << 16):
                    connection.sendall(chunk)

        threading.Thread(target=echo, daemon=True).start()
        code = f"""
import hashlib, os, socket, threading
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n")
head = b""
while not head.endswith(b"\\r\\n\\r\\n"):
    head += s.recv(1)
data = os.urandom(1 << 20) * 16
def send():
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=send).start()
got = bytearray()
while chunk := s.recv(1 << 16):
    got += chunk
print(got == data)
"""
        with Proxy(tree.parent / "network" / "socket", [f"127.0.0.1:{port}"]) as proxy:
            done = bubblewrap.run(python(code), replace(view, proxy=proxy.path), LIMITS)
    assert done.stdout == b"True\n", done.stderr


# --- a command is what it is without the bridge


@pytest.mark.parametrize(
    ("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143), ("exec /nowhere", 127)]
)
def test_exit_codes_are_the_commands_own(inside: Inside, script: str, code: int) -> None:
    assert inside("/bin/sh", "-c", script).exit_code == code


def test_a_command_that_cannot_be_started(inside: Inside, tree: Path) -> None:
    (tree / "text").write_text("no program")
    assert inside("/nowhere").exit_code == inside("nowhere").exit_code == 127
    assert inside("./text").exit_code == 126


LIBRARYS_OWN = 0b11 << 31
"""Signals 32 and 33, which the C library ignores for whatever it spawns after having used them itself."""


def test_pipes_signals_children_and_variables_are_the_commands_own(inside: Inside) -> None:
    assert inside("/bin/cat", stdin=b"in and out").stdout == b"in and out"
    code = """
import os, signal, sys
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, os.getpid() == 2)
print(sorted(os.listdir("/proc/self/fd")))
try:
    os.wait()
except ChildProcessError:
    print("no child")
"""
    done = inside(*python(code))
    assert done.stdout.decode().splitlines() == ["True True", "['0', '1', '2', '3']", "no child"], done.stderr
    shell = inside("/bin/sh", "-c", "grep SigIgn /proc/$$/status; env | grep ^L | sort", LANG="C")
    message, ignored, *variables = shell.stdout.split()
    assert (message, variables) == (b"SigIgn:", [b"LANG=C", b"LOGNAME=codepilot"])
    assert int(ignored, 16) & ~LIBRARYS_OWN == 0


def test_nothing_outlives_the_command(inside: Inside, marked: Callable[[str], list[int]], web: Web) -> None:
    mark = f"bridge-{os.getpid()}-{time.monotonic_ns()}"
    done = inside(*python(FETCH.format(url=f"http://localhost:{web.server_port}/")), MARK=mark)
    assert done.status == "ok" and marked(mark) == []


def test_a_long_lived_process_has_the_way_too(bubblewrap: Sandbox, view: SandboxSpec, proxy: Proxy, web: Web) -> None:
    shown = replace(view, proxy=proxy.path, env=THROUGH)
    url = f"http://localhost:{web.server_port}/started"
    process = bubblewrap.start(python(FETCH.format(url=url) + "\nsys.stdin.read()"), shown, LIMITS)
    try:
        process.stdin.close()
        assert process.stdout.read() == b"hello /started\n"
        assert process.wait(20) == 0
    finally:
        process.kill()


def test_the_kernel_has_the_way_and_can_be_interrupted(
    bubblewrap: Sandbox, view: SandboxSpec, proxy: Proxy, web: Web
) -> None:
    kernel = Kernel(bubblewrap, replace(view, proxy=proxy.path, env=THROUGH), LIMITS)
    try:
        fetch = f"import urllib.request\nurllib.request.urlopen('http://localhost:{web.server_port}/k').read()"
        assert kernel.run(fetch).value == "b'hello /k'"
        assert kernel.run("import time\ntime.sleep(60)", 0.2).status == "timeout"
        again = kernel.run(fetch)
        assert again.value == "b'hello /k'" and not again.kernel_restarted
    finally:
        kernel.stop()


# --- where it cannot be kept


@pytest.mark.parametrize("name", ["landlock", "none"])
def test_levels_without_a_network_of_their_own_refuse(
    name: str, request: pytest.FixtureRequest, view: SandboxSpec, proxy: Proxy
) -> None:
    from codepilot.sandbox import choose

    sandbox = request.getfixturevalue("landlock") if name == "landlock" else choose("none")
    for begin in (sandbox.run, sandbox.start):
        with pytest.raises(CodePilotError, match="cannot make a proxy the only way out") as caught:
            begin(("/bin/true",), replace(view, proxy=proxy.path), LIMITS)
        assert caught.value.kind is FailureKind.SANDBOX_UNAVAILABLE


def test_a_proxy_next_to_the_hosts_network_or_one_that_is_gone_is_refused(
    bubblewrap: Sandbox, view: SandboxSpec, proxy: Proxy
) -> None:
    with pytest.raises(CodePilotError) as caught:
        bubblewrap.run(("/bin/true",), replace(view, proxy=proxy.path, network=True), LIMITS)
    assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS
    proxy.close()
    with pytest.raises(CodePilotError) as caught:
        bubblewrap.run(("/bin/true",), replace(view, proxy=proxy.path), LIMITS)
    assert caught.value.kind is FailureKind.SANDBOX_UNAVAILABLE


def test_the_carrier_holds_nothing_that_was_open(tmp_path: Path) -> None:
    """However large its number; the command has ended, so that anyone who still holds it is the carrier."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2000)), hard))
    read, write = os.pipe()
    high = fcntl.fcntl(write, fcntl.F_DUPFD, 1500)
    os.close(write)
    socket_path = os.fspath(tmp_path / "none")
    link = f"0={socket_path}"
    argv = [sys.executable, bridge.__file__, "0", link, "/bin/true"]
    try:
        subprocess.run(argv, pass_fds=[high], check=True, timeout=20)
        os.close(high)
        assert readable([read], 20) == [read] and os.read(read, 1) == b""
    finally:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for found in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if link.encode() in found.read_bytes().split(b"\0"):
                    os.kill(int(found.parent.name), signal.SIGKILL)
