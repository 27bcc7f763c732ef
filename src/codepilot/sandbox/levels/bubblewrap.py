"""The strongest level: namespaces and a filtered view of the host, made by bubblewrap."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from shutil import which
from subprocess import DEVNULL, run

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.levels import LevelBase, host, seccomp
from codepilot.sandbox.levels.terminal import on_terminal
from codepilot.sandbox.limits import cleanup
from codepilot.sandbox.limits.cgroup import Group, enforcement
from codepilot.sandbox.limits.tree import Launch, resource_limits
from codepilot.sandbox.proxy.bridge import bridged
from codepilot.sandbox.spec import Level, Limits, Mount, SandboxSpec, SessionOffer

_MB = 1 << 20
_TMP_BYTES = 256 * _MB
_SHM_BYTES = 64 * _MB
_HOME = "/tmp/home"
_KEPT_HOME = "/run/codepilot/home"
"""Not below /tmp: some programs refuse to keep their files in a temporary directory."""
_RESERVED = ("/", "/proc", "/dev", "/etc", "/usr", "/bin", "/lib", "/lib64", "/sbin", "/tmp")


class Bubblewrap(LevelBase):
    level = Level.BUBBLEWRAP
    remaps = True

    def offer(self) -> SessionOffer:
        return SessionOffer(
            level=self.level, freeze=enforcement().freeze, offers=("home", "mounts", "terminal", "endpoints", "hosts")
        )

    def home(self, spec: SandboxSpec) -> Path:
        return Path(_HOME if spec.home is None else _KEPT_HOME)

    def _launch(self, argv: Sequence[str], spec: SandboxSpec, limits: Limits) -> Launch:
        host.check(argv, spec.env)
        home = os.fspath(self.home(spec))
        with ExitStack() as opened:
            resize = None
            terminal: tuple[int, ...] = ()
            if spec.terminal is not None:
                sizes, resize = _pipe(opened)
                os.set_blocking(resize, False)
                terminal = (sizes,)
                argv, spec = on_terminal(argv, spec, spec.terminal, sizes)
            argv, spec = bridged(argv, spec)
            binary, optional = executable()
            _prepare_mount_points(spec)
            status, status_end = _pipe(opened)
            hold, release = _pipe(opened)
            passwd = _memory_file(opened, host.passwd(home).encode())
            groups = _memory_file(opened, host.GROUP.encode())
            hosts = () if spec.network else (_memory_file(opened, host.HOSTS.encode()),)
            group = Group(limits)
            opened.callback(group.close)
            cpus = group.cpus
            filter_fd = _memory_file(opened, _filter(spec.network, cpus is not None))
            options = [
                *_namespaces(spec, optional),
                *("--json-status-fd", str(status_end), "--block-fd", str(hold), "--seccomp", str(filter_fd)),
                *_system(spec, passwd, groups, *hosts),
                *_mounts(spec),
                *("--remount-ro", "/", "--chdir", os.fspath(spec.cwd or spec.workspace.target)),
            ]
            for name, value in host.environment(home, "/tmp", spec.env).items():
                options += ["--setenv", name, value]
            arguments = _memory_file(opened, b"".join(os.fsencode(option) + b"\0" for option in options))
            command = [cleanup.mark(), "--args", str(arguments), "--", *map(os.fspath, argv)]
            opened.pop_all()
        return Launch(
            command,
            pass_fds=(status_end, hold, passwd, groups, *hosts, filter_fd, arguments, *terminal),
            executable=binary,
            status=status,
            release=release,
            limits=resource_limits(limits, group),
            group=group,
            cpus=cpus,
            watched=(spec.workspace.source, *((spec.home,) if spec.home is not None else ())),
            disk_account=spec.disk_account,
            in_memory={"/tmp": _TMP_BYTES, "/dev/shm": _SHM_BYTES},
            freezer=spec.freezer,
            resize=resize,
        )


@cache
def executable() -> tuple[str, frozenset[str]]:
    """bubblewrap's path, and which of the options that not every version has are there."""
    binary = which("bwrap", path=f"{os.environ.get('PATH', '')}:{host.PATH}")
    if binary is None:
        raise CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, "bubblewrap (`bwrap`) is not installed")
    usage = run([binary, "--help"], stdin=DEVNULL, capture_output=True, text=True, check=False, env={}).stdout
    options = frozenset(word for line in usage.splitlines() for word in line.split()[:1] if word.startswith("--"))
    if "--size" not in options:
        raise CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, "bubblewrap is older than 0.7 and cannot limit /tmp")
    return binary, options


@cache
def _filter(network: bool, pinned: bool) -> bytes:
    return seccomp.build(seccomp.NAMESPACED_ONLINE if network else seccomp.NAMESPACED, pinned=pinned)


def _pipe(opened: ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        opened.callback(os.close, end)
    return ends


def _memory_file(opened: ExitStack, content: bytes) -> int:
    fd = os.memfd_create("codepilot")
    opened.callback(os.close, fd)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _namespaces(spec: SandboxSpec, optional: frozenset[str]) -> list[str]:
    options = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    if not spec.network:
        options.append("--unshare-net")
    if "--disable-userns" in optional:
        options.append("--disable-userns")
    uid = str(host.USER_ID)
    options += ["--uid", uid, "--gid", uid, "--hostname", "codepilot"]
    return [*options, "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]


def _system(spec: SandboxSpec, passwd: int, group: int, hosts: int | None = None) -> list[str]:
    """The host's programs, read-only, and private copies of what programs write to.

    /proc is read-only because a sandbox started by root keeps root's rights over /proc/sys.
    """
    options = [*_shown(spec.network), "--perms", "0644", "--file", str(passwd), "/etc/passwd"]
    options += ["--perms", "0644", "--file", str(group), "/etc/group"]
    if hosts is not None:
        options += ["--perms", "0644", "--file", str(hosts), "/etc/hosts"]
    options += ["--proc", "/proc", "--dev", "/dev"]
    options += ["--perms", "1777", "--size", str(_SHM_BYTES), "--tmpfs", "/dev/shm"]
    options += ["--perms", "1777", "--size", str(_TMP_BYTES), "--tmpfs", "/tmp", "--dir", _HOME]
    for path in _concealed():
        options += ["--ro-bind", "/dev/null", path]
    return [*options, "--remount-ro", "/proc", "--remount-ro", "/dev"]


@cache
def _concealed() -> tuple[str, ...]:
    """Tables of the kernel's that a sandbox started by root could read."""
    return tuple(path for name in host.KERNEL_TABLES if (path := f"/proc/{name}") and Path(path).is_file())


@cache
def _shown(network: bool) -> tuple[str, ...]:
    """The system's directories with their usual links, and what toolchains need of /etc."""
    options = ["--ro-bind", "/usr", "/usr"]
    for name in host.ROOT_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", os.fspath(path.readlink()), os.fspath(path)]
        elif path.is_dir():
            options += ["--ro-bind", os.fspath(path), os.fspath(path)]
    options += ["--perms", "0755", "--dir", "/etc"]
    for path in host.etc_paths(network):
        options += ["--ro-bind", os.path.realpath(path), os.fspath(path)]
    return tuple(options)


def _mounts(spec: SandboxSpec) -> list[str]:
    """The workspace and the extras, outer targets first so that inner ones come to lie on top."""
    options: list[str] = []
    kept = (Mount(spec.home, Path(_KEPT_HOME), writable=True),) if spec.home is not None else ()
    for mount in sorted((spec.workspace, *kept, *spec.mounts), key=lambda mount: len(mount.target.parts)):
        if _shown_already(mount):
            continue
        _check(mount, spec)
        writable = mount is spec.workspace or mount.writable
        options += ["--bind" if writable else "--ro-bind", os.path.realpath(mount.source), os.fspath(mount.target)]
    return options


def _shown_already(mount: Mount) -> bool:
    return mount.source == mount.target and not mount.writable and mount.target.is_relative_to("/usr")


def _check(mount: Mount, spec: SandboxSpec) -> None:
    target = os.path.normpath(mount.target)
    if not mount.target.is_absolute() or target in _RESERVED or ".." in mount.target.parts:
        raise CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, f"nothing can be shown at {mount.target} inside")
    if spec.home is not None and mount.source != spec.home and mount.target.is_relative_to(_KEPT_HOME):
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS,
            f"nothing can be shown at {mount.target}: HOME is the code's own there",
            "Copy a file into it with home_files.",
        )
    if mount is not spec.workspace and mount.target == spec.workspace.target:
        raise CodePilotError(FailureKind.SANDBOX_UNAVAILABLE, f"two things would be shown at {mount.target} inside")
    if not mount.source.exists():
        raise CodePilotError(FailureKind.PATH_NOT_FOUND, f"{mount.source} does not exist", path=str(mount.source))


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _prepare_mount_points(spec: SandboxSpec) -> None:
    """Make the mount point of every extra mount that lies inside the workspace."""
    for mount in spec.mounts:
        if mount.target != spec.workspace.target and mount.target.is_relative_to(spec.workspace.target):
            _make_mount_point(spec, mount)


def _make_mount_point(spec: SandboxSpec, mount: Mount) -> None:
    *parents, name = mount.target.relative_to(spec.workspace.target).parts
    directory = os.open(spec.workspace.source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            deeper = _enter(directory, parent)
            os.close(directory)
            directory = deeper
        _make(directory, name, mount.source.is_dir())
    except OSError as error:
        raise CodePilotError(
            FailureKind.POLICY_VIOLATION,
            f"{mount.target} cannot be shown inside the workspace: something else lies there ({error.strerror})",
            path=str(mount.target),
        ) from error
    finally:
        os.close(directory)


def _enter(directory: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        os.mkdir(name, 0o755, dir_fd=directory)
        return os.open(name, _DIRECTORY, dir_fd=directory)


def _make(directory: int, name: str, is_directory: bool) -> None:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        if is_directory:
            os.mkdir(name, 0o755, dir_fd=directory)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=directory))
        return
    fits = stat.S_ISDIR(mode) if is_directory else stat.S_ISREG(mode)
    if not fits:
        raise FileExistsError(17, "a link or a file of another kind")
