"""The levels without namespaces: a subreaper process, the host's own paths and a private temporary directory."""

from __future__ import annotations

import json
import os
import resource
import tempfile
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.interpreter import base_python
from codepilot.sandbox.levels import LevelBase, host
from codepilot.sandbox.limits import cleanup
from codepilot.sandbox.limits.cgroup import Group, enforcement
from codepilot.sandbox.limits.tree import Launch, resource_limits
from codepilot.sandbox.proxy.bridge import no_proxy
from codepilot.sandbox.spec import Level, Limits, SandboxSpec, SessionOffer, not_offered
from codepilot.sandbox.standalone import subreaper

_SUBREAPER = Path(subreaper.__file__)
_PREFIX = ".codepilot-tmp-"


_REFUSED = {
    "terminal": "the level {level} has no terminals of its own, and the host's are other programs'",
    "endpoints": "the level {level} has no network of its own: opened for one service, a port is open to every host",
    "hosts": "the level {level} has no network of its own, so that a proxy could be walked around",
}


class SubreaperLevel(LevelBase):
    """A level whose code sees the host's paths as they are. Nothing can be shown elsewhere than where it lies."""

    level: Level
    remaps = False

    @abstractmethod
    def confinement(self, spec: SandboxSpec, temp: Path, pinned: bool) -> dict[str, Any] | None:
        """The confinement that the subreaper applies to the command; None leaves it unconfined."""

    def offer(self) -> SessionOffer:
        return SessionOffer(
            level=self.level,
            freeze=enforcement().freeze,
            offers=("home", "mounts"),
            refused={name: reason.format(level=self.level) for name, reason in _REFUSED.items()},
        )

    def home(self, spec: SandboxSpec) -> Path:
        if spec.home is None:
            raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, "without a private HOME each command has its own")
        return spec.home

    def _launch(self, argv: Sequence[str], spec: SandboxSpec, limits: Limits) -> Launch:
        host.check(argv, spec.env)
        _refuse_remapping(spec, self.level)
        if spec.proxy is not None:
            raise no_proxy(self.level)
        _refuse_what_needs_namespaces(spec, self.offer())
        with ExitStack() as opened:
            temp = cleanup.make_directory(spec.workspace.source.parent, _PREFIX)
            opened.callback(cleanup.remove_directory, temp)
            (temp / "home").mkdir()
            group = Group(limits)
            opened.callback(group.close)
            cpus = group.cpus
            confinement = self.confinement(spec, temp, cpus is not None)
            opened.pop_all()
        status, status_end = os.pipe()
        order = {
            "argv": [os.fspath(argument) for argument in argv],
            "env": host.environment(os.fspath(spec.home or temp / "home"), str(temp), spec.env),
            "cwd": os.fspath(spec.cwd or spec.workspace.target),
            "parent": os.getpid(),
            "status": status_end,
            "limits": [[kind, value] for kind, value in _limits(limits, group).items()],
            "cgroups": group.entries,
            "temp": os.fspath(temp),
            "cpus": None if cpus is None else sorted(cpus),
            "confinement": confinement,
        }
        with tempfile.TemporaryFile() as file:
            file.write(json.dumps(order).encode())
            file.seek(0)
            order_fd = os.dup(file.fileno())
        return Launch(
            [os.fspath(base_python()), "-I", "-S", os.fspath(_SUBREAPER), str(order_fd)],
            pass_fds=(status_end, order_fd),
            status=status,
            guarded=True,
            cleanup=lambda: cleanup.remove_directory(temp),
            watched=(spec.workspace.source, temp, *((spec.home,) if spec.home is not None else ())),
            disk_account=spec.disk_account,
            group=group,
            freezer=spec.freezer,
        )


def _refuse_what_needs_namespaces(spec: SandboxSpec, offer: SessionOffer) -> None:
    for name, wanted in (("terminal", spec.terminal), ("endpoints", spec.endpoints)):
        if wanted:
            raise not_offered(offer, name)


def _refuse_remapping(spec: SandboxSpec, level: Level) -> None:
    for mount in (spec.workspace, *spec.mounts):
        if mount.source != mount.target:
            raise CodePilotError(
                FailureKind.SANDBOX_UNAVAILABLE,
                f"the sandbox level {level} cannot show {mount.source} at {mount.target}: it cannot remap paths",
                "Install bubblewrap, which can.",
                source=str(mount.source),
                target=str(mount.target),
            )


def _limits(limits: Limits, group: Group) -> dict[int, int]:
    """The kernel counts all of a user's threads against RLIMIT_NPROC, so what is there already is added."""
    wanted = resource_limits(limits, group)
    wanted[resource.RLIMIT_NPROC] += _threads_of(os.getuid())
    return wanted


def _threads_of(uid: int) -> int:
    count = 0
    proc = Path("/proc")
    for path in proc.glob("[0-9]*/task") if proc.is_dir() else ():
        try:
            found = path.stat()
        except OSError:
            continue
        count += found.st_nlink - 2 if found.st_uid == uid else 0
    return count


class Unconfined(SubreaperLevel):
    level = Level.NONE

    def confinement(self, spec: SandboxSpec, temp: Path, pinned: bool) -> None:
        return None
