"""Starts and confines one command, and outlives every process that it leaves behind.

One file, standard library only, executed as `python -I -S subreaper.py FD` where FD holds a JSON specification.

Three processes. The subreaper is unconfined and the parent of every orphan, so that nothing leaves the tree. It ends
the tree when the command ends, on SIGTERM, and on SIGHUP when its own parent dies. A thread of it answers the calls
that the confinement hands over (`seccomp_notify.py`). Init, its child, is confined like the command, which is the child
of init: a confined process can signal only processes confined with it, so one `kill(-1)` by init ends them all at
once, where a fork bomb would outrun any loop.
"""

# ruff: noqa: PTH100, PTH120, PTH123, PTH208  (importing pathlib or typing would take longer than all the rest)

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import stat
import struct
import sys
import time
from _thread import start_new_thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

LINUX = sys.platform == "linux"

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_SECUREBITS = 1, 22, 24, 28
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_CAP_AMBIENT_CLEAR_ALL = 4
_SECUREBITS = 0xEF  # uid 0 gives nothing, and that is locked
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION = 0x20080522
_PF_EXITING = 0x4

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_DEVICES_AND_SOCKETS = 1 << 6 | 1 << 9 | 1 << 11 | 1 << 15
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP = 3
_SIGNALS_AND_ABSTRACT_SOCKETS = 3


class SetupError(Exception):
    """The confinement asked for cannot be had."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        raise SetupError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _prctl(option: int, *arguments: int) -> int:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return int(_libc().prctl(ctypes.c_int(option), *padded))


def _syscall(number: int, *arguments: Any) -> int:
    return int(_libc().syscall(ctypes.c_long(number), *arguments))


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 or less if it has none."""
    return _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1)) if LINUX else 0


def _restrict_files(spec: dict[str, Any]) -> None:
    """Allow reading and executing below `read`, everything but devices and sockets below `write`."""
    abi: int = spec["abi"]
    handled = _HANDLED[min(abi, 5)]
    tcp = _TCP if abi >= 4 and not spec["network"] else 0
    attributes = struct.pack("=QQQ", handled, tcp, _SIGNALS_AND_ABSTRACT_SOCKETS if abi >= 6 else 0)
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _check(_syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), ctypes.c_uint(0)), "landlock")
    for path in spec["read"]:
        _allow(ruleset, path, _READ_FILE | _READ_DIR | _EXECUTE)
    for path in spec["write"]:
        _allow(ruleset, path, handled & ~_DEVICES_AND_SOCKETS)
    _check(_syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0)), "landlock")
    os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not stat.S_ISDIR(os.fstat(fd).st_mode):
        access &= _OF_FILES
    rule = struct.pack("=Qi", access, fd)
    _check(_syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint(0)), f"landlock: {path}")
    os.close(fd)


def _drop_capabilities() -> None:
    """Leave uid 0 none of root's powers; a user without capabilities has none to drop."""
    if os.geteuid() == 0:
        _check(_prctl(_PR_SET_SECUREBITS, _SECUREBITS), "securebits")
        for capability in range(64):
            if _prctl(_PR_CAPBSET_DROP, capability) < 0:
                break
    _prctl(_PR_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    number = _CAPSET[os.uname().machine.replace("arm64", "aarch64")]
    _check(_syscall(number, header, bytes(24)), "capset")


def _filter_calls(program: bytes) -> None:
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    buffer = ctypes.create_string_buffer(header, len(header))
    _check(_prctl(_PR_SET_SECCOMP, 2, ctypes.addressof(buffer)), "seccomp")


def _limit(limits: list[list[int]]) -> None:
    for kind, value in limits:
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def _init(spec: dict[str, Any], subreaper: int, orders: int, news: int, lend: Any) -> NoReturn:
    """Confine this process, start the command, report its end, and kill everything when `orders` ends."""
    try:
        os.setsid()
        if LINUX and not spec["confinement"]:  # a confined init sees the end of `orders` and kills all
            _check(_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "death signal")
        if not spec["cgroups"]:
            _be_prompt()
        _enter_groups(spec["cgroups"], spec["cpus"])
        scoped = _confine(spec["confinement"], subreaper, lend)
    except (SetupError, OSError, ValueError) as error:
        _report(news, {"setup-error": str(error)})
        os._exit(1)
    wake = _wake_pipe()
    _die_of_signals()
    command = os.fork()
    if command == 0:
        _become(spec, news)
    _report(news, {"child-pid": command})
    _leave_stdio()
    ended = False
    while orders not in select.select([orders, wake], [], [])[0]:
        _drain(wake)
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(command, 0 if ended else os.WNOHANG)
            if pid == command:
                ended = True
                code = os.waitstatus_to_exitcode(status)
                _report(news, {"exit-code": code if code >= 0 else 128 - code})
    if scoped and _out_of_reach(subreaper):
        os.kill(-1, signal.SIGKILL)
    os._exit(0)


def _out_of_reach(subreaper: int) -> bool:
    """True if the subreaper still cannot be signalled, or is gone."""
    try:
        return _cannot_signal(subreaper)
    except ProcessLookupError:
        return True


def _enter_groups(entries: list[str], cpus: list[int] | None) -> None:
    """Come under the limits that the host has made for the tree, before we can no longer see them."""
    for entry in entries:
        fd = os.open(entry, os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, b"0")
        os.close(fd)
    if cpus is not None:
        os.sched_setaffinity(0, cpus)


def _be_prompt() -> None:
    """Run before any ordinary process, if we may, but not our children: root's may be without number.

    Where a group bounds them there is no need to; nor may one that runs before others enter it.
    """
    if LINUX:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def _confine(confinement: dict[str, Any] | None, subreaper: int, lend: Any) -> bool:
    """Apply what is asked for. True if from here on only processes confined with us can be signalled."""
    if confinement is None:
        return False
    _drop_capabilities()
    _check(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "no_new_privs")
    _restrict_files(confinement)
    _filter_calls(bytes.fromhex(confinement["seccomp"]))
    _beside("seccomp_notify").install(bytes.fromhex(confinement["notify"]), lend)
    if not _cannot_signal(subreaper):
        raise SetupError("landlock does not keep signals inside")
    return True


def _beside(name: str) -> Any:
    """A file of this directory; nothing else there can be imported."""
    if name not in sys.modules:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        try:
            __import__(name)
        finally:
            del sys.path[0]
    return sys.modules[name]


def _cannot_signal(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    return False


def _become(spec: dict[str, Any], news: int) -> NoReturn:
    """Turn into the command; never returns."""
    try:
        os.setsid()
        if LINUX:
            _check(_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "death signal")
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores them, and so would the command
            signal.signal(number, signal.SIG_DFL)
        _enter(spec["cwd"])
        _limit(spec["limits"])
    except (SetupError, OSError, ValueError) as error:
        _report(news, {"setup-error": str(error)})
        os._exit(125)
    reason = _execute(spec["argv"], spec["env"])
    os.write(2, os.fsencode(f"{spec['argv'][0]}: {reason.strerror}\n"))
    os._exit(127 if isinstance(reason, FileNotFoundError) else 126)


def _execute(argv: list[str], env: dict[str, str]) -> OSError:
    """Find and execute the command; returns only why it could not. (os.execvpe would import from a hidden place.)"""
    directories = [""] if "/" in argv[0] else [f"{place}/" for place in env["PATH"].split(":")]
    reason: OSError = FileNotFoundError(2, os.strerror(2))
    for directory in directories:
        try:
            os.execve(directory + argv[0], argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            reason = error
    return reason


def _enter(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise SetupError(f"Can't chdir to {directory}: {error.strerror}") from error


def _report(fd: int, message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(fd, json.dumps(message).encode() + b"\n")


def _wake_pipe() -> int:
    """Readable whenever a signal has arrived."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return read


def _is_ending(parent: int) -> bool:
    """True if our parent has ended or is ending: its files close before its death is reported, which may end a
    command that reads from it.
    """
    with contextlib.suppress(OSError), open(f"/proc/{parent}/stat", "rb") as file:
        if int(file.read().rpartition(b")")[2].split()[6]) & _PF_EXITING:
            return True
    return os.getppid() != parent


def _die_of_signals() -> None:
    """Restore the default action of SIGTERM and SIGHUP."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(fd, 4096)


def _bury() -> None:
    """Reap orphans that have ended: zombies count as processes."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _leave_stdio() -> None:
    """Close the command's pipes here, so that they end with the command."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)


class _Subreaper:
    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._stopping = False
        self.orphaned = False
        """Our parent was killed, and so may have been its janitor."""
        self._wake = _wake_pipe()
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_stop)
        if LINUX:
            _check(_prctl(_PR_SET_CHILD_SUBREAPER, 1), "subreaper")
            _check(_prctl(_PR_SET_PDEATHSIG, signal.SIGHUP), "death signal")
        if os.getppid() != spec["parent"]:
            self._stopping = self.orphaned = True

    def _on_stop(self, number: int, frame: object) -> None:
        self._stopping = True
        self.orphaned = self.orphaned or number == signal.SIGHUP

    def guard(self) -> None:
        if self._stopping:
            return
        lend, borrow = _beside("seccomp_notify").pair() if self._spec["confinement"] else (None, None)
        orders_read, orders = os.pipe()
        news, news_write = os.pipe()
        myself = os.getpid()
        self._init = os.fork()
        if self._init == 0:
            os.close(orders)
            os.close(news)
            if borrow is not None:
                borrow.close()
            _init(self._spec, myself, orders_read, news_write, lend)
        if lend is not None:
            lend.close()
            start_new_thread(self._notify, (borrow,))
        os.close(orders_read)
        os.close(news_write)
        _leave_stdio()
        _be_prompt()
        self._pass_on(news)
        os.close(orders)
        self._sweep()

    def _notify(self, borrow: Any) -> None:
        confinement = self._spec["confinement"]
        with contextlib.suppress(OSError):
            _beside("seccomp_notify").serve(
                borrow,
                confinement["calls"],
                confinement["write"],
                confinement["read"],
                lambda: _descendants(os.getpid()),
            )

    def _pass_on(self, news: int) -> None:
        """Forward init's messages to the host until the command ends or must be ended."""
        sent = b""
        while not self._stopping and b"exit-code" not in sent:
            ready = select.select([news, self._wake], [], [])[0]
            _drain(self._wake)
            _bury()
            if news in ready:
                chunk = os.read(news, 4096)
                if not chunk and b"child-pid" in sent and b"setup-error" not in sent:
                    chunk = b'{"exit-code": 137}\n'  # the command has killed the init
                elif not chunk:
                    return
                if not sent and self._spec["cpus"] is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(self._init, os.sched_getaffinity(0))  # the command alone stays there
                sent += chunk
                with contextlib.suppress(BrokenPipeError):
                    os.write(self._spec["status"], chunk)

    def _sweep(self) -> None:
        """Collect the dead, and kill what the init could not, until no child is left."""
        patience = time.monotonic() + (1.0 if self._spec["confinement"] else 0.0)
        with contextlib.suppress(ChildProcessError):
            while True:
                if os.waitpid(-1, os.WNOHANG)[0]:
                    continue
                if time.monotonic() >= patience:
                    self._kill_each()
                time.sleep(0.001)

    def _kill_each(self) -> None:
        """Stopping them all first keeps them from multiplying meanwhile."""
        if not LINUX:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._init, signal.SIGKILL)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in _descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)


def children_by_parent() -> dict[int, list[int]]:
    """The children of every process of the machine."""
    below: dict[int, list[int]] = {}
    with contextlib.suppress(FileNotFoundError):
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                below.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    return below


def _descendants(root: int) -> list[int]:
    below = children_by_parent()
    found: list[int] = []
    queue = [root]
    while queue:
        children = below.get(queue.pop(), [])
        found.extend(children)
        queue.extend(children)
    return found


def main() -> None:
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        spec = json.load(file)
    os.set_inheritable(spec["status"], False)
    try:
        subreaper = _Subreaper(spec)
        subreaper.guard()
        if subreaper.orphaned or _is_ending(spec["parent"]):
            _beside("janitor").tidy([os.path.dirname(entry) for entry in spec["cgroups"]], spec["temp"])
    except SetupError as error:
        _report(spec["status"], {"setup-error": str(error)})


if __name__ == "__main__":
    main()
