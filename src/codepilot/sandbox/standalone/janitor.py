"""Ends and removes what a killed parent left: processes, control groups, temporary directories.

One file, standard library only, executed as `python -I -S janitor.py MARK`. The parent writes to its standard input
what it opens and closes; the end of that pipe is the parent's end. Records end in NUL: `+` or `-`, a letter for the
kind, a path. Names hold their owner, so a later start finds what a killed janitor left.
"""

# ruff: noqa: PTH106, PTH110, PTH116, PTH118, PTH123, PTH208  (importing pathlib would take longer than the rest)
from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

GROUP, DIRECTORY = b"g", b"d"

_PATIENCE = 30.0
_QUIET_ROUNDS = 6
_ROUND = 0.02


def owner() -> str:
    """This process as a part of a name: the machine's start, the PID namespace, the pid, the process's start."""
    return f"{_namespace()}-{os.getpid()}-{_started(os.getpid())}"


def orphaned(name: str, prefix: str) -> bool:
    """True if a name made of `prefix` and an owner names one of this machine that is gone."""
    parts = name.removeprefix(prefix).split("-")
    if not name.startswith(prefix) or len(parts) < 4 or "-".join(parts[:2]) != _namespace():
        return False
    return parts[2].isdigit() and _started(int(parts[2])) != parts[3]


def _namespace() -> str:
    try:
        boot = _read("/proc/sys/kernel/random/boot_id")[:8]
        return f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return "0-0"


def _started(pid: int) -> str:
    """When a process started; empty once it is gone, a zombie included."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        return "" if os.path.exists("/proc/self/stat") else "0"


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def remove_group(directory: str) -> bool:
    """Remove a control group. If it still has processes they are killed, and False means to try again."""
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:
        end_group(directory)
        return False
    return True


def end_group(directory: str) -> None:
    """Kill every process of a group. On kernels without `cgroup.kill` the group is kept from growing first."""
    if _write(f"{directory}/cgroup.kill", "1"):
        return
    _write(f"{directory}/pids.max", "0")
    with contextlib.suppress(OSError):
        for pid in map(int, _read(f"{directory}/cgroup.procs").split()):
            if pid != os.getpid():
                _kill(pid)
    _write(f"{directory}/freezer.state", "THAWED")  # only then do the dead die


def remove_directory(directory: str) -> bool:
    """Remove a tree that its maker may have made unreadable, or deeper than Python can recurse."""
    import shutil
    import subprocess

    with contextlib.suppress(RecursionError):
        shutil.rmtree(directory, ignore_errors=True)
    if os.path.lexists(directory):
        for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*command, "--", directory], stderr=subprocess.DEVNULL, check=False)
    return not os.path.lexists(directory)


def tidy(groups: list[str], directory: str) -> None:
    """Remove what was made for one tree that has ended."""
    deadline = time.monotonic() + 1
    for group in groups:
        while not remove_group(group) and time.monotonic() < deadline:
            time.sleep(0.002)
    remove_directory(directory)


def sweep_groups(parent: str, prefix: str) -> None:
    """End and remove the groups whose owner is gone."""
    for name in _names(parent):
        if orphaned(name, prefix):
            directory = os.path.join(parent, name)
            deadline = time.monotonic() + 1
            while not remove_group(directory) and time.monotonic() < deadline:
                time.sleep(0.002)


def sweep_directories(parent: str, prefix: str) -> None:
    """Remove our user's temporary directories whose owner is gone."""
    for name in _names(parent):
        directory = os.path.join(parent, name)
        with contextlib.suppress(FileNotFoundError):
            if orphaned(name, prefix) and os.lstat(directory).st_uid == os.geteuid():
                remove_directory(directory)


def _names(parent: str) -> list[str]:
    try:
        return os.listdir(parent)
    except OSError:
        return []


def _write(path: str, text: str) -> bool:
    try:
        fd = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        os.write(fd, text.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _end_marked(mark: bytes) -> bool:
    """Kill the launchers that carry the mark as their name; with one its PID namespace ends. True if there were any."""
    found = False
    for name in filter(str.isdigit, _names("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            if file.read(len(mark) + 1) == mark + b"\0":
                found = True
                _kill(int(name))
    return found


def _listen() -> set[bytes]:
    """Read records until the parent ends; the paths still open then."""
    opened: set[bytes] = set()
    rest = b""
    while chunk := os.read(0, 1 << 16):
        *records, rest = (rest + chunk).split(b"\0")
        for record in records:
            if record[:1] == b"+":
                opened.add(record[1:])
            else:
                opened.discard(record[1:])
    return opened


def _clear(mark: bytes, opened: set[bytes]) -> None:
    """Until nothing is left and nothing new was seen for a while: the parent may have died in the midst of a start."""
    deadline = time.monotonic() + _PATIENCE
    quiet = 0
    while quiet < _QUIET_ROUNDS and time.monotonic() < deadline:
        busy = _end_marked(mark)
        for record in sorted(opened, key=lambda record: record[:1] == DIRECTORY):
            kind, path = record[:1], os.fsdecode(record[1:])
            if remove_group(path) if kind == GROUP else remove_directory(path):
                continue
            busy = True
        quiet = 0 if busy else quiet + 1
        time.sleep(_ROUND)


def main() -> None:
    with contextlib.suppress(PermissionError):
        os.setsid()
    os.closerange(3, 1 << 12)
    os.chdir("/")
    _clear(os.fsencode(sys.argv[1]), _listen())


if __name__ == "__main__":
    main()
