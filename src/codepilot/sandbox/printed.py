"""What an action of a kernel has printed so far, held by the host, so that it is not lost with the kernel.

A kernel lets its standard streams lead to files that have no name. The host holds them open from the kernel's start on.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading

from codepilot.sandbox.process import SupervisedProcess
from codepilot.sandbox.spec import Process


class Printed:
    """The files behind the standard streams of one process; empty where there are none."""

    def __init__(self, process: Process, limit: int) -> None:
        pid = process.pid if isinstance(process, SupervisedProcess) else None
        self._limit = limit
        self._lock = threading.Lock()
        self._last: tuple[str, str] | None = None
        self._files = [None if pid is None else _behind(pid, fd) for fd in (1, 2)]

    def texts(self) -> tuple[str, str]:
        """Standard output and error: the head and the tail of what is there, whatever the kernel says of it."""
        with self._lock:
            return self._last or self._read()

    def close(self) -> None:
        """Let go of the files; what they held last is still told."""
        with self._lock:
            self._last = self._last or self._read()
            files, self._files = self._files, [None, None]
        for file in files:
            if file is not None:
                os.close(file)

    def _read(self) -> tuple[str, str]:
        stdout, stderr = (b"" if file is None else _ends(file, self._limit) for file in self._files)
        return stdout.decode("utf-8", "replace"), stderr.decode("utf-8", "replace")


def _behind(pid: int, fd: int) -> int | None:
    """A descriptor of ours for the file behind one of a process's.

    A file with a name is none that the kernel made: it could be one that code inside may name and not read.
    """
    with contextlib.suppress(OSError):
        file = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        found = os.fstat(file)
        if stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and found.st_uid == os.geteuid():
            return file
        os.close(file)
    return None


def _ends(file: int, limit: int) -> bytes:
    size = os.fstat(file).st_size
    if size <= limit:
        return os.pread(file, size, 0)
    half = limit // 2
    return b"%s\n[... %d bytes left out ...]\n%s" % (
        os.pread(file, half, 0),
        size - 2 * half,
        os.pread(file, half, size - half),
    )
