"""A confined process tree, controlled from outside: start, release, signal, kill to the last process."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.limits import usage
from codepilot.sandbox.limits.cgroup import Group
from codepilot.sandbox.limits.disk import DiskAccount
from codepilot.sandbox.limits.freezer import FreezeMethod, Freezer
from codepilot.sandbox.limits.spawn import spawn
from codepilot.sandbox.limits.stopping import BySignal, Stopping
from codepilot.sandbox.spec import Limits

_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_STATUS_BYTES = 65536
ABOVE_GROUP = 12
"""RLIMIT_NPROC exceeds the group's limit by this, so that the group is hit first and counts the breach."""


@dataclass
class Launch:
    """How to start one tree: the launcher's command line, and the pipes over which it reports.

    The launcher writes JSON lines to `status`: `child-pid` once the tree exists, `exit-code` once the command has
    ended. `release` lets the command begin, after the limits in `limits` were set on the child from outside.
    """

    argv: Sequence[str]
    pass_fds: tuple[int, ...]
    status: int
    release: int | None = None
    limits: Mapping[int, int] = field(default_factory=dict)
    guarded: bool = False
    """The launcher itself is the subreaper of the tree and ends it on SIGTERM; otherwise a PID namespace does."""
    cleanup: Callable[[], None] = lambda: None
    watched: tuple[Path, ...] = ()
    disk_account: DiskAccount | None = None
    executable: str | None = None
    """The launcher's program, if its name in `argv` is another."""
    group: Group | None = None
    cpus: frozenset[int] | None = None
    """The processors that the child is kept on."""
    in_memory: Mapping[str, int] = field(default_factory=dict)
    """The file systems in memory that the command has for itself, by where it sees them, with their sizes."""
    freezer: Freezer | None = None
    resize: int | None = None
    """Where sizes for the command's terminal are written, a line `ROWS COLUMNS` each."""

    def now(self) -> float:
        """The clock that limits count by: it stands still while the tree is frozen."""
        return time.monotonic() if self.freezer is None else self.freezer.now()


def resource_limits(limits: Limits, group: Group) -> dict[int, int]:
    """Limits that the kernel enforces for each process.

    Twice the memory, as mapped is more than used; none where a group limits what is used.
    """
    wanted = {
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_MEMLOCK: 65536,
        resource.RLIMIT_NPROC: limits.tasks + ABOVE_GROUP,
    }
    if "memory" not in group.controllers:
        wanted[resource.RLIMIT_DATA] = 2 * limits.memory_bytes
    if hasattr(resource, "RLIMIT_MSGQUEUE"):
        wanted[resource.RLIMIT_MSGQUEUE] = 0
    return {kind: _clamped(kind, value) for kind, value in wanted.items()}


def _clamped(kind: int, value: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


class Tree:
    """A running tree. `root` is the process whose descendants are the confined ones."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._status = b""
        self._child_fd: int | None = None
        self._freezing = threading.Lock()
        self._ending = False
        self._stopping: Stopping | None = None
        with launch.freezer.starting() if launch.freezer is not None else nullcontext():
            self._start(launch)
            if launch.freezer is not None:
                launch.freezer.add(self)

    def _start(self, launch: Launch) -> None:
        try:
            self.popen: subprocess.Popen[bytes] = self._spawn()
        except OSError as error:
            self._finish()
            raise CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, f"the sandbox cannot be started: {error}") from error
        finally:
            for fd in launch.pass_fds:
                os.close(fd)
        self.child = self._first_status()
        self.root = self.popen.pid if launch.guarded else self.child
        self._launchers = frozenset(usage.children(self.root) if launch.guarded else ())
        self.helpers = len(self._launchers)
        """How many processes below `root` are the launcher's and not the command's."""
        try:
            self._release()
        except OSError as error:
            self.reap()
            raise CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, f"limits cannot be set: {error}") from error

    def _spawn(self) -> subprocess.Popen[bytes]:
        launch = self._launch
        around = launch.group.around if launch.group is not None and not launch.guarded else nullcontext
        return spawn(launch.argv, {}, launch.pass_fds, launch.executable, around)

    @property
    def stdin(self) -> int:
        assert self.popen.stdin is not None
        return self.popen.stdin.fileno()

    @property
    def watched(self) -> tuple[Path, ...]:
        return self._launch.watched

    @property
    def disk_account(self) -> DiskAccount | None:
        return self._launch.disk_account

    def held_by_files(self) -> int:
        """Kernel memory for the inodes of files in memory, where no group counts it."""
        group = self._launch.group
        if group is not None and "memory" in group.controllers:
            return 0
        return usage.held_by_files(self.child, self._launch.in_memory)

    def tasks(self) -> int | None:
        """Processes and threads in the tree's group; None without one."""
        return self._launch.group.tasks() if self._launch.group is not None else None

    def breach(self) -> str | None:
        """The limit that the kernel enforced on this tree, if any; known after its end as well."""
        group = self._launch.group
        return None if group is None else group.breach()

    def _first_status(self) -> int:
        """The pid of the tree's first process. Raises the launcher's error if it reports none."""
        deadline = time.monotonic() + _START_SECONDS
        while b"\n" not in self._status and len(self._status) < _STATUS_BYTES:
            ready = readable([self._launch.status], deadline - time.monotonic())
            chunk = os.read(self._launch.status, 4096) if ready else b""
            if not chunk:
                break
            self._status += chunk
        for message in self._messages():
            pid = message.get("child-pid")
            if isinstance(pid, int):
                return pid
        self.popen.kill()
        raise self.refusal(self._failed_stderr())

    def _failed_stderr(self) -> bytes:
        """The stderr of a launcher that was killed."""
        _, stderr = self.popen.communicate()
        self._finish()
        return stderr

    def _release(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if not self._launch.guarded:
                self._child_fd = os.pidfd_open(self.child)
            for kind, value in self._launch.limits.items():
                resource.prlimit(self.child, kind, (value, value))
            if self._launch.cpus is not None and not self._launch.guarded:
                os.sched_setaffinity(self.child, self._launch.cpus)
            if self._launch.group is not None and not self._launch.guarded:
                self._launch.group.adopt(self.child)
        release, self._launch.release = self._launch.release, None
        if release is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(release, b"x")
            os.close(release)

    def _messages(self) -> list[dict[str, object]]:
        found = []
        for line in self._status.splitlines():
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                found.append(message)
        return found

    def refusal(self, stderr: bytes) -> CodePilotError:
        """The launcher could not set the sandbox up."""
        errors = [str(message["setup-error"]) for message in self._messages() if "setup-error" in message]
        reason = (errors or stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it ended silently"])[0]
        if "Can't chdir to" in reason:
            return CodePilotError(FailureKind.PATH_NOT_FOUND, f"the working directory cannot be entered: {reason}")
        return CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, f"the sandbox could not be set up: {reason}")

    def exit_code(self, stderr: bytes) -> int:
        """The exit code of the command, after the launcher ended. 127 and 126: it could not be executed."""
        messages = self._messages()
        if any("setup-error" in message for message in messages):
            raise self.refusal(stderr)
        for message in messages:
            code = message.get("exit-code")
            if isinstance(code, int):
                return code
        if self.popen.returncode < 0:  # something else killed the launcher, and the command with it
            return 128 - self.popen.returncode
        last = stderr.decode(errors="replace").strip().rpartition("\n")[2]
        if last.startswith("bwrap: execvp"):
            return 127 if last.endswith("No such file or directory") else 126
        raise self.refusal(stderr)

    def main(self) -> int | None:
        """The pid of the command itself."""
        if self._launch.guarded:
            return self.child
        return next(iter(usage.children(self.child)), None)

    def signal(self, number: int) -> None:
        """Signal the command, with its process group if it leads one."""
        pid = self.main()
        if pid is None or self.popen.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)

    def now(self) -> float:
        return self._launch.now()

    def resize(self, rows: int, columns: int) -> bool:
        """Give its terminal another size; false if it has none."""
        with self._freezing:
            if self._launch.resize is None:
                return False
            with contextlib.suppress(BrokenPipeError, BlockingIOError):  # it has ended, or reads none while frozen
                os.write(self._launch.resize, b"%d %d\n" % (rows, columns))
            return True

    def _below(self) -> list[int]:
        """The processes of the command, without the launcher's own."""
        return [pid for pid in usage.descendants(self.root) if pid not in self._launchers]

    def mapped_files(self) -> set[int]:
        with self._freezing:
            return set() if self._ending else usage.mapped_for_writing(self._below())

    def begin_freeze(self) -> FreezeMethod | None:
        with self._freezing:
            if self._ending:
                return None
            by_group = self._launch.group.stopping(self._below) if self._launch.group is not None else None
            self._stopping = by_group or BySignal(self._below)
            try:
                self._stopping.begin()
            except OSError:  # the hierarchy has vanished
                self._stopping = BySignal(self._below)
                self._stopping.begin()
            return self._stopping.method

    def end_freeze(self, deadline: float) -> int | None:
        with self._freezing:
            if self._ending or self._stopping is None:
                return 0
            return self._stopping.finish(deadline)

    def thaw(self) -> None:
        with self._freezing:
            stopping, self._stopping = self._stopping, None
            if stopping is not None and not self._ending:
                stopping.undo()

    def reap(self) -> None:
        """End the rest of the tree and wait until it is gone, frozen or not. May be called again."""
        with self._freezing:
            self._ending = True
        if self._launch.freezer is not None:
            self._launch.freezer.remove(self)
        if self._launch.group is not None:
            self._launch.group.end()
        if self._launch.guarded:
            self._stop_subreaper()
        else:
            if self._child_fd is not None:
                with contextlib.suppress(ProcessLookupError):
                    if self._launch.cpus is not None:
                        os.sched_setaffinity(self.child, os.sched_getaffinity(0))
                    signal.pidfd_send_signal(self._child_fd, signal.SIGKILL)
            self.popen.kill()
        self.popen.wait()
        if self._child_fd is not None:
            readable([self._child_fd], _STOP_SECONDS)
        self._finish()

    def _stop_subreaper(self) -> None:
        if self.popen.poll() is not None:
            return
        self.popen.terminate()
        try:
            self.popen.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            while below := usage.descendants(self.popen.pid):
                for pid in below:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self.popen.kill()

    def _finish(self) -> None:
        if self._child_fd is not None:
            os.close(self._child_fd)
            self._child_fd = None
        self._close_status()
        if self._launch.release is not None:
            os.close(self._launch.release)
            self._launch.release = None
        if self._launch.group is not None:
            self._launch.group.close()
        with self._freezing:
            if self._launch.resize is not None:
                os.close(self._launch.resize)
                self._launch.resize = None
        self._launch.cleanup()
        self._launch.cleanup = lambda: None

    def _close_status(self) -> None:
        """Read the launcher's last messages and close the pipe."""
        if self._launch.status < 0:
            return
        os.set_blocking(self._launch.status, False)
        with contextlib.suppress(BlockingIOError):
            while len(self._status) < _STATUS_BYTES and (chunk := os.read(self._launch.status, 4096)):
                self._status += chunk
        os.close(self._launch.status)
        self._launch.status = -1


def readable(descriptors: Iterable[int], seconds: float) -> list[int]:
    """The descriptors that can be read or have ended; none after the time. (`select` stops at descriptor 1023.)"""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in waiting.poll(max(0.0, seconds) * 1000)]
