"""CodePilot's own interpreter: its paths as they can be shown inside, and how a command runs with it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.spec import Mount, Sandbox, SandboxSpec


def own_python() -> Path:
    """The interpreter of this process, that of its environment where it has one."""
    return Path(os.path.normpath(sys.executable))


def base_python() -> Path:
    """The interpreter behind it, outside of any environment."""
    return Path(os.path.normpath(getattr(sys, "_base_executable", "") or sys.executable))


def base_prefixes() -> list[Path]:
    """The directories of the base interpreter in every spelling. Those in /usr are always visible."""
    prefix = Path(os.path.normpath(sys.base_prefix))
    spelled = dict.fromkeys((prefix, prefix.resolve(), base_python().resolve().parent.parent))
    return [one for one in spelled if not one.is_relative_to("/usr")]


_INSIDE = Path("/run/codepilot/packages")
_PATHS = "CODEPILOT_PACKAGES"
_START = f"import os, sys; sys.path += os.environ.pop({_PATHS!r}).split(os.pathsep); exec(sys.argv.pop(1))"


def with_own_python(
    sandbox: Sandbox, spec: SandboxSpec, source: Sequence[str], packages: Iterable[str]
) -> tuple[list[str], SandboxSpec]:
    """The command that runs Python source with its arguments, and a spec that shows its packages read-only.

    The workspace is not on the path, and site directories and `PYTHON*` variables are ignored.
    """
    shown = [
        Mount(folder, _INSIDE / str(number) if sandbox.remaps else folder)
        for number, folder in enumerate(dict.fromkeys(map(_holding, packages)))
    ]
    needed = [Mount(prefix, prefix) for prefix in base_prefixes()]
    mounts = {mount.target: mount for mount in (*spec.mounts, *needed, *shown)}
    paths = os.pathsep.join(os.fspath(mount.target) for mount in shown)
    argv = [os.fspath(base_python()), "-I", "-S", "-X", "utf8", "-c", _START, *source]
    return argv, replace(spec, mounts=tuple(mounts.values()), env={**spec.env, _PATHS: paths})


@cache
def _holding(package: str) -> Path:
    """The directory from which this process would import a package."""
    found = importlib.util.find_spec(package) if package.isidentifier() else None
    if found is None or found.origin is None or not found.submodule_search_locations:
        raise CodePilotError(
            FailureKind.TOOL_MISSING,
            f"{package} is not installed with CodePilot",
            "Install CodePilot again with all that it requires.",
            package=package,
        )
    return Path(found.origin).parent.parent
