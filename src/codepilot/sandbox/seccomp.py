"""A seccomp filter as bytes: a small BPF assembler and the list of calls that no confined program needs."""

from __future__ import annotations

import errno
import platform
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from codepilot.core.failures import CodePilotError, FailureKind

_LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_EQ = 0x15
_JUMP_GE = 0x35
_JUMP_SET = 0x45
_AND = 0x54
_RETURN = 0x06

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000

_NR, _ARCH = 0, 4
_X32_BIT = 0x40000000

_CLONE_NAMESPACES = 0x7E020000  # NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_PERSONALITIES = (0x0, 0xFFFFFFFF, 0x0040000)  # the default, a query, and ADDR_NO_RANDOMIZE
_SOCK_TYPE_MASK = 0xF

# x86_64 number, aarch64 number; None where the architecture has no such call.
_CALLS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmdt": (67, 197),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, None),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "ustat": (136, None),
    "vhangup": (153, 58),
    "_sysctl": (156, None),
}

# Calls whose answer depends on their arguments, or that must look absent so that libraries fall back.
_BY_ARGUMENT = frozenset(
    {"clone", "ioctl", "personality", "prlimit64", "sched_setaffinity", "socket", "socketpair", "connect"}
)
_ABSENT = frozenset({"clone3", "memfd_create", "memfd_secret"})

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}


@dataclass(frozen=True)
class Sockets:
    """Which sockets may be made.

    `pairs_only` is for levels that share the host's namespaces: of Unix sockets nothing but connected pairs is left,
    and no limit of another process can be changed.
    """

    families: tuple[int, ...]
    pairs_only: bool = False


NAMESPACED = Sockets((socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16))  # 16 is NETLINK
"""For a level with a network namespace: nothing in it leads outside."""

SHARED_OFFLINE = Sockets((), pairs_only=True)
"""For a level without one: Landlock does not mediate connect() to a named Unix socket, so none can be made."""

SHARED_ONLINE = Sockets((socket.AF_INET, socket.AF_INET6, 16), pairs_only=True)


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
    block = _Program()
    block.load_argument(index)
    if mask is not None:
        block.emit(_AND, mask)
    values = tuple(allowed)
    for place, value in enumerate(values):
        block.emit(_JUMP_EQ, value, len(values) - place, 0)
    block.refuse(number)
    block.emit(_RETURN, _ALLOW)
    return block


def _argument_not_in(index: int, refused: Iterable[int], number: int) -> _Program:
    block = _Program()
    block.load_argument(index)
    values = tuple(refused)
    for place, value in enumerate(values):
        block.emit(_JUMP_EQ, value, len(values) - place, 0)
    block.emit(_RETURN, _ALLOW)
    block.refuse(number)
    return block


def _no_namespaces() -> _Program:
    block = _Program()
    block.load_argument(0)
    block.emit(_JUMP_SET, _CLONE_NAMESPACES, 1, 0)
    block.emit(_RETURN, _ALLOW)
    block.refuse(errno.EPERM)
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
    for name, block in _blocks(sockets, pinned):
        number = _CALLS[name][column]
        if number is not None:
            program.on_call(number, block)
    program.emit(_RETURN, _ALLOW)
    return program.bytes()


def _blocks(sockets: Sockets, pinned: bool) -> list[tuple[str, _Program]]:
    blocks = [
        ("clone", _no_namespaces()),
        ("ioctl", _argument_not_in(1, (_TIOCSTI, _TIOCLINUX), errno.EPERM)),
        ("personality", _argument_in(0, _PERSONALITIES, errno.EPERM)),
        ("socket", _argument_in(0, sockets.families, errno.EAFNOSUPPORT)),
    ]
    if pinned:
        blocks.append(("sched_setaffinity", _always(errno.EPERM)))
    if sockets.pairs_only:
        blocks.append(("prlimit64", _argument_in(0, (0,), errno.EPERM)))
        blocks.append(("socketpair", _unix_stream_pairs()))
        if not sockets.families:
            blocks.append(("connect", _always(errno.EACCES)))
    else:
        blocks.append(("socketpair", _argument_in(0, sockets.families, errno.EAFNOSUPPORT)))
    blocks += [(name, _always(errno.ENOSYS)) for name in sorted(_ABSENT)]
    blocks += [(name, _always(errno.EPERM)) for name in sorted(_CALLS.keys() - _ABSENT - _BY_ARGUMENT)]
    return blocks
