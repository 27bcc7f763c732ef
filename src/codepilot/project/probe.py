"""Runs an interpreter once to learn its version and paths.

An interpreter that the repository chose runs inside the sandbox. One that the user named runs on the host, because it
may be a version manager's script that looks for the real one. No file of the repository is run either way.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.project.boundary import SYSTEM, is_within
from codepilot.sandbox import Limits, Mount, SandboxSpec, choose

TIMEOUT_SEC = 30.0
OLDEST = (3, 8)

_QUESTION = """
import importlib.util, json, os, sys, sysconfig
paths = sysconfig.get_paths()
print(json.dumps({
    "executable": sys.executable,
    "version": list(sys.version_info[:3]),
    "prefix": sys.prefix,
    "base_prefix": getattr(sys, "base_prefix", sys.prefix),
    "exec_prefix": getattr(sys, "base_exec_prefix", sys.exec_prefix),
    "path": [p for p in sys.path if os.path.isdir(p)],
    "sites": sorted({paths["purelib"], paths["platlib"]}),
    "libdir": (sysconfig.get_config_var("LIBDIR") or "") if sysconfig.get_config_var("Py_ENABLE_SHARED") else "",
    "has_pytest": importlib.util.find_spec("pytest") is not None,
}))
"""


@dataclass(frozen=True)
class Answer:
    """An interpreter's description of itself."""

    executable: str
    version: tuple[int, int, int]
    prefix: str
    base_prefix: str
    exec_prefix: str
    path: tuple[str, ...]
    sites: tuple[str, ...]
    libdir: str
    has_pytest: bool


def probe(python: Path, installation: Path | None = None) -> Answer:
    """Ask the interpreter about itself. Refuses one that is no Python, or is too old.

    With `installation` it runs inside the sandbox, which shows that directory in addition to the system's.
    """
    try:
        stat = python.stat()
    except OSError as error:
        raise _missing(python, f"cannot be read ({error.strerror})") from error
    answer = _ask(str(python), stat.st_mtime_ns, stat.st_size, installation)
    if answer.version < OLDEST:
        found = ".".join(map(str, answer.version))
        raise _missing(python, f"is Python {found}, and {OLDEST[0]}.{OLDEST[1]} is the oldest that can be used")
    return answer


@lru_cache(maxsize=64)
def _ask(python: str, _mtime: int, _size: int, installation: Path | None) -> Answer:
    path = Path(python)
    code, output, errors = _run(path) if installation is None else _run_inside(path, installation)
    if code is None:
        raise _missing(path, f"did not answer within {TIMEOUT_SEC:g} s")
    if code != 0:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        raise _missing(path, f"does not work as a Python interpreter ({lines[-1][:300] if lines else 'no message'})")
    return _read(path, output)


def _run_inside(python: Path, installation: Path) -> tuple[int | None, bytes, bytes]:
    """Exit code and output of a run inside the sandbox; no code if it did not end in time."""
    try:
        box = choose("best")
    except CodePilotError:
        return _run(python)  # no level works on this machine, and the interpreter is an installed one
    known = any(is_within(installation, place) for place in SYSTEM)
    mounts = () if known else (Mount(installation, installation),)
    with tempfile.TemporaryDirectory(prefix="codepilot-python-") as folder:
        here = Path(folder).resolve()
        view = SandboxSpec(Mount(here, here, writable=True), mounts)
        done = box.run([str(python), "-I", "-c", _QUESTION], view, Limits(wall_sec=TIMEOUT_SEC))
    if done.status == "timeout":
        return None, b"", b""
    return 1 if done.exit_code is None else done.exit_code, done.stdout, done.stderr


def _run(python: Path) -> tuple[int | None, bytes, bytes]:
    """The same on the host, isolated and away from the repository."""
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    command = [str(python), "-I", "-c", _QUESTION]
    try:
        done = subprocess.run(
            command,
            cwd="/",
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_SEC,
            check=False,
        )
    except OSError as error:
        raise _missing(python, f"cannot be started ({error.strerror})") from error
    except subprocess.TimeoutExpired:
        return None, b"", b""
    return done.returncode, done.stdout, done.stderr


def _read(python: Path, output: bytes) -> Answer:
    try:
        fields = json.loads(output)
        major, minor, micro = (int(part) for part in fields["version"])
        return Answer(
            executable=str(fields["executable"] or python),
            version=(major, minor, micro),
            prefix=str(fields["prefix"]),
            base_prefix=str(fields["base_prefix"]),
            exec_prefix=str(fields["exec_prefix"]),
            path=tuple(map(str, fields["path"])),
            sites=tuple(map(str, fields["sites"])),
            libdir=str(fields["libdir"]),
            has_pytest=bool(fields["has_pytest"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _missing(python, "does not answer as a Python interpreter does") from error


def _missing(python: Path, why: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.ENVIRONMENT_MISSING,
        f"The interpreter {python} {why}.",
        next_action="Name a working Python 3.8 or newer with --python, or create the environment again.",
        python=str(python),
    )
