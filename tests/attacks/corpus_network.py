"""Getting out: every kind of socket, and sockets of the host that are not on a network."""

# ruff: noqa: E501  (programs are data)
from __future__ import annotations

from attack_kit import Attack, attack, by

NETWORK, ABSTRACT = "network", "abstract sockets"
NO_SOCKET = by("seccomp", "EAFNOSUPPORT")
ALONE = by("network namespace", "ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL")


def sockets(name: str, body: str, bubblewrap: object = ALONE, category: str = NETWORK, **more: object) -> Attack:
    return attack(name, category, "import socket\n" + body, bubblewrap, NO_SOCKET, **more)  # type: ignore[arg-type]


OUT: tuple[Attack, ...] = (
    sockets(
        "connect to the host over TCP",
        'tried(lambda: socket.create_connection(("127.0.0.1", T["tcp"]), 2).send(b"out"))',
        control=True,
    ),
    sockets(
        "connect to the host over IPv6",
        'tried(lambda: socket.create_connection(("::1", T["tcp6"]), 2).send(b"out"))',
        control=True,
    ),
    sockets(
        "send the host a datagram",
        "s = tried(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)\n"
        's and tried(s.sendto, b"out", ("127.0.0.1", T["udp"]))',
        by("network namespace", "done"),
        control=True,
    ),
    sockets(
        "send TCP data while connecting",
        's = tried(socket.socket)\ns and tried(s.sendto, b"out", 0x20000000, ("127.0.0.1", T["tcp"]))',
        by("network namespace", "done", "ECONNREFUSED", "EOPNOTSUPP", "EPIPE"),
    ),
    sockets(
        "reach the outer network",
        'for host in ("192.0.2.1", "10.0.0.1", "8.8.8.8"): tried(lambda: socket.create_connection((host, 80), 1))',
    ),
    sockets(
        "look a name up",
        "s = tried(socket.socket, socket.AF_INET, socket.SOCK_DGRAM)\n"
        'for server in ("127.0.0.53", "1.1.1.1"): s and tried(s.sendto, b"\\0\\1\\1\\0\\0\\1" + bytes(6), (server, 53))\n'
        "s and s.settimeout(0.2)\ns and tried(s.recv, 10)",
        by("network namespace", "done", "ENETUNREACH", "ECONNREFUSED", "None"),
    ),
    sockets("ping", "tried(socket.socket, socket.AF_INET, socket.SOCK_DGRAM, 1)", by("network namespace", "EACCES")),
    sockets(
        "make raw sockets",
        "tried(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)\n"
        "tried(socket.socket, socket.AF_INET6, socket.SOCK_RAW, 58)",
        by("capabilities", "EPERM"),
    ),
    sockets("make a packet socket", "tried(socket.socket, 17, 3, 0)", NO_SOCKET),
    sockets("make a vsock socket to the hypervisor", "tried(socket.socket, 40, 1, 0)", NO_SOCKET),
    sockets("make a Bluetooth socket", "tried(socket.socket, 31, 3, 1)", NO_SOCKET),
    sockets("make a kernel crypto socket", "tried(socket.socket, 38, 5, 0)", NO_SOCKET),
    sockets(
        "make CAN, TIPC, KCM, RDS and XDP sockets",
        "for f in (29, 30, 41, 21, 44): tried(socket.socket, f, 2, 0)",
        NO_SOCKET,
    ),
    sockets(
        "speak to the kernel's configuration over netlink",
        "for protocol in (4, 6, 9, 12, 15, 16): tried(socket.socket, 16, 3, protocol)",
        by("seccomp", "EAFNOSUPPORT"),
    ),
    sockets(
        "bring a network interface up",
        "import struct, fcntl\n"
        's = tried(socket.socket)\ns and tried(fcntl.ioctl, s, 0x8914, struct.pack("16sH14x", b"lo", 0))',
        by("capabilities", "done", "EPERM"),
    ),
    sockets(
        "speak to the container engine's socket",
        's = tried(socket.socket, socket.AF_UNIX)\ns and tried(s.connect, T["docker"])\n'
        's and tried(s.connect, "/var/run/docker.sock")',
        by("mount namespace", "done", "ENOENT"),
        control=True,
    ),
    sockets(
        "speak to the key agent's socket",
        's = tried(socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM)\ns and tried(s.sendto, b"out", T["agent"])',
        by("mount namespace", "done", "ENOENT"),
        control=True,
    ),
    attack(
        "send through one end of a pair",
        NETWORK,
        "import socket\n"
        "pair = tried(socket.socketpair, socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        'pair and tried(pair[0].sendto, b"out", T["agent"])\n'
        'pair and tried(pair[0].sendto, b"out", "\\0" + T["abstract_datagram"])',
        by("mount namespace", "done", "ENOENT", "ECONNREFUSED"),
        NO_SOCKET,
        control=True,
    ),
    sockets(
        "connect to an abstract socket",
        's = tried(socket.socket, socket.AF_UNIX)\ns and tried(s.connect, "\\0" + T["abstract"])',
        by("network namespace", "done", "ECONNREFUSED"),
        ABSTRACT,
        control=True,
    ),
    sockets(
        "send to an abstract socket",
        "s = tried(socket.socket, socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        's and tried(s.sendto, b"out", "\\0" + T["abstract_datagram"])',
        by("network namespace", "done", "ECONNREFUSED"),
        ABSTRACT,
        control=True,
    ),
    sockets(
        "connect to an abstract socket where the network is on",
        's = tried(socket.socket, socket.AF_UNIX)\ns and tried(s.connect, "\\0" + T["abstract"])',
        NO_SOCKET,
        ABSTRACT,
        network=True,
    ),
)
