"""What a machine itself may lack or do to its workers, provoked for real: no sandbox, and processes that always die."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from engine_kit import until

from codepilot.agents import CodeActAgent
from codepilot.core.events import EventType, State
from codepilot.core.failures import FailureKind
from codepilot.engine import Request, Runtime, Worker, make_task, resume, submit
from codepilot.sandbox import choose
from codepilot.telemetry import exit_code
from configured import configured

HERE = Path(__file__).parent

_WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
LOAD, EQUAL, RETURN, ENOSYS, ALLOW = 0x20, 0x15, 0x06, 0x00050000 | 38, 0x7FFF0000
rules = [(LOAD, 0, 0, 0), (EQUAL, 0, 1, 444), (RETURN, 0, 0, ENOSYS), (RETURN, 0, 0, ALLOW)]
packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(packed)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Goes on as another program, for which the kernel has no `landlock_create_ruleset`."""


@pytest.fixture
def bare_machine(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine on which the system refuses bubblewrap."""
    script = tmp_path / "bin" / "bwrap"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\n[ "$1" = --help ] && echo "    --size BYTES" && exit\necho refused >&2\nexit 1\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}"}


def test_where_there_is_no_sandbox_nothing_is_run_and_the_run_says_what_to_install(
    runtime: Runtime, checkout: Path, bare_machine: dict[str, str]
) -> None:
    trace = checkout / "was-run"
    (checkout / "test_trace.py").write_text(f"open({str(trace)!r}, 'w')\n", encoding="utf-8")
    command = [sys.executable, "-m", "codepilot", "fix", str(checkout), "--json"]
    environ = {**bare_machine, "CODEPILOT_HOME": str(runtime.home.path)}
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_LANDLOCK, *command],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 4, done.stdout + done.stderr
    reported = json.loads(done.stdout)
    assert reported["status"] == "FAILED"
    assert reported["failure"]["kind"] == "sandbox_unavailable"
    for level in ("bubblewrap: the sandbox could not be set up: refused", "landlock: this kernel has no Landlock"):
        assert level in reported["failure"]["message"]
    assert "apt install bubblewrap" in reported["failure"]["next_action"]
    assert not trace.exists()
    (checkout / "test_trace.py").unlink()
    resume(runtime, reported["run_id"])
    here = Worker(runtime, agent_for=lambda task: CodeActAgent(until())).drive(reported["run_id"])
    assert (here.sandbox_level, here.baseline is not None) == (choose("best").level, True), "it goes on where one is"


_ALWAYS_DIES = """
import os, signal, sys
from codepilot.agents import CodeActAgent
from codepilot.engine import Runtime, Settings, Worker
from codepilot.models import ScriptedModel
home, run_id = sys.argv[1:]
def live():
    model = ScriptedModel(lambda messages: os.kill(os.getpid(), signal.SIGKILL))
    with Runtime.open(Settings.load(flags={"home": home})) as runtime:
        Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(run_id)
ended = -signal.SIGKILL
while ended == -signal.SIGKILL:
    life = os.fork()
    if life == 0:
        live()
        os._exit(0)
    ended = os.waitstatus_to_exitcode(os.waitpid(life, 0)[1])
    print(ended, flush=True)
"""
"""Workers, one after another, of which each is killed by what the model's client does."""


@pytest.mark.slow
def test_a_step_that_kills_every_worker_ends_the_run_at_the_tenth(runtime: Runtime, checkout: Path) -> None:
    run = submit(runtime, make_task(Request(repo=str(checkout)), configured()))
    command = [sys.executable, "-c", _ALWAYS_DIES, str(runtime.home.path), run.run_id]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.split() == [str(-signal.SIGKILL)] * 10 + ["0"], done.stderr
    ended, events = runtime.store.load(run.run_id), runtime.store.events(run.run_id)
    runtime.store.check(run.run_id)
    assert ended.failure is not None
    assert (ended.state, ended.failure.kind, exit_code(ended)) == (State.FAILED, FailureKind.CRASH_LOOP, 4)
    assert "died 10 times in MAP_REPO" in ended.failure.message
    lives = [event for event in events if event.type is EventType.STEP_STARTED and event.step_id == ended.step_id]
    assert len(lives) == 11
    assert {event.attempt for event in lives} == {1}, "a death is nobody's report"
    assert ended.baseline is not None, "what was done before holds"
    assert resume(runtime, run.run_id) == ended, "the next worker would die as well"
