"""Where there is no room for another thread or for more memory, anyone who asks is informed, and the next is served."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox import Limits, Mount, Sandbox, SandboxSpec
from codepilot.sandbox.limits import spawn
from no_room import no_room_for


def ends_well() -> bool:
    started = spawn.spawn(["/bin/sh", "-c", "exit 0"], {})
    started.communicate(timeout=60)
    return started.returncode == 0


def test_a_spawning_thread_that_could_not_be_started_is_started_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "_queue", None)
    refused = no_room_for("codepilot-spawn", monkeypatch)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        ends_well()
    assert refused
    assert ends_well()


@pytest.mark.parametrize("fault", [MemoryError(), RuntimeError("whatever"), KeyboardInterrupt()])
def test_whatever_goes_wrong_is_reported_and_the_next_is_served(fault: BaseException) -> None:
    @contextmanager
    def around() -> Iterator[None]:
        yield
        raise fault

    with pytest.raises(type(fault)):
        spawn.spawn(["sleep", "600"], {}, around=around)
    assert ends_well()


def test_a_process_that_cannot_be_watched_is_not_left_behind(
    sandbox: Sandbox, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = SandboxSpec(Mount(tree, tree, True), env={"MARK": str(tree)})

    def ended() -> int:
        """How many files are open when a process has come and gone."""
        process = sandbox.start(["/bin/sh", "-c", "exit 3"], view, Limits(wall_sec=60))
        assert process.wait(60) == 3
        process.kill()
        return len(list(Path("/proc/self/fd").iterdir()))

    before = ended()
    no_room_for("codepilot-watch", monkeypatch)
    with pytest.raises(CodePilotError, match="cannot be watched") as caught:
        sandbox.start(["sleep", "600"], view, Limits(wall_sec=600))
    assert caught.value.kind is FailureKind.SANDBOX_UNAVAILABLE
    assert not [one for one in Path("/proc").glob("[0-9]*/environ") if str(tree).encode() in (read(one) or b"")], (
        "it goes on"
    )
    assert ended() == before


def read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
