"""Landlock's notifier as a user without privileges, under what a container's default seccomp profile blocks.

`make yama` runs these tests with `kernel.yama.ptrace_scope=1`, which is a setting of the whole machine.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from codepilot.sandbox.levels.seccomp import _Program
from codepilot.sandbox.levels.syscalls import CALLS
from levels import lacking, level

USER = 12345
BLOCKED = ("kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev", "ptrace")
ROOT = Path(__file__).resolve().parents[2]

HOST = """
import sys
from pathlib import Path
from codepilot.sandbox import Limits, Mount, SandboxSpec
from codepilot.sandbox.levels.landlock import Landlock
tree = Path(sys.argv[1])
command = ["/usr/bin/python3", "-I", "-c", sys.argv[2]]
process = Landlock().start(command, SandboxSpec(Mount(tree, tree, writable=True)), Limits())
above, pid = [], process.pid
while pid > 1:
    pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    above.append(pid)
print("descends" if process._tree.popen.pid in above else "lies elsewhere", flush=True)
process.stdin.close()
print(process.stdout.read().decode(), process.wait(), process.stderr_tail().decode())
"""

INSIDE = """
import ctypes, os, select, struct, sys
sys.stdin.read()
libc = ctypes.CDLL(None, use_errno=True)
open("file", "w").close()
os.chmod("file", 0o640)
fd = os.open("file", os.O_RDWR)
os.fchmod(fd, 0o600)
os.utime("file", (1, 2)); os.utime(fd, (3, 4))
print(oct(os.stat("file").st_mode), os.stat("file").st_mtime)
def refused(call, *arguments):
    try: call(*arguments)
    except PermissionError: return True
print(refused(os.chmod, "/usr/bin/env", 0o777), refused(os.utime, "/usr/bin/env"))
if os.fork() == 0:  # an orphan, which falls back to the subreaper
    while os.getppid() != 1 and os.fork() == 0:
        os.chmod("file", 0o644)
        os._exit(0)
    os._exit(0)
os.wait()
def watched(flags):
    watcher = libc.inotify_init1(flags)
    number = libc.inotify_add_watch(watcher, b".", 0x100)  # IN_CREATE
    open(f"new{watcher}", "w").close(); open(f"newer{watcher}", "w").close()
    ready = bool(select.select([watcher], [], [], 5)[0])
    found = os.read(watcher, 4096)
    _, mask, _, length = struct.unpack_from("iIII", found)
    print(number > 0, ready, mask == 0x100, found[16:16 + length].rstrip(b"\\0").decode().startswith("new"))
    return watcher
first, second = watched(os.O_CLOEXEC), watched(os.O_NONBLOCK)
print(os.get_inheritable(first), os.get_inheritable(second), os.get_blocking(first), os.get_blocking(second))
os.close(first)
for _ in range(200):  # what is closed again is not held for ever
    one = libc.inotify_init1(0)
    assert one >= 0 and libc.inotify_add_watch(one, b".", 0x100) > 0, ctypes.get_errno()
    os.close(one)
print(libc.inotify_add_watch(fd, b".", 0x100), libc.inotify_add_watch(second, b"/root", 0x100), libc.inotify_init1(1))
"""


@pytest.fixture
def tree() -> Iterator[Path]:
    """A workspace of the other user's."""
    place = Path(tempfile.mkdtemp(prefix="codepilot-user-", dir="/tmp"))
    (place / "tree").mkdir()
    for path in (place, place / "tree"):
        os.chown(path, USER, USER)
    yield place / "tree"
    shutil.rmtree(place)


def _block() -> None:
    """Refuse calls as a container's default profile does, for this process and all that it starts."""
    machine = 0 if os.uname().machine == "x86_64" else 1
    program = _Program()
    program.emit(0x20, 0)
    refuse = _Program()
    refuse.refuse(errno.EPERM)
    for name in BLOCKED:
        number = CALLS[name][machine]
        assert number is not None
        program.on_call(number, refuse)
    program.emit(0x06, 0x7FFF0000)
    code = program.bytes()
    instructions = ctypes.create_string_buffer(code, len(code))

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    reported = Filter(len(code) // 8, ctypes.addressof(instructions))
    assert libc.prctl(22, 2, ctypes.byref(reported), 0, 0) == 0


@pytest.mark.parametrize("cgroups", ["on", "off"])
def test_modes_times_and_watches_work_without_ptrace_for_any_user(tree, cgroups):
    level("landlock")
    if os.geteuid() != 0:
        lacking("only root can become another user")
    packages = [str(ROOT / "src"), *(path for path in sys.path if path.endswith("site-packages"))]
    done = subprocess.run(
        ["/usr/bin/python3", "-c", HOST, str(tree), INSIDE],
        env={"PYTHONPATH": ":".join(packages), "PATH": "/usr/bin:/bin", "CODEPILOT_CGROUPS": cgroups},
        user=USER,
        group=USER,
        extra_groups=(),
        cwd="/",
        preexec_fn=_block,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split("\n")[:8] == [
        "descends",
        "0o100600 4.0",
        "True True",
        "True True True True",
        "True True True True",
        "False True True False",
        "-1 -1 -1",
        " 0 ",
    ], done.stdout + done.stderr
