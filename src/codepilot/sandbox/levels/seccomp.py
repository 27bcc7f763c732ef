"""A seccomp filter as bytes: a small BPF assembler and the list of calls that no confined program needs."""

from __future__ import annotations

import errno
import os
import platform
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.levels.syscalls import CALLS as _CALLS
from codepilot.sandbox.levels.syscalls import NEWEST

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQ = 0x15
_JUMP_GE = 0x35
_JUMP_SET = 0x45
_AND = 0x54
_RETURN = 0x06

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000
_NOTIFY = 0x7FC00000

_NR, _ARCH = 0, 4
_X32_BIT = 0x40000000

_CLONE_NAMESPACES = 0x7E020000  # NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TIOCSTI, _TIOCLINUX, _TIOCSETD = 0x5412, 0x541C, 0x5423
_LEASES = (1024, 1039, 1040)  # F_SETLEASE, F_GETDELEG, F_SETDELEG
"""Opening a file under a lease waits for the holder, on the host too."""
_SETSIG = 10  # F_SETSIG
"""With SIGCONT, a change of a file would let a frozen process go on."""
_PERSONALITIES = (0x0, 0xFFFFFFFF, 0x0040000)  # the default, a query, and ADDR_NO_RANDOMIZE
_SOCK_TYPE_MASK = 0xF
_SET_ID = 0o6000
_CREATES = 0o100 | 0o20000000  # O_CREAT, and the bit that makes O_TMPFILE
_AF_NETLINK, _NETLINK_ROUTE = 16, 0
_AS_IT_IS = 0xFFFFFFFF  # the uid or gid that chown does not change

# Calls whose answer depends on their arguments, or that must look absent so that libraries fall back.
_BY_ARGUMENT = frozenset(
    {"clone", "fcntl", "ioctl", "personality", "prlimit64", "sched_setaffinity", "socket", "socketpair", "connect"}
)
_ABSENT = frozenset({"clone3", "io_setup", "memfd_create", "memfd_secret", "mq_notify", "openat2", "timer_create"})
"""openat2 takes its mode from memory, where a filter cannot see a set-id bit, and timer_create its signal: with SIGCONT
the kernel would let a frozen process go on."""

# The argument that holds a new file's mode, and the one that holds the flags if they decide whether it counts.
_MODES: dict[str, tuple[int, int | None]] = {
    "chmod": (1, None),
    "creat": (1, None),
    "fchmod": (1, None),
    "fchmodat": (2, None),
    "fchmodat2": (2, None),
    "mknod": (1, None),
    "mknodat": (2, None),
    "open": (2, 1),
    "openat": (3, 2),
}

# Calls that change another process of the same user, by the argument that names it; 0 is the caller.
_OF_OTHERS = {
    "migrate_pages": 0,
    "move_pages": 0,
    "prlimit64": 0,
    "sched_setaffinity": 0,
    "sched_setattr": 0,
    "sched_setparam": 0,
    "sched_setscheduler": 0,
}

# Calls that give a file away, by the argument that holds the new owner; the group follows it.
_OWNERS = {"chown": 1, "fchown": 1, "fchownat": 2, "lchown": 1}

_ATTRIBUTES = frozenset(
    {"fgetxattr", "file_setattr", "flistxattr", "fremovexattr", "fsetxattr", "getxattr", "getxattrat", "lgetxattr"}
    | {"listxattr", "listxattrat", "llistxattr", "lremovexattr", "lsetxattr"}
    | {"removexattr", "removexattrat", "setxattr", "setxattrat"}
)
_QUEUES = frozenset({"mq_open", "mq_unlink"})
_IOPRIO_PROCESS, _PRIO_PROCESS = 1, 0

NOTIFIED = frozenset(
    {"chmod", "fchmod", "fchmodat", "fchmodat2", "futimesat", "inotify_add_watch", "inotify_init", "inotify_init1"}
    | {"utime", "utimensat", "utimes"}
)
"""Calls that Landlock has no hook for: the notifier carries them out, where the workspace is concerned."""

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}


@dataclass(frozen=True)
class Sockets:
    """Which sockets may be made.

    `pairs_only` is where the host's network is shared: of Unix sockets nothing but connected pairs is left. `shared` is
    for levels that share all of the host's namespaces: no other process's limits or scheduling can be changed, and no
    file given away or given attributes.
    """

    families: tuple[int, ...]
    pairs_only: bool = False
    shared: bool = False


NAMESPACED = Sockets((socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16))  # 16 is NETLINK
"""For a level with a network namespace: nothing in it leads outside."""

NAMESPACED_ONLINE = Sockets((socket.AF_INET, socket.AF_INET6, 16), pairs_only=True)
"""For the same level with the host's network, in which the host's abstract sockets are."""

SHARED_OFFLINE = Sockets((), pairs_only=True, shared=True)
"""For a level without one: Landlock does not mediate connect() to a named Unix socket, so none can be made."""

SHARED_ONLINE = Sockets((socket.AF_INET, socket.AF_INET6, 16), pairs_only=True, shared=True)


class _Program:
    """BPF instructions; each check is a block that jumps only forward and within itself."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int]] = []

    def emit(self, code: int, k: int, jt: int = 0, jf: int = 0) -> None:
        self._code.append((code, jt, jf, k & 0xFFFFFFFF))

    def load_argument(self, index: int) -> None:
        self.emit(_LOAD, 16 + 8 * index)

    def refuse(self, number: int) -> None:
        self.emit(_RETURN, _ERRNO | number)

    def on_call(self, number: int, block: _Program) -> None:
        """Run `block` for the call `number`; `block` must end in a return."""
        self.emit(_JUMP_EQ, number, 0, len(block._code))
        self._code.extend(block._code)

    def bytes(self) -> bytes:
        return b"".join(struct.pack("=HBBI", *instruction) for instruction in self._code)


def _always(number: int) -> _Program:
    block = _Program()
    block.refuse(number)
    return block


def _argument_in(index: int, allowed: Iterable[int], number: int, mask: int | None = None) -> _Program:
    """Allow the call if the low word of the argument is one of `allowed`, otherwise fail it with `number`."""
    return _by_argument(index, tuple(allowed), _ALLOW, _ERRNO | number, mask)


def _argument_not_in(index: int, refused: Iterable[int], number: int) -> _Program:
    return _by_argument(index, tuple(refused), _ERRNO | number, _ALLOW)


def _by_argument(
    index: int, values: tuple[int, ...], matched: int, otherwise: int, mask: int | None = None
) -> _Program:
    block = _Program()
    block.load_argument(index)
    if mask is not None:
        block.emit(_AND, mask)
    for place, value in enumerate(values):
        block.emit(_JUMP_EQ, value, len(values) - place, 0)
    block.emit(_RETURN, otherwise)
    block.emit(_RETURN, matched)
    return block


def _argument_has(index: int, bits: int, number: int, flags: int | None = None) -> _Program:
    """Fail the call with `number` if the argument has any of `bits`; with `flags`, only where a file may be made."""
    block = _Program()
    if flags is not None:
        block.load_argument(flags)
        block.emit(_JUMP_SET, _CREATES, 1, 0)
        block.emit(_RETURN, _ALLOW)
    block.load_argument(index)
    block.emit(_JUMP_SET, bits, 1, 0)
    block.emit(_RETURN, _ALLOW)
    block.refuse(number)
    return block


def _own_only(first: int, user: int, group: int) -> _Program:
    """Leave every file with its owner: pretend for the caller's own ids, refuse others."""
    block = _Program()
    for index, mine in ((first, user), (first + 1, group)):
        block.load_argument(index)
        block.emit(_JUMP_EQ, mine, 2, 0)
        block.emit(_JUMP_EQ, _AS_IT_IS, 1, 0)
        block.refuse(errno.EPERM)
    block.refuse(0)
    return block


def _own_priority(process: int) -> _Program:
    """A priority of the calling process alone; `process` is the first argument that means a process."""
    block = _Program()
    block.load_argument(0)
    block.emit(_JUMP_EQ, process, 1, 0)
    block.refuse(errno.EPERM)
    block._code.extend(_argument_in(1, (0,), errno.EPERM)._code)
    return block


def _families(families: Iterable[int]) -> _Program:
    """Sockets of these families; of netlink only what asks for routes and addresses."""
    block = _Program()
    block.load_argument(0)
    block.emit(_JUMP_EQ, _AF_NETLINK, 0, 3)
    block.load_argument(2)
    block.emit(_JUMP_EQ, _NETLINK_ROUTE, 1, 0)
    block.refuse(errno.EAFNOSUPPORT)
    block._code.extend(_argument_in(0, families, errno.EAFNOSUPPORT)._code)
    return block


def _unix_stream_pairs() -> _Program:
    """Pairs of connected Unix sockets; a datagram pair could be sent to any named socket."""
    block = _Program()
    block.load_argument(0)
    block.emit(_JUMP_EQ, socket.AF_UNIX, 1, 0)
    block.refuse(errno.EAFNOSUPPORT)
    kinds = (int(socket.SOCK_STREAM), int(socket.SOCK_SEQPACKET))
    block._code.extend(_argument_in(1, kinds, errno.EAFNOSUPPORT, _SOCK_TYPE_MASK)._code)
    return block


def supported(machine: str | None = None) -> bool:
    return (machine or platform.machine()) in _ARCHITECTURES


def build(sockets: Sockets, machine: str | None = None, pinned: bool = False) -> bytes:
    """The filter as an array of `struct sock_filter`, for this machine unless another is named.

    `pinned` keeps a program on the processors it was started on, where nothing else limits its processor time.
    """
    machine = machine or platform.machine()
    if not supported(machine):
        raise CodePilotError(
            FailureKind.SANDBOX_UNAVAILABLE, f"no system call filter is known for the architecture {machine}"
        )
    column, audit_arch = _ARCHITECTURES[machine]
    program = _Program()
    program.emit(_LOAD, _ARCH)
    program.emit(_JUMP_EQ, audit_arch, 1, 0)
    program.emit(_RETURN, _KILL)
    program.emit(_LOAD, _NR)
    if machine == "x86_64":
        program.emit(_JUMP_GE, _X32_BIT, 0, 1)
        program.refuse(errno.ENOSYS)
    program.emit(_JUMP_GE, NEWEST + 1, 0, 1)
    program.refuse(errno.ENOSYS)
    for name, block in _blocks(sockets, pinned):
        number = _CALLS[name][column]
        if number is not None:
            program.on_call(number, block)
    program.emit(_RETURN, _ALLOW)
    return program.bytes()


def notify_filter(machine: str | None = None) -> bytes:
    """A second filter: it hands `NOTIFIED` calls to the notifier and leaves all others to the first."""
    program = _Program()
    program.emit(_LOAD, _NR)
    hand_over = _Program()
    hand_over.emit(_RETURN, _NOTIFY)
    for number in sorted(notified_calls(machine)):
        program.on_call(number, hand_over)
    program.emit(_RETURN, _ALLOW)
    return program.bytes()


def notified_calls(machine: str | None = None) -> dict[int, str]:
    """The names of the `NOTIFIED` calls by their numbers."""
    column, _ = _ARCHITECTURES[machine or platform.machine()]
    return {number: name for name in NOTIFIED if (number := _CALLS[name][column]) is not None}


def _blocks(sockets: Sockets, pinned: bool) -> list[tuple[str, _Program]]:
    blocks = [
        ("clone", _argument_has(0, _CLONE_NAMESPACES, errno.EPERM)),
        ("fallocate", _always(errno.EOPNOTSUPP)),  # it would fill a disk before the supervisor looks
        ("fcntl", _argument_not_in(1, (*_LEASES, _SETSIG), errno.EPERM)),
        ("ioctl", _argument_not_in(1, (_TIOCSTI, _TIOCLINUX, _TIOCSETD), errno.EPERM)),
        ("personality", _argument_in(0, _PERSONALITIES, errno.EPERM)),
        ("socket", _families(sockets.families)),
    ]
    if pinned:
        blocks.append(("sched_setaffinity", _always(errno.EPERM)))
    blocks += [(name, _argument_has(mode, _SET_ID, errno.EPERM, flags)) for name, (mode, flags) in _MODES.items()]
    if sockets.pairs_only:
        blocks.append(("socketpair", _unix_stream_pairs()))
        if not sockets.families:
            blocks.append(("connect", _always(errno.EACCES)))
    else:
        blocks.append(("socketpair", _argument_in(0, sockets.families, errno.EAFNOSUPPORT)))
    if sockets.shared:
        blocks += _for_shared_namespaces()
    blocks += [(name, _always(errno.ENOSYS)) for name in sorted(_ABSENT)]
    special = {*_ABSENT, *_BY_ARGUMENT, *_MODES, *_OF_OTHERS, *_OWNERS, *_ATTRIBUTES, *_QUEUES, *NOTIFIED}
    special |= {"fallocate", "ioprio_set", "setpriority"}
    blocks += [(name, _always(errno.EPERM)) for name in sorted(_CALLS.keys() - special)]
    return blocks


def _for_shared_namespaces() -> list[tuple[str, _Program]]:
    """Protect what namespaces would hide: other processes of the user, and files outside."""
    blocks = [(name, _argument_in(index, (0,), errno.EPERM)) for name, index in _OF_OTHERS.items()]
    blocks.append(("setpriority", _own_priority(_PRIO_PROCESS)))
    blocks.append(("ioprio_set", _own_priority(_IOPRIO_PROCESS)))
    blocks += [(name, _always(errno.EPERM)) for name in sorted(_QUEUES)]
    user, group = os.getuid(), os.getgid()
    blocks += [(name, _own_only(index, user, group)) for name, index in _OWNERS.items()]
    return blocks + [(name, _always(errno.ENOTSUP)) for name in sorted(_ATTRIBUTES)]
