"""Carries out, for confined programs, calls on files that Landlock has no hook for: modes, times, inotify watches.

One file, standard library only, loaded by the subreaper. The kernel holds a confined program's call and tells the
notifier, a thread of the subreaper. It reads the arguments, opens the file itself below what the program may change,
and acts on what it has opened; the call itself never runs, so no later change of its arguments matters. Whatever lies
elsewhere is refused.

It needs neither ptrace nor pidfd_getfd, so it works for any user, with Yama's `ptrace_scope=1` and with a container's
default seccomp profile. The notification descriptor comes over a socket pair. Memory is read from /proc/PID/mem, which
Yama leaves to ancestors: every confined process descends from the subreaper. Descriptors are opened again through
/proc/PID/fd. An inotify instance cannot be, so the notifier makes each one, hands it to the program, and recognises it
by a watch of its own on a file in memory, which /proc/PID/fdinfo lists.
"""

# ruff: noqa: PTH101, PTH115, PTH123, PTH208  (importing pathlib would take longer than all the rest)

from __future__ import annotations

import _socket
import contextlib
import ctypes
import errno
import fcntl
import os
import select
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_NUMBERS = {"x86_64": (317, 280), "aarch64": (277, 88)}
_SECCOMP, _UTIMENSAT = _NUMBERS.get(os.uname().machine.replace("arm64", "aarch64"), (-1, -1))
_OPENAT2 = 437
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_RECEIVE, _SEND, _STILL_WAITING, _ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
_BENEATH = 0x08 | 0x02  # RESOLVE_BENEATH, RESOLVE_NO_MAGICLINKS
_CWD = 0xFFFFFF9C
_NO_FOLLOW, _EMPTY_PATH, _WATCH_NO_FOLLOW = 0x100, 0x1000, 0x02000000
_IN_DELETE_SELF = 0x400
_PATH_BYTES, _PAGE = 4096, 4096
_WATCHERS = 8
"""From so many inotify instances on, those that no program has any more are closed before another is made."""
_RIGHTS = struct.Struct("=i")
_OWN_FILES = "/proc/self/fd/"
"""By which the C library changes a mode without following a link."""

_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def pair() -> tuple[_socket.socket, _socket.socket]:
    """Over which the listener travels from the process that is confined to the notifier."""
    return _socket.socketpair()


def install(program: bytes, lend: _socket.socket) -> None:
    """Hand the calls that `program` names over to the notifier at the other end of `lend`."""
    instructions = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(instructions))
    listener = _call(_SECCOMP, ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_NEW_LISTENER), header)
    lend.sendmsg([b"x"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _RIGHTS.pack(listener))])
    os.close(listener)
    lend.close()


def serve(
    borrow: _socket.socket,
    calls: dict[str, str],
    change: Sequence[str],
    look: Sequence[str],
    processes: Callable[[], Sequence[int]],
) -> None:
    """Answer until no confined program is left. `change` and `look` are where files may be changed and watched;
    `processes` lists the confined processes."""
    _, ancillary, _, _ = borrow.recvmsg(1, 64)
    borrow.close()
    if not ancillary:
        return
    listener = _RIGHTS.unpack(ancillary[0][2][:4])[0]
    try:
        _answer_calls(listener, calls, _Roots(change), _Watchers(_Roots([*change, *look]), processes))
    finally:
        os.close(listener)


def _answer_calls(listener: int, calls: dict[str, str], change: _Roots, watchers: _Watchers) -> None:
    ready = select.poll()
    ready.register(listener, select.POLLIN)
    while ready.poll()[0][1] & select.POLLIN:
        notice = bytearray(80)
        try:
            fcntl.ioctl(listener, _RECEIVE, notice)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINTR):
                raise
            continue
        token, pid, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", notice)
        value = failure = 0
        try:
            value = _carry_out(_Request(listener, token, pid, arguments), calls[str(number)], change, watchers)
        except OSError as error:
            failure = -(error.errno or errno.EPERM)
        except OverflowError:  # an address beyond all memory
            failure = -errno.EFAULT
        except struct.error:  # a time beyond all time
            failure = -errno.EINVAL
        with contextlib.suppress(FileNotFoundError):
            fcntl.ioctl(listener, _SEND, bytearray(struct.pack("=QqiI", token, value, failure, 0)))


class _Request:
    """A held call of a confined thread, and what its arguments refer to."""

    def __init__(self, listener: int, token: int, pid: int, arguments: list[int]) -> None:
        self._listener = listener
        self._token = token
        self._pid = pid
        self.arguments = arguments

    def memory(self, at: int, size: int) -> bytes:
        with open(f"/proc/{self._pid}/mem", "rb", 0) as file:
            data = os.pread(file.fileno(), size, at)
        if len(data) < size:
            raise OSError(errno.EFAULT, "a bad address")
        return data

    def path(self, at: int) -> str:
        """A path, read page by page: the next one need not be there."""
        found = b""
        while len(found) < _PATH_BYTES:
            part = self.memory(at + len(found), _PAGE - (at + len(found)) % _PAGE)
            end = part.find(b"\0")
            if end >= 0:
                return os.fsdecode(found + part[:end])
            found += part
        raise OSError(errno.ENAMETOOLONG, "a path too long")

    def times(self, at: int, unit: int) -> bytes | None:
        """Two times as `struct timespec`; `unit` is what the second half of each counts, or 0 if there is none."""
        if at == 0:
            return None
        if unit == 0:
            access, change = struct.unpack("=2q", self.memory(at, 16))
            return struct.pack("=4q", access, 0, change, 0)
        values = struct.unpack("=4q", self.memory(at, 32))
        return struct.pack("=4q", values[0], values[1] * unit, values[2], values[3] * unit)

    def directory(self, fd: int) -> str:
        name = "cwd" if fd & 0xFFFFFFFF == _CWD else f"fd/{fd & 0xFFFFFFFF}"
        try:
            return os.readlink(f"/proc/{self._pid}/{name}")
        except FileNotFoundError:
            raise OSError(errno.EBADF, "no such descriptor") from None

    @contextlib.contextmanager
    def descriptor(self, fd: int) -> Iterator[int]:
        """A handle of the file behind a descriptor of the thread's."""
        try:
            handle = os.open(f"/proc/{self._pid}/fd/{fd & 0xFFFFFFFF}", os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OSError(errno.EBADF, "no such descriptor") from None
        try:
            yield handle
        finally:
            os.close(handle)

    def watches(self, fd: int) -> set[str]:
        try:
            return _watches(self._pid, fd & 0xFFFFFFFF)
        except FileNotFoundError:
            raise OSError(errno.EBADF, "no such descriptor") from None

    def add_descriptor(self, fd: int, flags: int) -> int:
        """Give the thread a copy of a descriptor of ours; its number there."""
        request = bytearray(struct.pack("=QIIII", self._token, 0, fd, 0, flags))
        return int(fcntl.ioctl(self._listener, _ADD_DESCRIPTOR, request))

    def confirm(self) -> None:
        """Check that the caller still waits, so that what was read under its pid is its own."""
        fcntl.ioctl(self._listener, _STILL_WAITING, bytearray(struct.pack("=Q", self._token)))


class _Roots:
    """Directories below which files may be opened."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._roots = {}
        for path in paths:
            with contextlib.suppress(OSError):
                fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                self._roots[path] = self._roots[os.path.realpath(path)] = fd

    def hold(self, path: str) -> bool:
        return any(path == root or path.startswith(root + "/") for root in self._roots)

    def _beneath(self, path: str) -> tuple[int, str]:
        for root, fd in self._roots.items():
            if path == root or path.startswith(root + "/"):
                return fd, path[len(root) + 1 :].lstrip("/") or "."
        raise OSError(errno.EACCES, "outside")

    @contextlib.contextmanager
    def opened(self, path: str, follow: bool) -> Iterator[int]:
        """A handle of the file at an absolute path, reached without leaving a root."""
        root, below = self._beneath(path)
        how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW), 0, _BENEATH)
        try:
            fd = _call(_OPENAT2, ctypes.c_int(root), os.fsencode(below), how, ctypes.c_size_t(len(how)))
        except OSError as error:
            raise OSError(errno.EACCES if error.errno == errno.EXDEV else error.errno, "not opened") from error
        try:
            yield fd
        finally:
            os.close(fd)


def _carry_out(request: _Request, name: str, change: _Roots, watchers: _Watchers) -> int:
    first, second, third, fourth, *_ = request.arguments
    if name == "inotify_add_watch":
        return watchers.watch(request, first, second, third & 0xFFFFFFFF)
    if name in ("inotify_init", "inotify_init1"):
        return watchers.make(request, first & 0xFFFFFFFF if name == "inotify_init1" else 0)
    if name in ("chmod", "fchmod", "fchmodat", "fchmodat2"):
        act, directory, path, flags = {
            "chmod": (_mode(second), _CWD, first, 0),
            "fchmod": (_mode(second), first, 0, 0),
            "fchmodat": (_mode(third), first, second, 0),
            "fchmodat2": (_mode(third), first, second, fourth),
        }[name]
        if path == 0 and name != "fchmod":
            raise OSError(errno.EFAULT, "no path")
    else:
        at, unit, directory, path, flags = {
            "utime": (second, 0, _CWD, first, 0),
            "utimes": (second, 1000, _CWD, first, 0),
            "futimesat": (third, 1000, first, second, 0),
            "utimensat": (third, 1, first, second, fourth),
        }[name]
        act = _times(request.times(at, unit))
    text = request.path(path) if path else ""
    if text.startswith(_OWN_FILES) and text[len(_OWN_FILES) :].isdecimal():
        return _on_descriptor(request, change, int(text[len(_OWN_FILES) :]), act)
    if not text and (path == 0 or flags & _EMPTY_PATH) and directory & 0xFFFFFFFF != _CWD:
        return _on_descriptor(request, change, directory, act)
    if not text and not flags & _EMPTY_PATH:
        raise OSError(errno.ENOENT, "an empty path")
    whole = text if text.startswith("/") else f"{request.directory(directory)}/{text}"
    request.confirm()
    with change.opened(whole, not flags & _NO_FOLLOW) as fd:
        return act(fd)


def _on_descriptor(request: _Request, roots: _Roots, fd: int, act: Callable[[int], int]) -> int:
    with request.descriptor(fd) as copy:
        request.confirm()
        if not roots.hold(os.readlink(f"/proc/self/fd/{copy}")):
            raise OSError(errno.EACCES, "outside")
        return act(copy)


def _mode(mode: int) -> Callable[[int], int]:
    def act(fd: int) -> int:
        os.chmod(f"{_OWN_FILES}{fd}", mode & 0o1777)
        return 0

    return act


def _times(times: bytes | None) -> Callable[[int], int]:
    def act(fd: int) -> int:
        return _call(_UTIMENSAT, ctypes.c_int(fd), b"", times, ctypes.c_int(_EMPTY_PATH))

    return act


class _Watchers:
    """The inotify instances of confined programs. Each is known by the watch that was put into it first."""

    def __init__(self, roots: _Roots, processes: Callable[[], Sequence[int]]) -> None:
        self._roots = roots
        self._processes = processes
        self._made: dict[str, tuple[int, int]] = {}

    def make(self, request: _Request, flags: int) -> int:
        if flags & ~(os.O_CLOEXEC | os.O_NONBLOCK):
            raise OSError(errno.EINVAL, "unknown flags")
        if len(self._made) >= _WATCHERS:
            self._close_unused()
        mark = os.memfd_create("codepilot-watch")
        watcher = int(_libc.inotify_init1(ctypes.c_int(os.O_CLOEXEC | flags)))
        if watcher < 0:
            os.close(mark)
            raise OSError(ctypes.get_errno(), "no more watchers")
        _libc.inotify_add_watch(watcher, f"{_OWN_FILES}{mark}".encode(), ctypes.c_uint(_IN_DELETE_SELF))
        self._made.update(dict.fromkeys(_watches(os.getpid(), watcher), (watcher, mark)))
        return request.add_descriptor(watcher, flags & os.O_CLOEXEC)

    def watch(self, request: _Request, fd: int, path: int, mask: int) -> int:
        text = request.path(path)
        whole = text if text.startswith("/") else f"{request.directory(_CWD)}/{text}"
        with self._roots.opened(whole, not mask & _WATCH_NO_FOLLOW) as file:
            known = request.watches(fd) & self._made.keys()
            request.confirm()
            if not known:
                raise OSError(errno.EINVAL, "not a watcher")
            mask &= ~_WATCH_NO_FOLLOW
            watcher = self._made[known.pop()][0]
            found = int(_libc.inotify_add_watch(watcher, f"{_OWN_FILES}{file}".encode(), ctypes.c_uint(mask)))
        if found < 0:
            raise OSError(ctypes.get_errno(), "not watched")
        return found

    def _close_unused(self) -> None:
        used: set[str] = set()
        for pid in self._processes():
            with contextlib.suppress(OSError):
                for number in os.listdir(f"/proc/{pid}/fdinfo"):
                    with contextlib.suppress(OSError):
                        used |= _watches(pid, int(number))
        for key in self._made.keys() - used:
            for fd in self._made.pop(key):
                os.close(fd)


def _watches(pid: int, fd: int) -> set[str]:
    """The files that an inotify instance watches, as inode and device; none for any other descriptor."""
    with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii", errors="replace") as file:
        lines = [line.split() for line in file if line.startswith("inotify ")]
    return {f"{line[2]} {line[3]}" for line in lines}
