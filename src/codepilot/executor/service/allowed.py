"""What a caller may have shown inside: the service's own interpreter, and what its operator named."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import codepilot
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import check_copied_path
from codepilot.executor.wire import CreateRemote


def check_mounts(request: CreateRemote, allowed: Sequence[Path]) -> None:
    """Refuse sources outside of what is allowed, wherever links lead."""
    roots = [root.resolve() for root in (*allowed, *_own_prefixes())]
    for mount in request.mounts:
        source = Path(mount.source)
        if not source.is_absolute() or not any(source.resolve().is_relative_to(root) for root in roots):
            raise CodePilotError(
                FailureKind.TOOL_PERMISSION_DENIED,
                f"the executor does not show {mount.source!r} to callers",
                "Start it with --allow-mount and a directory that holds this path.",
                source=mount.source,
            )
        if not source.exists():
            raise CodePilotError(
                FailureKind.PATH_NOT_FOUND,
                f"there is no {mount.source} on the executor's machine",
                "Install the project's environment there, at the same path.",
                source=mount.source,
            )


def check_carried(request: CreateRemote) -> None:
    """Refuse targets outside the tree or in a git directory."""
    for target in request.carried:
        try:
            check_copied_path(target)
        except ValueError as error:
            raise CodePilotError(FailureKind.TOOL_PERMISSION_DENIED, str(error), target=target) from None


def check_python(request: CreateRemote) -> None:
    """The kernel's interpreter must be there, as itself or below a mount."""
    if request.kernel_python is None:
        return
    python = Path(request.kernel_python)
    places = [python]
    for mount in request.mounts:
        if python.is_relative_to(mount.target):
            places.append(Path(mount.source) / python.relative_to(mount.target))
    if not python.is_absolute() or not any(place.exists() for place in places):
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"there is no interpreter {request.kernel_python!r} on the executor's machine",
            "Install it there at the same path, or name another with --python.",
            python=request.kernel_python,
        )


def check_hosts(hosts: Sequence[str], allowed: Sequence[str]) -> None:
    """The network belongs to the executor's operator: a caller reaches what was named, and nothing else."""
    refused = [host for host in hosts if host not in allowed]
    if refused:
        raise CodePilotError(
            FailureKind.TOOL_PERMISSION_DENIED,
            f"the executor does not let callers reach {', '.join(refused[:5])}",
            "Start it with --allow-host and each host that may be reached.",
            hosts=refused[:20],
        )


def _own_prefixes() -> list[Path]:
    """The interpreter's places, and CodePilot's own source, which an editable install has elsewhere."""
    base = Path(getattr(sys, "_base_executable", "") or sys.executable)
    return [Path(sys.prefix), Path(sys.base_prefix), base.resolve().parent.parent, Path(codepilot.__file__).parents[1]]
