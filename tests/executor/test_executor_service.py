"""The service seen from outside: who may ask, what it refuses, and how much it takes."""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import MountSpec, RunCode, RunCommand, StartProcess
from codepilot.workspace import Entry, ObjectStore

TOKEN = "a-token-for-tests-0123456789"
JSON = "application/json"
NAME = "s-1"


def ask(url: str, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One plain request; a body that is no text is sent as JSON."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    given = {"Authorization": f"Bearer {TOKEN}", "Content-Type": JSON, **headers}
    sent = body if isinstance(body, (bytes, type(None))) or hasattr(body, "__next__") else json.dumps(body).encode()
    with contextlib.closing(connection):
        connection.request(method, path, sent, {name.replace("_", "-"): value for name, value in given.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def operations(url: str) -> list[tuple[str, str]]:
    document = json.loads(ask(url, "GET", "/openapi.json")[2])
    return [(method.upper(), path) for path, methods in document["paths"].items() for method in methods]


def test_without_the_token_nothing_is_reported(service):
    found = operations(service.url)
    assert len(found) >= 24
    for method, path in found:
        path = path.format(process="0" * 32, tree="0" * 64, workspace="w", snapshot="0" * 64)
        for wrong in ("", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"):
            status, headers, body = ask(service.url, method, path, {}, Authorization=wrong)
            if path in ("/healthz", "/openapi.json"):
                assert status == 200
                continue
            assert (status, headers["www-authenticate"]) == (401, "Bearer"), path
            assert json.loads(body)["kind"] == "tool_permission_denied"
    assert ask(service.url, "GET", "/about")[0] == 200
    assert TOKEN not in service.log.read_text()
    assert TOKEN not in Path(f"/proc/{service.popen.pid}/cmdline").read_text()


def test_the_client_says_which_variable_holds_the_token(service):
    with pytest.raises(CodePilotError) as caught:
        _ = service.client("another token").level
    assert caught.value.kind is FailureKind.TOOL_PERMISSION_DENIED
    assert "CODEPILOT_EXECUTOR_TOKEN" in caught.value.failure.next_action


def test_a_request_keeps_its_id(service):
    assert ask(service.url, "GET", "/about", X_Request_Id="abc-1.2_3")[1]["x-request-id"] == "abc-1.2_3"
    made = {ask(service.url, "GET", "/about", X_Request_Id=odd)[1]["x-request-id"] for odd in ("", "a b", "x" * 200)}
    assert len(made) == 3 and not made & {"", "a b", "x" * 200}
    logged = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert any(line.get("request_id") == "abc-1.2_3" and line["status"] == 200 for line in logged)


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status"),
    [
        ("POST", "/workspace/run_code", {"workspace": "unknown", "code": "1"}, JSON, 404),
        ("POST", "/workspace/run_code", {"workspace": "../x", "code": "1"}, JSON, 422),
        ("POST", "/workspace/run_code", {"workspace": "w", "code": 1}, JSON, 422),
        ("POST", "/workspace/run_code", {"workspace": "w", "code": "1", "more": 1}, JSON, 422),
        ("POST", "/workspace/run_code", b"{", JSON, 422),
        ("POST", "/workspace/run_code", b"", JSON, 422),
        ("POST", "/workspace/run_code", b"\xff", JSON, 422),
        ("POST", "/workspace/run_code", {"workspace": "w", "code": "1"}, "text/plain", 415),
        ("POST", "/workspace/create", {"workspace": "w", "tree": "0" * 64}, JSON, 409),
        ("POST", "/workspace/create", {"workspace": "w", "tree": "0" * 64, "carried": [".git/config"]}, JSON, 403),
        ("POST", "/workspace/create", {"workspace": "w", "tree": "0" * 64, "carried": ["sub/.GIT/x"]}, JSON, 403),
        ("POST", "/workspace/create", {"workspace": "w", "tree": "0" * 64, "carried": ["git~1"]}, JSON, 403),
        ("POST", "/workspace/nothing", {}, JSON, 404),
        ("GET", "/workspace/run_code", None, JSON, 405),
        ("GET", f"/process/{'0' * 32}", None, JSON, 404),
        ("GET", "/process/x", None, JSON, 400),
        ("GET", "/base/x", None, JSON, 400),
        ("PUT", f"/base/{'0' * 64}", b"rubbish", "application/octet-stream", 409),
    ],
)
def test_a_mistake_has_a_status_and_a_reason(service, method, path, body, kind, status):
    got, headers, message = ask(service.url, method, path, body, Content_Type=kind)
    assert (got, headers["content-type"]) == (status, JSON)
    reported = json.loads(message)
    assert set(reported) == {"kind", "message", "next_action", "details"}
    assert reported["message"] and reported["next_action"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("DELETE", "/about", 405)])
def test_what_goes_astray_has_an_id_is_logged_and_counted(service, method, path, status):
    got, headers, _ = ask(service.url, method, path, X_Request_Id=f"astray-{status}")
    assert (got, headers["x-request-id"]) == (status, f"astray-{status}")
    assert f"astray-{status}" in service.log.read_text()
    counted = f'codepilot_executor_requests_total{{route="none",status="{status}"}}'
    assert counted.encode() in ask(service.url, "GET", "/metrics")[2]
    assert ask(service.url, method, path, Authorization="")[0] == 401


@pytest.mark.parametrize("line", ["GET /healthz", "GET /about", "POST /nowhere", "PUT /base/x", "POST /process/x/kill"])
def test_a_body_that_nobody_reads_ends_the_connection(service, line):
    """It could go on for ever, byte by byte."""
    head = f"{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000000\r\n\r\nabc"
    received = _raw(service.url, head.encode())
    assert received.startswith(b"HTTP/1.1 ") and b"connection: close" in received.lower()


def test_only_what_the_operator_allows_is_shown_inside(service, request_for):
    client = service.client()
    for source in ("/etc", "/", "relative", str(service.home / ".." / ".." / ".." / "..")):
        with pytest.raises(CodePilotError) as caught:
            client.create(request_for(NAME, mounts=(MountSpec(source=source, target="/srv/x"),)))
        assert caught.value.kind is FailureKind.TOOL_PERMISSION_DENIED
        assert "--allow-mount" in caught.value.failure.next_action
    with pytest.raises(CodePilotError) as caught:
        client.create(request_for(NAME, hosts=("example.com",)))
    assert caught.value.kind is FailureKind.TOOL_PERMISSION_DENIED
    assert "--allow-host" in caught.value.failure.next_action


def test_a_link_does_not_lead_a_mount_out(service, request_for, tmp_path):
    (tmp_path / "link").symlink_to("/etc")
    with pytest.raises(CodePilotError) as caught:
        service.client().create(request_for(NAME, mounts=(MountSpec(source=str(tmp_path / "link"), target="/srv/x"),)))
    assert caught.value.kind is FailureKind.TOOL_PERMISSION_DENIED


def test_what_it_counts_can_be_scraped(service):
    ask(service.url, "GET", "/about")
    status, headers, text = ask(service.url, "GET", "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'codepilot_executor_requests_total{route="/about",status="200"}' in text
    assert b"codepilot_executor_request_duration_seconds_bucket" in text
    for queue in ("runs", "files", "uploads"):
        for gauge in ("queue_depth", "in_flight"):
            assert f'codepilot_executor_{gauge}{{queue="{queue}"}} 0.0\n'.encode() in text
    assert b"\ncodepilot_executor_workspaces " in text


def test_a_tree_that_is_there_is_not_sent_again(service, base, tmp_path, request_for):
    client = service.client()
    with ObjectStore.open(base[0]) as store:
        large = Entry("100644", store.write_blob(bytes(range(256)) * 4096))
        first = store.write_tree({**store.read_tree(base[1]), "large": large})
        second = store.write_tree({**store.read_tree(first), "new": Entry("100644", store.write_blob(b"new"))})
        whole = sum(map(len, store.export(second)))
        fresh = sum(map(len, store.export(second, (first,))))
    assert fresh < whole / 2
    for number, tree in enumerate((first, second, second)):
        request = request_for(f"t-{number}").model_copy(update={"tree": tree})
        assert client.create(request).created
        assert json.loads(ask(service.url, "GET", f"/base/{tree}")[2])["present"]
    assert client.read_file("t-1", "new") == b"new"
    for number in range(3):
        client.delete(f"t-{number}")
    puts = [line for line in service.log.read_text().splitlines() if '"PUT"' in line and '"status": 200' in line]
    assert len(puts) >= 2


def test_fifty_callers_lose_no_request_and_mix_no_workspaces(service, request_for):
    """Ten workspaces with five callers each; every caller counts in its own, and sees its own alone."""
    callers, spaces, rounds = 50, 10, 3
    client = service.client()
    for space in range(spaces):
        client.create(request_for(f"c-{space}"))
        client.run_code(RunCode(workspace=f"c-{space}", code=f"mine, total = {space}, 0"))
    seen: dict[int, list[str | None]] = {space: [] for space in range(spaces)}
    problems: list[Exception] = []
    lock = threading.Lock()

    def call(number: int) -> None:
        space = number % spaces
        try:
            for _ in range(rounds):
                result = client.run_code(RunCode(workspace=f"c-{space}", code="total += 1; (mine, total)"))
                with lock:
                    seen[space].append(result.value)
        except CodePilotError as error:
            problems.append(error)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    each = callers // spaces * rounds
    for space in range(spaces):
        assert sorted(seen[space], key=str) == sorted((f"({space}, {one})" for one in range(1, each + 1)), key=str)
        client.delete(f"c-{space}")
    client.close()


def test_a_process_is_written_to_and_read_once_whatever_is_repeated(service, request_for):
    client = service.client()
    client.create(request_for(NAME))
    name, raw = "ab" * 16, "application/octet-stream"
    start = {"workspace": NAME, "argv": ["/bin/cat"], "process": name}
    assert [ask(service.url, "POST", "/workspace/start_process", start)[0] for _ in range(2)] == [200, 200]
    other = {**start, "argv": ["/bin/true"]}
    assert ask(service.url, "POST", "/workspace/start_process", other)[0] == 409
    write = f"/process/{name}/write"
    for _ in range(2):
        assert ask(service.url, "POST", f"{write}?offset=0", b"abc", Content_Type=raw)[2] == b'{"received":3}'
    assert ask(service.url, "POST", f"{write}?offset=2", b"cd", Content_Type=raw)[2] == b'{"received":4}'
    assert ask(service.url, "POST", f"{write}?offset=9", b"x", Content_Type=raw)[0] == 409
    assert ask(service.url, "POST", f"{write}?offset=4&end=true", b"", Content_Type=raw)[0] == 200
    assert [ask(service.url, "GET", f"/process/{name}/read?offset={offset}")[2] for offset in (0, 2, 4)] == [
        b"abcd",
        b"cd",
        b"",
    ]
    assert ask(service.url, "GET", f"/process/{name}/read?offset=99")[0] == 409
    client.delete(NAME)


@pytest.fixture
def narrow(strict):
    return strict(
        concurrency=1,
        queue=1,
        workspaces=2,
        processes=1,
        json_bytes=50_000,
        upload_bytes=100_000,
        objects_bytes=150_000,
        body_sec=0.5,
        header_sec=0.5,
        connections=40,
        drain_sec=0.2,
    )


def test_every_bound_holds(narrow, request_for, base):
    """One service with narrow bounds for all of them, since each start costs a second."""
    _large_bodies_are_refused(narrow.url)
    _slow_callers_are_let_go(narrow.url)
    client = narrow.client()
    tree = Path(client.create(request_for("a")).path)
    client.create(request_for("b"))
    status, headers, body = ask(narrow.url, "POST", "/workspace/create", {"workspace": "c", "tree": base[1]})
    assert (status, headers["retry-after"]) == (429, "1")
    assert "--max-workspaces" in json.loads(body)["next_action"]
    client.delete("b")
    client.create(request_for("b"))
    _processes_are_bounded(narrow.url, client)
    _a_full_queue_says_when_to_come_back(narrow.url, client, tree)
    _bases_take_so_much(client, base)
    _a_workspace_that_was_not_made_takes_no_place(client, request_for)


def _large_bodies_are_refused(url: str) -> None:
    def chunks(size: int):
        yield b'{"workspace": "'
        for _ in range(size // 1000):
            yield b"x" * 1000

    for path, method, kind, limit in (
        ("/workspace/run_code", "POST", JSON, 50_000),
        (f"/base/{'0' * 64}", "PUT", "application/octet-stream", 100_000),
    ):
        assert ask(url, method, path, b"x" * (limit + 1), Content_Type=kind)[0] == 413
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            assert ask(url, method, path, chunks(2 * limit), Content_Type=kind)[0] == 413
        claims = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: {kind}\r\n"
        assert b" 413 " in _raw(url, f"{claims}Content-Length: 9000000000\r\n\r\n".encode())


def _slow_callers_are_let_go(url: str) -> None:
    head = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: {JSON}\r\n"
    body = f"POST /workspace/run_code HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\n{{".encode()
    assert b" 408 " in _raw(url, body)
    assert _raw(url, b"POST /workspace/run_code HTTP/1.1\r\nHos") == b""
    assert _raw(url, b"") == b""


def _raw(url: str, data: bytes) -> bytes:
    """What the service says before it hangs up on us, who say no more."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(data)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def _processes_are_bounded(url: str, client) -> None:
    process = client.start_process(StartProcess(workspace="a", argv=("/bin/cat",)))
    start = {"workspace": "a", "argv": ["/bin/cat"], "process": "cd" * 16}
    assert ask(url, "POST", "/workspace/start_process", start)[0] == 429
    process.kill()
    assert ask(url, "POST", "/workspace/start_process", start)[0] == 200


def _a_full_queue_says_when_to_come_back(url: str, client, tree: Path) -> None:
    script = ("/bin/sh", "-c", "touch begun; while [ ! -e go ]; do sleep 0.05; done; echo done")
    results: list[bytes] = []
    waiting = [
        threading.Thread(
            target=lambda: results.append(client.run_command(RunCommand(workspace="a", argv=script)).stdout)
        )
        for _ in range(2)
    ]
    for thread in waiting:
        thread.start()
    refused = {"workspace": "b", "code": "1"}
    _until(lambda: (tree / "begun").exists())
    _until(lambda: b'codepilot_executor_queue_depth{queue="runs"} 1' in ask(url, "GET", "/metrics")[2])
    status, headers, body = ask(url, "POST", "/workspace/run_code", refused)
    assert (status, headers["retry-after"]) == (429, "1")
    assert json.loads(body)["kind"] == "executor_lost"
    assert ask(url, "GET", "/healthz")[0] == 200
    assert client.read_file("a", "README") == b"hello\n"
    (tree / "go").touch()
    for thread in waiting:
        thread.join()
    assert results == [b"done\n", b"done\n"]


def _bases_take_so_much(client, base: tuple[Path, str]) -> None:
    """One that unpacks to more than is taken is refused, however small it is on the way; so is one too many."""
    with ObjectStore.open(base[0]) as store:
        zeros = store.write_tree({"zeros": Entry("100644", store.write_blob(bytes(3_000_000)))})
        assert sum(map(len, store.export(zeros))) < 100_000
        with pytest.raises(CodePilotError):
            client._put(zeros, lambda: store.export(zeros))
        kinds = []
        for number in range(3):
            noise = random.Random(number).randbytes(60_000)
            tree = store.write_tree({"noise": Entry("100644", store.write_blob(noise))})
            try:
                client._put(tree, lambda tree=tree: store.export(tree))
            except CodePilotError as error:
                kinds.append(error.kind)
        assert kinds == [FailureKind.DISK_FULL]


def _a_workspace_that_was_not_made_takes_no_place(client, request_for) -> None:
    client.delete("b")
    for _ in range(3):
        with pytest.raises(CodePilotError) as caught:
            client.create(request_for("c", carried=(MountSpec(source="/absent", target="x"),)))
        assert caught.value.kind is FailureKind.PATH_NOT_FOUND
    client.create(request_for("b"))


def _until(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.02)
