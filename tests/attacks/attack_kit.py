"""What an attack is, what it aims at, and how it is judged from the host's side whether anything was harmed.

An attack is data: a program, the category it belongs to, and for each level the layer that must stop it together with
the signs by which that layer is known. Programs run inside with `PRELUDE` before them: `T` names the targets, `tried`
and `call` make an attempt and print its outcome as `@ <errno>` or `@ done …`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import platform
import re
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from codepilot.sandbox import CommandResult, Level, Limits, Mount, Sandbox, SandboxSpec
from codepilot.sandbox.levels.syscalls import CALLS

_libc = ctypes.CDLL(None, use_errno=True)
MB = 1 << 20
ORDINARY = Limits(wall_sec=20, memory_bytes=256 * MB, processes=40, disk_bytes=64 * MB)
LEVELS = (Level.BUBBLEWRAP, Level.LANDLOCK)

LAYERS = {
    "mount namespace": "the path does not exist inside",
    "read-only mount": "the path exists inside and cannot be written",
    "pid namespace": "the process does not exist inside",
    "network namespace": "the address leads nowhere",
    "ipc namespace": "the queue does not exist inside",
    "capabilities": "the kernel demands a capability that nothing inside has",
    "seccomp": "the system call is refused before the kernel acts on it",
    "landlock": "the kernel refuses the path, the signal or the socket",
    "notifier": "the subreaper makes the change itself, below what may be written, or refuses it",
    "closed descriptors": "nothing but the three standard pipes is inherited",
    "clean environment": "the program starts with a fixed, small environment",
    "rlimit": "the kernel refuses more of a resource to the process",
    "sized tmpfs": "the file system in memory is full",
    "cgroup or watchdog": "the kernel holds the tree to its limit or the supervisor sees the breach",
    "wall clock": "the supervisor ends the tree at its deadline",
    "tree end": "nothing outlives the command",
    "output capture": "output is bounded, and only the head and the tail are kept",
    "kernel client": "the host believes nothing of a reply but its form, and gives a broken kernel up",
    "snapshot walk": "the platform's own walk reports it and keeps it out of the change",
    "workspace": "the platform opens, replaces and removes without following a link",
    "patch check": "the patch is refused before anything is written",
    "text cleaning": "what drives a terminal is shown, not sent",
}
"""Every layer that may be named, and how it stops what it stops."""

CATEGORIES = (
    "reads outside",
    "writes outside",
    "environment and secrets",
    "symlinks and hard links",
    ".git",
    "network",
    "abstract sockets",
    "fork bomb",
    "memory bomb",
    "disk fill",
    "output flood",
    "signals and ptrace",
    "/proc tricks",
    "double-fork daemons",
    "ignoring SIGTERM",
    "archive traversal",
    "terminal injection",
    "import tricks",
    "privilege",
    "kernel interpreter",
    "odd trees",
)


@dataclass(frozen=True)
class Stop:
    """The layer that stops an attack, and the signs of it, of which every outcome must be one."""

    layer: str
    signs: frozenset[str]


def by(layer: str, *signs: str) -> Stop:
    return Stop(layer, frozenset(signs))


@dataclass(frozen=True)
class Attack:
    """`kind` says what `program` is: a command, a code action, a command whose tree the host then works on, a patch
    that an agent applies, or a text that the host shows."""

    name: str
    category: str
    program: str
    stops: Mapping[Level, Stop]
    kind: Literal["command", "action", "tree", "patch", "text"] = "command"
    limits: Limits = ORDINARY
    control: bool = False
    """Succeeds against the test's own targets when nothing confines it, and does no other harm."""
    network: bool = False
    machine: str | None = None
    then: str = ""
    """The files that the host asks for after a command of kind `tree`."""


def attack(
    name: str,
    category: str,
    program: str,
    bubblewrap: Stop,
    landlock: Stop | None = None,
    **more: Any,
) -> Attack:
    """An attack that Landlock stops by the same layer unless another is given."""
    stops = {Level.BUBBLEWRAP: bubblewrap, Level.LANDLOCK: landlock or bubblewrap}
    return Attack(name, category, program, stops, **more)


_EXTRA_CALLS: dict[str, tuple[int | None, int | None]] = {
    "capset": (126, 91),
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "getpid": (39, 172),
    "inotify_add_watch": (254, 27),
    "inotify_init1": (294, 26),
    "io_setup": (206, 0),
    "kill": (62, 129),
    "landlock_create_ruleset": (444, 444),
    "mknodat": (259, 33),
    "openat": (257, 56),
    "openat2": (437, 437),
    "pidfd_open": (434, 434),
    "setuid": (105, 146),
    "utimensat": (280, 88),
}


def call_numbers() -> dict[str, int]:
    column = 0 if platform.machine() == "x86_64" else 1
    known = {**_EXTRA_CALLS, **CALLS}
    return {name: found for name, numbers in known.items() if (found := numbers[column]) is not None}


PRELUDE = """
import ctypes, errno, json, os, sys
T = json.loads(sys.argv[1]); NR = T["nr"]
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
def say(outcome): print("@", outcome, flush=True)
def tried(what, *args, **more):
    try: result = what(*args, **more)
    except OSError as error: say(errno.errorcode.get(error.errno, error.errno)); return None
    except MemoryError: say("MemoryError"); return None
    say("done " + ascii(result)[:4000]); return result
def call(name, *args):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(NR[name]), *args)
    say(errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno()) if result == -1 else "done %d" % result)
    return result
def read(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try: return os.read(fd, 3000)
    finally: os.close(fd)
def write(path, data=b"harmed"):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try: return os.write(fd, data)
    finally: os.close(fd)
"""

_REPORTED = re.compile(rb"^@ (.*)$", re.MULTILINE)


def outcomes(stdout: bytes) -> list[str]:
    """What each attempt of a program came to; a success is `done`."""
    return [message.decode(errors="replace").split(" ", 1)[0] for message in _REPORTED.findall(stdout)]


@dataclass
class Targets:
    """Things of the host's that an attack would like to have, and the means to tell whether it got them."""

    place: Path
    token: str = field(default_factory=lambda: f"canary-{secrets.token_hex(12)}")
    mark: str = field(default_factory=lambda: f"mark-{secrets.token_hex(8)}")

    def __post_init__(self) -> None:
        self.outside = self.place / "outside"
        self.tree = self.place / "runs" / "r-1" / "tree"
        self.tree.mkdir(parents=True)
        self.files = {
            "secret": self.outside / "secret.txt",
            "key": self.outside / "home" / ".ssh" / "id_ed25519",
            "git_credentials": self.outside / "home" / ".git-credentials",
            "database": self.place / "codepilot.db",
            "other_workspace": self.place / "runs" / "r-2" / "tree" / "notes.txt",
            "neighbour": self.place / "runs" / "r-1" / "index.json",
        }
        for path in self.files.values():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{self.token}\n")
            path.chmod(0o600)
        with contextlib.suppress(OSError):  # not every file system has them
            os.setxattr(self.files["secret"], "user.canary", self.token.encode())
        self._before = self._state()

    @contextlib.contextmanager
    def standing(self) -> Iterator[Targets]:
        """Listeners, a process and open files for as long as the block lasts."""
        with contextlib.ExitStack() as stack:
            self._sockets = {
                "tcp": _listener(stack, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
                "tcp6": _listener(stack, socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
                "udp": _listener(stack, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
                "abstract": _listener(stack, socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.mark}-stream"),
                "abstract_datagram": _listener(stack, socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{self.mark}-datagram"),
                "docker": _listener(stack, socket.AF_UNIX, socket.SOCK_STREAM, str(self.outside / "docker.sock")),
                "agent": _listener(stack, socket.AF_UNIX, socket.SOCK_DGRAM, str(self.outside / "agent.sock")),
            }
            self._before = self._state()
            sleeper = subprocess.Popen(
                ["/bin/sleep", "600"], env={"CANARY": self.token}, start_new_session=True, stdin=subprocess.DEVNULL
            )
            self._sleeper = sleeper
            stack.callback(sleeper.wait)
            stack.callback(sleeper.kill)
            self._sleeper_before = _process_state(sleeper.pid)
            self._held = os.open(self.files["secret"], os.O_RDONLY)
            self._held_directory = os.open(self.outside, os.O_RDONLY | os.O_DIRECTORY)
            for fd in (self._held, self._held_directory):
                os.set_inheritable(fd, True)
                stack.callback(os.close, fd)
            self._queue = _queue(stack, self.mark)
            os.environ["CANARY_SECRET"] = self.token
            stack.callback(os.environ.pop, "CANARY_SECRET", None)
            yield self

    def named(self) -> dict[str, Any]:
        """What a program is given. The token is not among it."""
        return {
            **{name: str(path) for name, path in self.files.items()},
            "outside": str(self.outside),
            "place": str(self.place),
            "tree": str(self.tree),
            "host_pid": os.getpid(),
            "victim_pid": self._sleeper.pid,
            "fds": [self._held, self._held_directory],
            "tcp": self._sockets["tcp"].getsockname()[1],
            "tcp6": self._sockets["tcp6"].getsockname()[1],
            "udp": self._sockets["udp"].getsockname()[1],
            "abstract": self._sockets["abstract"].getsockname()[1:].decode(),
            "abstract_datagram": self._sockets["abstract_datagram"].getsockname()[1:].decode(),
            "docker": str(self.outside / "docker.sock"),
            "agent": str(self.outside / "agent.sock"),
            "queue": self.mark,
            "nr": call_numbers(),
        }

    def harm(self, *message: bytes) -> list[str]:
        """Everything an attack achieved, as the host sees it."""
        found = ["a secret was printed" for text in message if self.token.encode() in text]
        after = self._state()
        found += [
            f"{path} changed" for path in sorted({*self._before, *after}) if self._before.get(path) != after.get(path)
        ]
        found += [f"the {name} socket was reached" for name, listener in self._sockets.items() if _reached(listener)]
        if self._sleeper.poll() is not None:
            found.append("a process of the host was ended")
        elif _process_state(self._sleeper.pid) != self._sleeper_before:
            found.append("a process of the host was changed")
        if self._queue and not _open_queue(self.mark, os.O_RDONLY):
            found.append("a message queue of the host was removed")
        found += [f"the process {pid} was left behind" for pid in marked(self.mark)]
        return found

    def look_again(self) -> None:
        """Take things as they are now for unharmed."""
        self._before = self._state()

    def forget(self, workspace: str) -> None:
        """A workspace was deleted by the host itself."""
        runs = str(self.place / "runs")
        self._before[runs] = ([name for name in self._before[runs][0] if name != workspace],)  # type: ignore[attr-defined]

    def _state(self) -> dict[str, tuple[object, ...]]:
        """Everything outside the workspace: content, mode, owner, times, attributes."""
        found: dict[str, tuple[object, ...]] = {}
        for directory in (self.outside, self.place, self.place / "runs", self.place / "runs" / "r-1"):
            found[str(directory)] = (sorted(path.name for path in directory.iterdir()),)
        for path in self.files.values():
            if not path.exists():
                found[str(path)] = ("gone",)
                continue
            status = path.stat()
            content = path.read_bytes() if status.st_size < MB else b""
            facts = (status.st_mode, status.st_uid, status.st_nlink, status.st_mtime_ns, status.st_size)
            found[str(path)] = (content, *facts, tuple(os.listxattr(path)))
        return found


def _listener(stack: contextlib.ExitStack, family: int, kind: int, address: Any) -> socket.socket:
    made = stack.enter_context(socket.socket(family, kind))
    made.bind(address)
    if kind == socket.SOCK_STREAM:
        made.listen()
    made.setblocking(False)
    return made


def _queue(stack: contextlib.ExitStack, name: str) -> bool:
    """A message queue of the host's; False if this machine has none."""
    made = _open_queue(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    if made:
        stack.callback(_libc.syscall, ctypes.c_long(call_numbers()["mq_unlink"]), name.encode())
    return made


def _open_queue(name: str, flags: int) -> bool:
    fd = _libc.syscall(ctypes.c_long(call_numbers()["mq_open"]), name.encode(), flags, 0o600, None)
    if fd >= 0:
        os.close(fd)
    return bool(fd >= 0)


def _reached(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(100)
    except BlockingIOError:
        return False
    return True


def _process_state(pid: int) -> tuple[object, ...]:
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    limits = Path(f"/proc/{pid}/limits").read_text()
    adjusted = Path(f"/proc/{pid}/oom_score_adj").read_text()
    scheduling = (os.getpriority(os.PRIO_PROCESS, pid), os.sched_getscheduler(pid), tuple(os.sched_getaffinity(pid)))
    return ("stopped" if state in "Tt" else "running", limits, adjusted, scheduling)


def marked(mark: str) -> list[int]:
    """The processes of the whole machine that carry a mark in their environment."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"MARK={mark}\0".encode() in environ.read_bytes():
                found.append(int(environ.parent.name))
    return found


def settle(targets: Targets) -> None:
    """Give what is dying the moment that the kernel needs to forget it."""
    deadline = time.monotonic() + 5
    while marked(targets.mark) and time.monotonic() < deadline:
        time.sleep(0.01)


def command(program: str, targets: Targets) -> list[str]:
    return ["/usr/bin/python3", "-I", "-S", "-c", PRELUDE + program, json.dumps(targets.named())]


def view(targets: Targets, network: bool = False) -> SandboxSpec:
    mount = Mount(targets.tree, targets.tree, writable=True)
    return SandboxSpec(mount, env={"MARK": targets.mark}, network=network)


def launch(attack: Attack, sandbox: Sandbox, targets: Targets) -> CommandResult:
    return sandbox.run(command(attack.program, targets), view(targets, attack.network), attack.limits)


BATCHED = frozenset(
    {"reads outside", "writes outside", "environment and secrets", "network", "abstract sockets", "/proc tricks"}
    | {"privilege"}
)
"""Categories whose attacks leave the processes and limits of their sandbox alone."""

_BATCH = """
import json, os, subprocess, sys
for number, argv in enumerate(json.load(sys.stdin)):
    os.mkdir(f"batch-{number}")
    try: done = subprocess.run(argv, cwd=f"batch-{number}", stdin=subprocess.DEVNULL, capture_output=True, timeout=20)
    except subprocess.TimeoutExpired as late: done = subprocess.CompletedProcess(argv, 124, late.stdout, late.stderr)
    output = [(text or b"").decode("latin-1") for text in (done.stdout, done.stderr)]
    print(json.dumps([done.returncode, *output]), flush=True)
"""


def independent(attack: Attack) -> bool:
    """Whether an attack can share a sandbox with others: it needs no limit, and none is to stop it."""
    names = {sign for stop in attack.stops.values() for sign in stop.signs}
    errors_only = all(name in (*errno.errorcode.values(), "done", "None", "MemoryError") for name in names)
    plain = attack.limits is ORDINARY and not attack.network and ".." not in attack.program
    return attack.category in BATCHED and plain and errors_only


def launch_batch(attacks: Sequence[Attack], sandbox: Sandbox, targets: Targets) -> list[CommandResult]:
    """Run attacks one after the other inside one sandbox, each in a directory of its own."""
    reported = json.dumps([command(attack.program, targets) for attack in attacks]).encode()
    batch = ["/usr/bin/python3", "-I", "-c", _BATCH]
    done = sandbox.run(batch, view(targets), replace(ORDINARY, wall_sec=300, output_bytes=16 * MB), reported)
    assert done.status == "ok", (done.status, done.limit, done.stderr)
    found = []
    for line in done.stdout.splitlines():
        code, stdout, stderr = json.loads(line)
        code = 128 - code if code < 0 else code
        texts = {"stdout": stdout.encode("latin-1"), "stderr": stderr.encode("latin-1")}
        found.append(CommandResult(status="ok" if code == 0 else "error", exit_code=code, **texts))
    return found


def signs(done: CommandResult) -> set[str]:
    """By what a command was seen to be stopped."""
    found = set(outcomes(done.stdout))
    if done.limit is not None:
        found.add(f"limit:{done.limit}")
    elif done.exit_code is not None and done.exit_code > 128:
        with contextlib.suppress(ValueError):
            found.add(signal.Signals(done.exit_code - 128).name)
    if done.truncated:
        found.add("truncated")
    return found


def expected(attack: Attack, level: Level) -> frozenset[str]:
    return attack.stops[level].signs


def errors(*names: str) -> Iterable[str]:
    assert all(hasattr(errno, name) for name in names)
    return names
