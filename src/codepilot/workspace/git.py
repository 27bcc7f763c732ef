"""The one module that starts git.

Git gets no inherited `GIT_*` variable, no system or user configuration, no hook, pager, file monitor, prompt or
transport. It always has an explicit git directory, so it neither searches for one nor checks who owns it, and a time
limit. Commands that walk an agent's tree, refresh an index or run a filter are never used.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from codepilot.core.failures import CodePilotError, FailureKind

_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false")
_ADVICE = (
    "fatal: Could not read from remote repository.",
    "Please make sure you have the correct access rights",
    "and the repository exists.",
)
"""Lines that git prints after the reason why a remote cannot be read."""


def absolute_path() -> str:
    """The PATH without relative directories: git runs in a checkout, which must not bring a `git` of its own."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if folder.startswith(os.sep)) or os.defpath


def scrubbed_environment(git_dir: Path, work_tree: Path | None = None) -> dict[str, str]:
    """The whole environment of a git process."""
    env = {
        "PATH": absolute_path(),
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_DIR": str(git_dir),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_PAGER": "cat",
    }
    if work_tree is not None:
        env["GIT_WORK_TREE"] = str(work_tree)
    return env


def run_git(
    args: Sequence[str],
    git_dir: Path,
    *,
    work_tree: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout_sec: float = 300.0,
    like: os.stat_result | None = None,
    stdout: IO[bytes] | None = None,
    memory_bytes: int | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run git to its end and return its output; the caller reads the exit code.

    Run by root, it acts as the owner of `like`, so that what it writes is theirs. `stdout` takes output that is too
    large to hold; `memory_bytes` ends git with an error when it allocates more.
    """
    return start(
        ["git", *_QUIET, *args],
        {**scrubbed_environment(git_dir, work_tree), **(env or {})},
        cwd=work_tree or git_dir,
        stdin=stdin,
        timeout_sec=timeout_sec,
        like=like,
        stdout=stdout,
        memory_bytes=memory_bytes,
    )


def start(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    cwd: Path,
    stdin: bytes,
    timeout_sec: float,
    like: os.stat_result | None = None,
    stdout: IO[bytes] | None = None,
    memory_bytes: int | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run one git command line, turning a missing or hanging git into a typed failure."""
    another = like if like is not None and os.geteuid() == 0 else None
    try:
        with subprocess.Popen(
            argv,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            user=another.st_uid if another else None,
            group=another.st_gid if another else None,
            extra_groups=[] if another else None,
        ) as process:
            if memory_bytes is not None:
                _limit_memory(process.pid, memory_bytes)
            try:
                output, errors = process.communicate(stdin, timeout_sec)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(argv, process.returncode, output or b"", errors)
    except FileNotFoundError as error:
        if error.filename not in ("git", None):
            raise
        raise CodePilotError(
            FailureKind.TOOL_MISSING, "git is not installed, or not on PATH", "Install git 2.30 or newer."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise CodePilotError(
            FailureKind.TOOL_TIMEOUT, f"git did not finish within {timeout_sec:.0f} s: {' '.join(argv[:6])}"
        ) from error


def _limit_memory(pid: int, size: int) -> None:
    """Bound what a process that still waits for its input may allocate. Files it maps do not count."""
    if hasattr(resource, "prlimit"):
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (size, size))


def must_git(
    args: Sequence[str],
    git_dir: Path,
    *,
    work_tree: Path | None = None,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    stdout: IO[bytes] | None = None,
) -> bytes:
    """The output of a git command that has no legitimate way to fail."""
    done = run_git(args, git_dir, work_tree=work_tree, stdin=stdin, env=env, stdout=stdout)
    if done.returncode != 0:
        raise CodePilotError(
            FailureKind.INTERNAL,
            f"git {args[0]} failed: {last_line(done.stderr) or f'exit code {done.returncode}'}",
            stderr=done.stderr.decode("utf-8", "replace")[-2000:],
        )
    return done.stdout


def last_line(output: bytes) -> str:
    """The last informative line of git's output, without its `fatal:` prefix."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    informative = [line for line in lines if line not in _ADVICE] or lines
    return informative[-1].removeprefix("fatal:").removeprefix("error:").strip() if informative else ""


def git_version() -> str:
    """The version of the installed git."""
    done = start(["git", "--version"], scrubbed_environment(Path(os.devnull)), cwd=Path("/"), stdin=b"", timeout_sec=10)
    return done.stdout.decode("utf-8", "replace").strip().removeprefix("git version ")
