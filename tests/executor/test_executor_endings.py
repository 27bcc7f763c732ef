"""How a service ends, in order or not: what runs finishes or is ended, nothing is left, nothing is done twice."""

from __future__ import annotations

import contextlib
import http.client
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import RemoteExecutor, RunCode, RunCommand, StartProcess
from codepilot.executor.remote_http import Ask

NAME = "e-1"
PATIENCE_SEC = 60.0


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SEC
    while not true():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


def running_with(mark: str) -> list[int]:
    """The processes whose command line holds a mark."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in file.read_bytes():
                found.append(int(file.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def groups_of(pid: int) -> list[Path]:
    """The control groups that a process made; under the top in version 2, under a controller in version 1."""
    top = Path("/sys/fs/cgroup")
    return [*top.glob(f"codepilot-box-*-{pid}-*"), *top.glob(f"*/codepilot-box-*-{pid}-*")]


class Caller(threading.Thread):
    """Makes one call and keeps what came of it."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__()
        self._call = call
        self.result: object = None
        self.error: CodePilotError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._call()
        except CodePilotError as error:
            self.error = error


def shell(script: str, **fields: object) -> RunCommand:
    return RunCommand(workspace=NAME, argv=("/bin/sh", "-c", script), **fields)


def once(client: RemoteExecutor, path: str) -> CodePilotError:
    """The answer to a single try."""
    with pytest.raises(CodePilotError) as caught:
        client._http.ask(Ask("POST", path, b'{"workspace": "e-1"}', tries=1))
    return caught.value


def test_asked_to_stop_it_finishes_what_runs_and_takes_nothing_new(strict, request_for):
    service = strict(drain_sec=PATIENCE_SEC)
    client = service.client()
    tree = Path(client.create(request_for(NAME)).path)
    slow = Caller(lambda: client.run_command(shell("touch begun; while [ ! -e go ]; do sleep 0.02; done; echo done")))
    until((tree / "begun").exists)
    service.popen.send_signal(signal.SIGTERM)
    until(lambda: '"draining"' in service.log.read_text())
    refused = once(client, "/workspace/snapshot")
    assert refused.kind is FailureKind.EXECUTOR_LOST
    assert "shutting down" in refused.failure.message
    assert refused.failure.details["retry_after"] == 5
    with pytest.raises(CodePilotError):
        client._http.ask(Ask("GET", "/healthz", tries=1))
    assert client._http.ask(Ask("GET", "/about", tries=1))
    (tree / "go").touch()
    slow.join()
    assert slow.error is None and slow.result.stdout == b"done\n"
    assert service.popen.wait(PATIENCE_SEC) == 0


def test_asked_to_stop_it_hands_a_snapshot_over_to_its_end(strict, request_for):
    service = strict(drain_sec=PATIENCE_SEC)
    client = service.client()
    client.create(request_for(NAME))
    assert client.run_command(shell("head -c 8000000 /dev/urandom > much")).status == "ok"
    taken = client.snapshot(NAME).snapshot
    stream = client.export_snapshot(NAME, taken)
    begun = next(stream)
    service.popen.send_signal(signal.SIGTERM)
    until(lambda: '"draining"' in service.log.read_text())
    time.sleep(0.3)
    assert '"ending"' not in service.log.read_text()
    assert len(begun) + sum(map(len, stream)) > 8_000_000
    assert service.popen.wait(PATIENCE_SEC) == 0


def test_asked_to_stop_it_says_when_to_come_back(strict, request_for):
    service = strict(drain_sec=PATIENCE_SEC)
    client = service.client()
    client.create(request_for(NAME))
    process = client.start_process(StartProcess(workspace=NAME, argv=("/bin/cat",)))
    service.popen.send_signal(signal.SIGTERM)
    until(lambda: '"draining"' in service.log.read_text())
    connection = http.client.HTTPConnection(service.url.removeprefix("http://"), timeout=30)
    headers = {"Authorization": "Bearer a-token-for-tests-0123456789"}
    with contextlib.closing(connection):
        for method, path, body in (
            ("POST", "/workspace/run_code", b'{"workspace": "e-1", "code": "1"}'),
            ("PUT", f"/base/{'0' * 64}", b"x"),
        ):
            kind = {"Content-Type": "application/json" if method == "POST" else "application/octet-stream"}
            connection.request(method, path, body, {**headers, **kind})
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("Retry-After"), bool(answer.read())) == (503, "5", True)
    process.kill()
    assert service.popen.wait(PATIENCE_SEC) == 0


def test_asked_to_stop_it_ends_what_does_not_finish(strict, request_for):
    service = strict(drain_sec=0.3)
    client, mark = service.client(), "600.4711"
    tree = Path(client.create(request_for(NAME)).path)
    process = client.start_process(StartProcess(workspace=NAME, argv=("/bin/sleep", mark)))
    slow = Caller(lambda: client.run_command(shell(f"touch begun; sleep {mark}")))
    until((tree / "begun").exists)
    assert service.end() == 0
    slow.join()
    assert slow.error is not None or slow.result.status == "interrupted"
    assert running_with(mark) == []
    assert groups_of(service.popen.pid) == []
    with pytest.raises(CodePilotError):
        process.kill()


def test_asked_twice_it_stops_at_once(strict, request_for):
    service = strict(drain_sec=600.0)
    client, mark = service.client(), "600.4712"
    tree = Path(client.create(request_for(NAME)).path)
    slow = Caller(lambda: client.run_command(shell(f"touch begun; sleep {mark}")))
    until((tree / "begun").exists)
    service.popen.send_signal(signal.SIGTERM)
    until(lambda: '"draining"' in service.log.read_text())
    assert service.end() == 0
    slow.join()
    assert running_with(mark) == []


def test_killed_it_leaves_nothing_and_finds_its_workspaces_again(strict, request_for, base):
    service = strict()
    client, mark = service.client(), "600.4713"
    tree = Path(client.create(request_for(NAME)).path)
    client.run_code(RunCode(workspace=NAME, code="x = 1"))
    answered = client.run_command(shell("echo once >> answered; wc -l < answered", idempotency_key="answered"))
    taken = client.snapshot(NAME)
    client.start_process(StartProcess(workspace=NAME, argv=("/bin/sleep", mark)))
    cut = shell(f"echo once >> cut; sleep {mark}", idempotency_key="cut")
    caller = Caller(lambda: client.run_command(cut))
    until((tree / "cut").exists)
    until(lambda: len(running_with(mark)) >= 2)
    (service.home / "staging" / "left").write_bytes(b"half a body")
    pid = service.popen.pid
    service.end(signal.SIGKILL)
    caller.join()
    assert caller.error is not None and caller.error.kind is FailureKind.EXECUTOR_LOST
    until(lambda: not running_with(mark))
    until(lambda: not running_with(str(service.home)))
    until(lambda: not groups_of(pid))

    client = strict().client()
    assert client.read_file(NAME, "answered") == b"once\n"
    assert client.run_command(shell("echo once >> answered; wc -l < answered", idempotency_key="answered")) == answered
    with pytest.raises(CodePilotError) as caught:
        client.run_command(cut)
    assert caught.value.kind is FailureKind.EXECUTOR_LOST
    assert "another key" in caught.value.failure.next_action
    assert client.read_file(NAME, "cut") == b"once\n"
    assert not client.create(request_for(NAME)).created
    after = client.run_code(RunCode(workspace=NAME, code="'x' in globals()"))
    assert (after.value, after.kernel_restarted) == ("False", True)
    client.restore(NAME, taken.snapshot)
    assert {change.path for change in client.diff(NAME, base[1]).changes} == {"answered"}
    assert list((service.home / "staging").iterdir()) == []
    client.delete(NAME)
    assert list((service.home / "workspaces").iterdir()) == []


def test_a_process_of_an_earlier_service_has_ended(strict, request_for):
    service = strict()
    client = service.client()
    client.create(request_for(NAME))
    process = client.start_process(StartProcess(workspace=NAME, argv=("/bin/cat",)))
    port = int(service.url.rpartition(":")[2])
    service.end(signal.SIGKILL)
    strict(port=port)
    assert (process.running, process.wait(), process.stdout.read()) == (False, None, b"")
    with pytest.raises(BrokenPipeError):
        process.stdin.write(b"x")
        process.stdin.flush()
    process.kill()


def test_without_a_token_it_listens_to_this_machine_alone(strict):
    """Whatever started it: the address it really got is looked at."""
    with pytest.raises(AssertionError, match="without a token"):
        strict(token=None, host="0.0.0.0")
    assert strict(token=None, host="127.0.0.2").client(None).level


def test_a_home_has_one_service(strict):
    strict()
    with pytest.raises(AssertionError, match="another executor uses"):
        strict()
