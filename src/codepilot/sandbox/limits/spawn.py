"""Starting processes that die with us.

The kernel delivers a parent-death signal when the *thread* that forked ends. All confined processes are therefore
started by one thread that lives as long as this process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue

_Job = tuple[Callable[[], "subprocess.Popen[bytes]"], "Future[subprocess.Popen[bytes]]"]

_lock = threading.Lock()
_queue: SimpleQueue[_Job] | None = None
_owner: int | None = None


def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    executable: str | None = None,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> subprocess.Popen[bytes]:
    """Start `argv` in a new session. It inherits only its pipes and `pass_fds`.

    `around` is entered by the thread that starts it.
    """

    def start() -> subprocess.Popen[bytes]:
        started: subprocess.Popen[bytes] | None = None
        try:
            with around():
                started = subprocess.Popen(
                    list(argv),
                    executable=executable,
                    env=dict(env),
                    cwd="/",
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    close_fds=True,
                    pass_fds=tuple(pass_fds),
                    start_new_session=True,
                )
        except BaseException:
            if started is not None:
                started.kill()
                started.communicate()
            raise
        return started

    future: Future[subprocess.Popen[bytes]] = Future()
    _spawner().put((start, future))
    return future.result()


def _spawner() -> SimpleQueue[_Job]:
    """The queue of the spawning thread. A forked process starts its own."""
    global _queue, _owner
    with _lock:
        if _queue is None or _owner != os.getpid():
            served: SimpleQueue[_Job] = SimpleQueue()
            threading.Thread(target=_serve, args=(served,), name="codepilot-spawn", daemon=True).start()
            _queue, _owner = served, os.getpid()
        return _queue


def _serve(queue: SimpleQueue[_Job]) -> None:
    """Start processes one by one. Every error goes to its caller, so that the thread never ends."""
    protected = False
    while True:
        start, future = queue.get()
        try:
            if not protected:
                protect_devices()
                protected = True
            future.set_result(start())
        except BaseException as error:  # noqa: BLE001
            future.set_exception(error)


_NAMES = ("null", "zero", "full", "random", "urandom", "tty")
_NEW_MOUNTS = 0x20000
_READ_ONLY, _NO_SUID, _NO_EXEC, _REMOUNT, _BIND, _WITH_BELOW, _FOLLOWING = 1, 2, 8, 32, 4096, 16384, 1 << 19


def protect_devices() -> None:
    """Give the calling thread and its children a mount namespace with read-only mounts over devices."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS) != 0:
        return
    with contextlib.suppress(OSError):
        _mount(libc, None, "/", _FOLLOWING | _WITH_BELOW)
        for name in _NAMES:
            path = f"/dev/{name}"
            with contextlib.suppress(FileNotFoundError):
                _mount(libc, path, path, _BIND)
                _mount(libc, None, path, _BIND | _REMOUNT | _READ_ONLY | _NO_SUID | _NO_EXEC)


def _mount(libc: ctypes.CDLL, source: str | None, target: str, flags: int) -> None:
    origin = os.fsencode(source) if source is not None else None
    if libc.mount(origin, os.fsencode(target), None, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)
