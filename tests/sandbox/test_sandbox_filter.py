"""The system call filter as a program: interpreted here, for both architectures, call by call."""

from __future__ import annotations

import errno
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.failures import CodePilotError
from codepilot.sandbox.levels import seccomp
from codepilot.sandbox.levels.syscalls import NEWEST

ALLOW, KILL = 0x7FFF0000, 0x80000000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = sorted(AUDIT)


def verdict(program: bytes, arch: int, number: int, *arguments: int) -> int:
    """Run the filter on one call, as the kernel would."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    data = struct.pack("=iIQ6Q", struct.unpack("=i", struct.pack("=I", number))[0], arch, 0, *padded)
    code = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        op, jt, jf, k = code[at]
        at += 1
        if op == 0x20:
            accumulator = struct.unpack_from("=I", data, k)[0]
        elif op == 0x54:
            accumulator &= k
        elif op == 0x06:
            return k
        else:
            taken = {0x15: accumulator == k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}[op]
            at += jt if taken else jf


def refused(value: int) -> int | None:
    return value & 0xFFFF if value & 0xFFFF0000 == 0x00050000 else None


@pytest.fixture(params=MACHINES)
def machine(request):
    return request.param


def number(machine: str, name: str) -> int:
    found = seccomp._CALLS[name][MACHINES[::-1].index(machine)]
    assert found is not None
    return found


SETS = [seccomp.NAMESPACED, seccomp.SHARED_OFFLINE, seccomp.SHARED_ONLINE]


@pytest.mark.parametrize("sockets", SETS)
def test_a_foreign_architecture_is_killed(machine, sockets):
    program = seccomp.build(sockets, machine)
    assert verdict(program, 0x40000003, 1) == KILL


@pytest.mark.parametrize("sockets", SETS)
@given(call=st.integers(0, 2**32 - 1), arguments=st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_every_call_gets_an_answer(sockets, call, arguments):
    for machine in MACHINES:
        answer = verdict(seccomp.build(sockets, machine), AUDIT[machine], call, *arguments)
        assert answer == ALLOW or refused(answer) is not None


def test_the_second_abi_of_x86_64_is_absent():
    program = seccomp.build(seccomp.NAMESPACED, "x86_64")
    assert refused(verdict(program, AUDIT["x86_64"], 0x40000000 | 101)) == errno.ENOSYS


@pytest.mark.parametrize("name", ["ptrace", "mount", "unshare", "setns", "bpf", "keyctl", "io_uring_setup", "shmget"])
@pytest.mark.parametrize("sockets", SETS)
def test_dangerous_calls_are_not_permitted(machine, sockets, name):
    program = seccomp.build(sockets, machine)
    assert refused(verdict(program, AUDIT[machine], number(machine, name))) == errno.EPERM


@pytest.mark.parametrize("name", ["clone3", "memfd_create", "mq_notify", "timer_create"])
def test_calls_that_libraries_can_do_without_look_absent(machine, name):
    program = seccomp.build(seccomp.NAMESPACED, machine)
    assert refused(verdict(program, AUDIT[machine], number(machine, name))) == errno.ENOSYS


@pytest.mark.parametrize("sockets", SETS)
def test_a_call_newer_than_the_filter_is_absent(machine, sockets):
    """Nobody has judged it, and a library falls back as on an older kernel."""
    program = seccomp.build(sockets, machine)
    assert max(number for numbers in seccomp._CALLS.values() for number in numbers if number is not None) <= NEWEST
    for call in (NEWEST + 1, NEWEST + 500, 2**31 - 1, 2**32 - 1):
        assert refused(verdict(program, AUDIT[machine], call)) == errno.ENOSYS
    assert verdict(program, AUDIT[machine], 0 if machine == "x86_64" else 63) == ALLOW


def test_clone_makes_threads_and_children_but_no_namespaces(machine):
    program = seccomp.build(seccomp.NAMESPACED, machine)
    clone = number(machine, "clone")
    assert verdict(program, AUDIT[machine], clone, 0x3D0F00) == ALLOW
    assert verdict(program, AUDIT[machine], clone, 17) == ALLOW
    for bit in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert refused(verdict(program, AUDIT[machine], clone, 17 | bit)) == errno.EPERM


@given(high=st.integers(0, 2**32 - 1))
def test_the_upper_half_of_a_word_does_not_hide_an_ioctl(high):
    program = seccomp.build(seccomp.NAMESPACED, "x86_64")
    assert refused(verdict(program, AUDIT["x86_64"], 16, 0, high << 32 | 0x5412)) == errno.EPERM


@pytest.mark.parametrize(
    ("sockets", "allowed"),
    [
        (seccomp.NAMESPACED, {1, 2, 10, 16}),
        (seccomp.SHARED_OFFLINE, set()),
        (seccomp.SHARED_ONLINE, {2, 10, 16}),
    ],
)
def test_socket_families(machine, sockets, allowed):
    program = seccomp.build(sockets, machine)
    call = number(machine, "socket")
    assert {family for family in range(50) if verdict(program, AUDIT[machine], call, family) == ALLOW} == allowed


def test_pairs_where_nothing_else_is_allowed_are_connected_ones(machine):
    program = seccomp.build(seccomp.SHARED_OFFLINE, machine)
    call = number(machine, "socketpair")
    cloexec = 0o2000000

    def pair(family: int, kind: int) -> bool:
        return verdict(program, AUDIT[machine], call, family, kind) == ALLOW

    assert pair(socket.AF_UNIX, socket.SOCK_STREAM | cloexec)
    assert not pair(socket.AF_UNIX, socket.SOCK_DGRAM | cloexec)
    assert not pair(socket.AF_INET, socket.SOCK_STREAM)


def test_an_unknown_architecture_is_reported():
    with pytest.raises(CodePilotError, match="riscv64"):
        seccomp.build(seccomp.NAMESPACED, "riscv64")
