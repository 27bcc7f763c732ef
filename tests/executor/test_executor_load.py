"""Many callers at once: nobody waits for another's workspace, no bound is overrun, nothing is lost or mixed."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CreateWorkspace, RunCode, RunCommand
from codepilot.workspace import Entry, ObjectStore

TOKEN = "a-token-for-tests-0123456789"
CALLERS = 50
HEAD = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/octet-stream\r\n"


def shell(workspace: str, script: str, **fields: object) -> RunCommand:
    return RunCommand(workspace=workspace, argv=("/bin/sh", "-c", script), **fields)


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def metrics(client) -> dict[str, float]:
    from codepilot.executor.remote_http import Ask

    lines = client._http.ask(Ask("GET", "/metrics")).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


@contextlib.contextmanager
def speaking(url: str, data: bytes) -> Iterator[socket.socket]:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as connection:
        connection.sendall(data)
        yield connection


@pytest.mark.variants
def test_fifty_callers_with_a_workspace_each_find_their_own_content(service, base):
    """Each sends a base of its own, changes it by a command and by code, and reads it back in three ways."""
    client = service.client()
    trees = {}
    with ObjectStore.open(base[0]) as store:
        for number in range(CALLERS):
            blob = store.write_blob(f"caller {number}\n".encode())
            trees[number] = store.write_tree({"who": Entry("100644", blob)})

    def call(number: int) -> list[object]:
        name = f"own-{number}"
        client.create(CreateWorkspace(workspace=name, objects=str(base[0]), tree=trees[number]))
        message = client.run_command(shell(name, f"cat who; echo {number} >> who; echo {number} > new-{number}"))
        value = client.run_code(RunCode(workspace=name, code="open('who').read()")).value if number % 5 == 0 else None
        taken = client.snapshot(name)
        diff = client.diff(name, trees[number])
        whole = client.read_file(name, "who")
        client.restore(name, taken.snapshot)
        left = client.run_command(shell(name, "ls; cat *")).stdout
        client.delete(name)
        return [message.stdout, value, {change.path for change in diff.changes}, diff.tree == taken.tree, whole, left]

    with ThreadPoolExecutor(CALLERS) as callers:
        reported = list(callers.map(call, range(CALLERS)))
    for number, answers in enumerate(reported):
        text = f"caller {number}\n{number}\n"
        assert answers == [
            f"caller {number}\n".encode(),
            repr(text) if number % 5 == 0 else None,
            {"who", f"new-{number}"},
            True,
            text.encode(),
            f"new-{number}\nwho\n{number}\n{text}".encode(),
        ]
    client.close()


@pytest.mark.variants
def test_callers_wait_out_a_service_that_is_busy(strict, request_for):
    """Twenty callers of a service that lets one work and two wait: the others come back until it is their turn."""
    client = strict(concurrency=1, queue=2).client()
    client.create(request_for("busy"))
    with ThreadPoolExecutor(20) as callers:
        asked = [RunCommand(workspace="busy", argv=("/bin/sleep", "0.1")) for _ in range(20)]
        assert [done.status for done in callers.map(client.run_command, asked)] == ["ok"] * 20
    assert metrics(client)['codepilot_executor_requests_total{route="/workspace/run_command",status="429"}'] > 0


def test_workspaces_made_at_the_same_time_are_no_more_than_allowed(strict, request_for, base):
    service = strict(workspaces=2, concurrency=8)
    client = service.client()
    client.create(request_for("first"))
    client.delete("first")

    def make(number: int) -> int:
        connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=60)
        with contextlib.closing(connection):
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
            connection.request("POST", "/workspace/create", f'{{"workspace":"m-{number}","tree":"{base[1]}"}}', headers)
            return connection.getresponse().status

    with ThreadPoolExecutor(16) as callers:
        statuses = sorted(callers.map(make, range(16)))
    assert statuses == [200] * 2 + [429] * 14
    assert len(list((service.home / "workspaces").iterdir())) == 2


def test_a_slow_upload_holds_up_nobody(strict, request_for):
    service = strict(concurrency=1, body_sec=20.0)
    client = service.client()
    client.create(request_for("quick"))
    slow = f"PUT /base/{'0' * 64} HTTP/1.1\r\n{HEAD}Content-Length: 1000\r\n\r\nabc".encode()
    with speaking(service.url, slow):
        until(lambda: metrics(client)['codepilot_executor_in_flight{queue="uploads"}'] == 1)
        begun = time.monotonic()
        assert client.read_file("quick", "README") == b"hello\n"
        assert client.snapshot("quick").tree
        assert time.monotonic() - begun < 10


def test_work_on_one_workspace_holds_up_no_other(strict, request_for):
    """Every thread could be waiting for the same workspace's lock; only one of them is let in."""
    service = strict(concurrency=2, slow_snapshots="held")
    client = service.client()
    tree = Path(client.create(request_for("held")).path)
    client.create(request_for("free"))
    with ThreadPoolExecutor(4) as callers:
        held = [callers.submit(client.snapshot, "held") for _ in range(4)]
        try:
            until(lambda: metrics(client)['codepilot_executor_queue_depth{queue="files"}'] == 3)
            assert metrics(client)['codepilot_executor_in_flight{queue="files"}'] == 1
            assert client.snapshot("free").tree
        finally:
            (tree.parent / "go").touch()
        assert len({one.result().tree for one in held}) == 1


def test_what_was_refused_takes_no_room(strict, request_for, base):
    """A hundred streams that are none are refused as such; there is still room for one that is."""
    service = strict(objects_bytes=20_000)
    client = service.client()
    with pytest.raises(CodePilotError):
        for _ in range(2):
            client._put("0" * 64, lambda: [b"rubbish" * 1000])
    kinds = set()
    for _ in range(10):
        with pytest.raises(CodePilotError) as caught:
            client._put("0" * 64, lambda: [b"rubbish" * 1000])
        kinds.add(caught.value.kind)
    assert kinds == {FailureKind.TOOL_INVALID_ARGS}
    assert client.create(request_for("room")).created


def test_a_body_of_mistakes_is_refused_at_once(strict):
    """Millions of wrong items in a body that is small enough are not listed one by one."""
    service = strict()
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=60)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    wrong = (
        b'{"workspace":"w","argv":[' + b"1," * 1_000_000 + b"1]}",
        b'{"workspace":"w",' + b",".join(b'"a%d":1' % number for number in range(200_000)) + b"}",
    )
    with contextlib.closing(connection):
        for body in wrong:
            connection.request("POST", "/workspace/run_command", body, headers)
            answer = connection.getresponse()
            assert (answer.status, len(answer.read()) < 5000) == (422, True)
    peak = next(
        line for line in Path(f"/proc/{service.popen.pid}/status").read_text().splitlines() if line.startswith("VmHWM")
    )
    assert int(peak.split()[1]) < 400_000


def test_a_key_in_flight_stands_for_one_request(strict, request_for):
    client = strict().client()
    tree = Path(client.create(request_for("keyed")).path)
    script = "echo x >> count; touch begun; while [ ! -e go ]; do sleep 0.02; done; cat count"
    with ThreadPoolExecutor(3) as callers:
        same = [callers.submit(client.run_command, shell("keyed", script, idempotency_key="k")) for _ in range(3)]
        until((tree / "begun").exists)
        with pytest.raises(CodePilotError) as caught:
            client.run_command(shell("keyed", "true", idempotency_key="k"))
        assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS
        (tree / "go").touch()
        assert [one.result().stdout for one in same] == [b"x\n"] * 3
