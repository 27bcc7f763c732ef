"""The kernel that runs code actions: what stays, what is reported about failures, and what happens when it is lost."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from codepilot.core.failures import CodePilotError
from codepilot.sandbox import Kernel, Limits, Mount, Sandbox, SandboxSpec
from codepilot.sandbox.kernel.replies import OutputFiles
from levels import level

SKILLS = "def double(x):\n    return 2 * x\n"


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """One kernel for the tests that do not end it."""
    tree = tmp_path_factory.mktemp("place").resolve() / "tree"
    tree.mkdir()
    view = SandboxSpec(Mount(tree, tree, writable=True))
    limits = Limits(memory_bytes=300 << 20, output_bytes=20_000)
    kernel = Kernel(level(request.param), view, limits, prelude=SKILLS)
    yield kernel
    kernel.stop()


@pytest.fixture
def kernel(sandbox: Sandbox, view: SandboxSpec) -> Iterator[Kernel]:
    kernel = Kernel(sandbox, view, Limits(memory_bytes=300 << 20, output_bytes=20_000), prelude=SKILLS)
    yield kernel
    kernel.stop()


def test_variables_stay_and_the_last_expression_is_the_value(shared):
    assert shared.run("x = 20\nx + 1").value == "21"
    result = shared.run("x += 1\ndouble(x)")
    assert (result.status, result.value, result.kernel_restarted) == ("ok", "42", False)
    assert shared.run("x = 1").value is None


def test_everything_written_is_caught_and_cannot_be_taken_for_a_reply(shared):
    code = 'import os, subprocess, sys\nprint("python"); sys.stdout.flush(); os.write(1, b"{\\"id\\": 2}\\n")\n'
    code += 'subprocess.run(["sh", "-c", "echo child; echo oops >&2"]); None'
    result = shared.run(code)
    assert result.stdout == 'python\n{"id": 2}\nchild\n'
    assert result.stderr == "oops\n"
    assert shared.run("1").stdout == ""


def test_output_is_capped(shared):
    result = shared.run("print('first'); print('x' * 1_000_000); print('last')")
    assert result.truncated
    assert result.stdout.startswith("first\n") and result.stdout.endswith("last\n")
    assert len(result.stdout) < 21_000


def test_an_exception_tells_the_agents_own_line(shared):
    shared.run("def risky():\n    return 1 / 0")
    result = shared.run("a = 1\n\nrisky()\n")
    assert result.status == "error"
    assert (result.error.type, result.error.message, result.error.line) == ("ZeroDivisionError", "division by zero", 3)
    assert "return 1 / 0" in result.error.traceback
    assert "kernel.py" not in result.error.traceback
    assert shared.run("a").value == "1"


def test_sources_of_late_actions_are_kept_and_no_more(shared):
    kept = "import linecache; sum(name.startswith('<action') for name in linecache.cache)"
    for number in range(250):
        shared.run(f"def risky_{number}():\n    return {number} / 0")
    assert shared.run(kept).value == "200"
    assert "return 100 / 0" in shared.run("risky_100()").error.traceback
    assert shared.run("risky_0()").error.line == 1


def test_a_syntax_error_tells_its_line(shared):
    result = shared.run("a = 1\nb = = 2")
    assert (result.error.type, result.error.line) == ("SyntaxError", 2)


@pytest.mark.parametrize(("code", "status", "exit_code"), [("exit(3)", "error", 3), ("exit()", "ok", 0)])
def test_exit_ends_the_action_and_not_the_kernel(shared, code, status, exit_code):
    shared.run("x = 5")
    result = shared.run(code)
    assert (result.status, result.exit_code) == (status, exit_code)
    assert shared.run("x").value == "5"


@pytest.mark.parametrize(
    "code",
    [
        "class Bad(Exception):\n    def __str__(self): raise ValueError\nraise Bad",
        "class Bad:\n    def __repr__(self): raise ValueError('no')\nBad()",
        "import sys; sys.stdout.close()",
        "import sys; sys.stdout = None",
        "raise KeyboardInterrupt",
        "import os; os.close(1); os.close(2)",
        "import os; os.fork()",
        "x = [1]; x.append(x); x",
    ],
)
def test_odd_actions_do_not_disturb_the_next(shared, code):
    shared.run("kept = 7")
    shared.run(code)
    result = shared.run("print('fine'); kept")
    assert (result.status, result.stdout, result.value) == ("ok", "fine\n", "7")


def test_a_timeout_interrupts_and_keeps_output_and_variables(shared):
    shared.run("x = 9")
    result = shared.run("print('begun')\nwhile True: pass", timeout_sec=0.3)
    assert (result.status, result.limit, result.stdout) == ("timeout", "wall", "begun\n")
    after = shared.run("x")
    assert (after.value, after.kernel_restarted) == ("9", False)


def test_a_timeout_reaches_a_program_that_the_action_waits_for(kernel):
    result = kernel.run("import os\nos.system('sleep 600')", timeout_sec=0.3)
    assert (result.status, result.kernel_restarted) == ("timeout", False)


def test_an_action_that_ignores_interrupts_costs_the_kernel(kernel):
    kernel.run("x = 9")
    code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(600)"
    result = kernel.run(code, timeout_sec=0.2)
    assert (result.status, result.kernel_restarted) == ("timeout", True)
    assert kernel.run("'x' in globals()").value == "False"


@contextmanager
def repeated(call, seconds):
    """Call again and again from another thread: on a busy machine the first call may come before what it is to end."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            call()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_interrupt_from_another_thread(kernel):
    kernel.run("x = 9")
    with repeated(kernel.interrupt, 0.2):
        result = kernel.run("import time\ntime.sleep(600)")
    assert result.status == "interrupted"
    assert kernel.run("x").value == "9"


def test_an_interrupt_while_the_kernel_starts_keeps_the_action_from_running(kernel, tree):
    with repeated(kernel.interrupt, 0.002):
        result = kernel.run("open('ran', 'w').close()\nimport time\ntime.sleep(600)")
    assert result.status == "interrupted"
    assert kernel.run("1").value == "1"


def test_an_interrupt_while_nothing_runs_does_nothing(shared):
    shared.run("x = 1")
    shared.interrupt()
    assert shared.run("x").value == "1"


def test_a_crash_is_reported_and_a_new_kernel_has_the_skills(kernel):
    kernel.run("x = 9")
    result = kernel.run("import ctypes; ctypes.string_at(0)")
    assert (result.status, result.error.type, result.kernel_restarted) == ("error", "KernelLost", True)
    assert "Segmentation fault" in result.stderr
    after = kernel.run("double(4)")
    assert (after.status, after.value) == ("ok", "8")


def test_a_kernel_that_died_unseen_is_reported_at_the_next_action(kernel):
    kernel.run("import os, threading\nthreading.Timer(0.1, os._exit, (1,)).start()")
    while kernel.running:
        time.sleep(0.01)
    assert kernel.run("1").kernel_restarted


def test_a_memory_bomb_costs_the_kernel_only(kernel):
    result = kernel.run("x = bytearray(450 << 20)\nimport time; time.sleep(60)")
    assert (result.status, result.limit, result.kernel_restarted) == ("limit", "memory", True)
    assert kernel.run("1 + 1").value == "2"


@pytest.mark.parametrize("delay", [0.0, 0.01, 0.4])
def test_stop_from_another_thread_ends_what_runs(kernel, delay):
    begun = threading.Event()

    def stop() -> None:
        begun.wait()
        time.sleep(delay)
        kernel.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    begun.set()
    result = kernel.run("import time\ntime.sleep(2)\n'done'")
    thread.join()
    assert result.status in ("ok", "error", "interrupted")
    assert kernel.run("1").value == "1"


@pytest.mark.parametrize(
    "forged",
    [
        b"not json\n",
        b"[]\n",
        b"[" * 100_000 + b"\n",
        b'{"id": %d, "ok": true, "value": {"a": 1}, "stdout": 7, "error": "x", "exit_code": true}\n',
        b"x" * 3_000_000,
    ],
)
def test_forged_replies_harm_nobody(kernel, forged):
    """An action can find the protocol's pipe and say anything on it; the next action is unharmed."""
    kernel.run("1")
    code = f"import os\nforged = {forged!r}\nforged = forged.replace(b'%d', b'3')\n"
    code += "for fd in range(100, 110):\n    try: os.write(fd, forged)\n    except OSError: pass"
    kernel.run(code, timeout_sec=20)
    assert kernel.run("2 + 2", timeout_sec=20).status in ("ok", "error")
    assert kernel.run("2 + 2", timeout_sec=20).value == "4"


def test_replies_forged_ahead_are_nobodys(kernel):
    code = "import json, os\nfor number in range(200):\n"
    code += "    forged = json.dumps({'id': number, 'ok': True, 'value': 'forged'}).encode() + b'\\n'\n"
    code += "    os.write(101, forged)\n'mine'"
    assert kernel.run(code, timeout_sec=20).value == "'mine'"
    assert kernel.run("2 + 2", timeout_sec=20).value == "4"


def test_what_no_encoding_holds_is_shown_and_can_be_passed_on(shared):
    result = shared.run("raise ValueError('a\\ud800b')")
    assert result.error is not None
    assert result.error.message == "a\\ud800b"
    result.error.traceback.encode()


@pytest.mark.parametrize("code", ["10 ** 40", "-10 ** 40"])
def test_an_exit_code_is_one_or_none(shared, code):
    result = shared.run(f"raise SystemExit({code})")
    assert (result.status, result.exit_code) == ("error", None)


def test_a_kernel_that_ends_itself_tells_its_exit_code(kernel):
    result = kernel.run("import os\nos._exit(3)")
    assert (result.status, result.exit_code) == ("error", 3)
    assert kernel.run("1").value == "1"


@pytest.mark.parametrize(
    "code",
    [
        "os._exit(3)",
        "os.kill(os.getpid(), 9)",
        "kept = [bytearray(b'x' * (10 << 20)) for _ in range(60)]",
        "os.closerange(0, 300)",
    ],
)
def test_what_was_printed_before_a_kernel_was_lost_is_kept(sandbox, view, code):
    kernel = Kernel(sandbox, view, Limits(memory_bytes=200 << 20))
    try:
        for before in ("first", "second"):
            result = kernel.run(
                f"import os, sys\nprint('{before}'); print('aside', file=sys.stderr)\n{code}", timeout_sec=20
            )
            assert (result.stdout, result.stderr[:6]) == (f"{before}\n", "aside\n")
            assert result.status in ("error", "limit")
    finally:
        kernel.stop()


def test_no_file_outside_is_taken_for_what_was_printed(landlock, view, tmp_path):
    """A handle is enough to name a file that may not be read."""
    (tmp_path / "secret").write_text("hunter2")
    code = f"import os, time\nos.dup2(os.open({str(tmp_path / 'secret')!r}, os.O_PATH), 1)\n"
    process = landlock.start(["/usr/bin/python3", "-c", code + "os.write(2, b'x'); time.sleep(60)"], view, Limits())
    try:
        deadline = time.monotonic() + 20
        while not process.stderr_tail() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process.stderr_tail() == b"x"
        assert OutputFiles(process, 1000).texts() == ("", "")
    finally:
        process.kill()


def test_stop_ends_a_running_action(kernel):
    kernel.run("1")
    with repeated(kernel.stop, 0.2):
        result = kernel.run("import time\ntime.sleep(600)")
    assert (result.status, result.kernel_restarted) == ("interrupted", True)


def test_a_projects_own_interpreter_is_used_and_modules_of_the_workspace_import(sandbox, view, tree):
    (tree / "mine.py").write_text("ANSWER = 42\n")
    kernel = Kernel(sandbox, view, Limits(), python="/usr/bin/python3")
    try:
        assert kernel.run("import mine, sys; mine.ANSWER, sys.executable").value == "(42, '/usr/bin/python3')"
    finally:
        kernel.stop()


def test_a_missing_interpreter_is_reported(sandbox, view):
    with pytest.raises(CodePilotError, match="kernel cannot be started"):
        Kernel(sandbox, view, Limits(), python="/no/such/python").run("1")


def test_skills_that_do_not_compile_are_reported(sandbox, view):
    with pytest.raises(CodePilotError, match="skills could not be defined"):
        Kernel(sandbox, view, Limits(), prelude="def broken(").run("1")


def test_stopping_leaves_nothing_open(sandbox, tree):
    view = SandboxSpec(Mount(tree, tree))
    Kernel(sandbox, view, Limits()).stop()
    threads, files = threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        kernel = Kernel(sandbox, view, Limits())
        assert kernel.run("import sys; sys.version_info[0]").value == str(sys.version_info[0])
        kernel.stop()
    assert threading.active_count() <= threads + 1
    assert len(list(Path("/proc/self/fd").iterdir())) <= files + 1
    assert os.getpid()
