"""Running programs in the workspace. Standard library only: this source travels as it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from codepilot.skills.commands import leads_out, refusal
from codepilot.skills.places import ROOT, PathError
from codepilot.skills.violation import PolicyError

CAPABILITY = "write_and_run_tests"
PYTHON = sys.executable

MAX_OUTPUT = 200_000
QUIET = {"CI": "1", "NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


@dataclass(frozen=True)
class CommandOutcome:
    """How a command ended. `exit_code` is None when it was stopped at its timeout."""

    exit_code: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        return self.exit_code is None

    def __str__(self) -> str:
        ended = "stopped at its timeout" if self.exit_code is None else f"exit code {self.exit_code}"
        return "\n".join(part for part in (self.stdout.rstrip(), self.stderr.rstrip(), f"[{ended}]") if part)

    __repr__ = __str__


def run_command(cmd: list[str], timeout: float = 300.0) -> CommandOutcome:
    """Run a program with its arguments (a list, no shell) in the workspace. Build, test and search tools only."""
    if isinstance(cmd, str) or not cmd or not all(isinstance(part, str) for part in cmd):
        raise ValueError('run_command takes a list of strings, like ["python", "-m", "pytest", "-q"].')
    if CAPABILITY != "full_shell":
        rule, why = refusal(cmd)
        if rule:
            raise PolicyError(rule, "run_command", f"{' '.join(cmd)}: {why}")
        lost = leads_out(cmd)
        if lost:
            raise PathError(lost)
    argv = [PYTHON, *cmd[1:]] if cmd[0] in ("python", "python3") else cmd
    return execute(argv, timeout)


def execute(
    argv: Sequence[str], timeout: float, env: dict[str, str] | None = None, limit: int = MAX_OUTPUT
) -> CommandOutcome:
    """Run a program; at its timeout it ends with all that it started."""
    try:
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env={**os.environ, **QUIET, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError:
        return CommandOutcome(127, "", f"{argv[0]}: not found")
    except PermissionError:
        return CommandOutcome(126, "", f"{argv[0]}: not executable")
    code: int | None
    try:
        out, err = process.communicate(timeout=timeout)
        code = process.returncode
    except subprocess.TimeoutExpired:
        _end(process)
        out, err = process.communicate()
        code = None
    except BaseException:
        _end(process)
        process.communicate()
        raise
    return CommandOutcome(code, _shortened(out, limit), _shortened(err, limit))


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()


def _shortened(data: bytes, limit: int) -> str:
    text = data.decode("utf-8", "replace")
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"
