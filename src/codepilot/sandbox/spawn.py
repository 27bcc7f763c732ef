"""Starting processes that die with us.

The kernel delivers a parent-death signal when the *thread* that forked ends. All confined processes are therefore
started by one thread that lives as long as this process.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue

from codepilot.sandbox import devices

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
    """Start `argv` in a session of its own, with nothing inherited but its pipes and `pass_fds`.

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
    """The queue of this process's spawning thread; a forked copy of us gets a thread of its own."""
    global _queue, _owner
    with _lock:
        if _queue is None or _owner != os.getpid():
            served: SimpleQueue[_Job] = SimpleQueue()
            threading.Thread(target=_serve, args=(served,), name="codepilot-spawn", daemon=True).start()
            _queue, _owner = served, os.getpid()
        return _queue


def _serve(queue: SimpleQueue[_Job]) -> None:
    """Whatever goes wrong is told to whoever waits for it, and the next is served: all would wait for ever."""
    protected = False
    while True:
        start, future = queue.get()
        try:
            if not protected:
                devices.protect()
                protected = True
            future.set_result(start())
        except BaseException as error:  # noqa: BLE001
            future.set_exception(error)
