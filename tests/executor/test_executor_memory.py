"""What a tree or an upload holds does not become the service's memory, and the service answers meanwhile."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import MountSpec, RunCommand
from codepilot.executor.remote_http import BYTES, Ask
from codepilot.workspace import Entry, ObjectStore

WRITE = """
line = b"a line of text that says little, number %09d\\n"
for name in range(int(FILES)):
    with open(f"file{name}", "wb") as file:
        for start in range(0, int(MIB) << 20, 1 << 20):
            file.write(b"".join(line % (start + n) for n in range((1 << 20) // 54)))
"""


def peak_mib(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


@contextmanager
def asked_for_its_health(service) -> Iterator[list[float]]:
    """How long each answer took."""
    client, stop, took = service.client(), threading.Event(), list[float]()

    def ask() -> None:
        while not stop.wait(0.05):
            begun = time.monotonic()
            client._http.ask(Ask("GET", "/healthz", timeout_sec=60, tries=1))
            took.append(time.monotonic() - begun)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(("files", "mib", "refused"), [(4, 40, True), (2, 12, False)])
def test_a_large_diff_costs_bounded_memory_and_holds_up_nobody(served, request_for, base, files, mib, refused):
    """As much as a diff takes, and ten times as much, which is refused."""
    service = served()
    client = service.client()
    client.create(request_for("large"))
    code = WRITE.replace("FILES", f'"{files}"').replace("MIB", f'"{mib}"')
    wrote = client.run_command(RunCommand(workspace="large", argv=("/usr/bin/python3", "-c", code)))
    assert wrote.status == "ok", wrote
    before = peak_mib(service.popen.pid)
    with asked_for_its_health(service) as took:
        if refused:
            with pytest.raises(CodePilotError, match="too large for a diff") as caught:
                client.diff("large", base[1])
            assert caught.value.kind is FailureKind.POLICY_VIOLATION
        else:
            assert len(client.diff("large", base[1]).patch) > files * mib << 19
    assert max(took) < 5, took
    assert peak_mib(service.popen.pid) - before < 400
    client.delete("large")


def test_uploads_that_unpack_to_much_cost_bounded_memory(served, tmp_path):
    """Four at once, of a few hundred kilobytes each that stand for 64 MiB."""
    with ObjectStore.open(tmp_path / "zeros") as store:
        tree = store.write_tree({"zeros": Entry("100644", store.write_blob(bytes(64 << 20)))})
        body = b"".join(store.export(tree))
    assert len(body) < 2 << 20
    service = served()
    before = peak_mib(service.popen.pid)

    def send(number: int) -> FailureKind:
        with pytest.raises(CodePilotError) as caught:
            service.client()._http.ask(Ask("PUT", f"/base/{number:064x}", lambda: [body], BYTES, 300.0))
        return caught.value.kind

    with asked_for_its_health(service) as took, ThreadPoolExecutor(4) as callers:
        assert set(callers.map(send, range(4))) == {FailureKind.TOOL_INVALID_ARGS}
    assert max(took) < 5, took
    assert peak_mib(service.popen.pid) - before < 150


@pytest.mark.parametrize("target", ["link/file", "file/below", "pkg/mod.py/x"])
def test_a_carried_file_that_cannot_be_put_there_is_the_callers_mistake(executor, base, request_for, tmp_path, target):
    with ObjectStore.open(base[0]) as store:
        blob = store.write_blob(b"x\n")
        entries = {"link": Entry("120000", store.write_blob(b"/tmp")), "file": Entry("100644", blob)}
        tree = store.write_tree({**entries, "pkg/mod.py": Entry("100644", blob)})
    (tmp_path / "secret.env").write_text("x")
    carried = (MountSpec(source=str(tmp_path / "secret.env"), target=target),)
    with pytest.raises(CodePilotError) as caught:
        executor.create(request_for().model_copy(update={"tree": tree, "carried": carried}))
    assert caught.value.kind is not FailureKind.INTERNAL
    assert "Error while answering" not in str(caught.value)
    assert not Path("/tmp/file").exists()
