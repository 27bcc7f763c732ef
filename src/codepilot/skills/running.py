"""Runs programs in the workspace. Standard library only: this source is shipped as it is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from codepilot.core.permit import permit, read_rules
from codepilot.core.text import head_and_tail
from codepilot.skills.command_rules import PYTHON_TOOLS, leads_out
from codepilot.skills.errors import PolicyError
from codepilot.skills.places import ROOT, PathError
from codepilot.skills.wanted_command import installs, pushed, wanted_command

CAPABILITY = "write_and_run_tests"
PYTHON = sys.executable
POLICY = ""
"""The task's policy, as `written_rules` writes it."""
GRANTED = "[]"
"""The commands that a person allowed, as JSON."""
INTERACTION = "ask_before_risky"

MAX_OUTPUT = 200_000
MAX_SEC = 1e6
SHELL_SIGNS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "<", "2>&1"})
QUIET = {"CI": "1", "NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}


@dataclass(frozen=True)
class CommandOutcome:
    """How a command ended. `exit_code` is None when it was stopped at its timeout."""

    exit_code: int | None
    stdout: str
    stderr: str
    note: str = ""
    """What the policy changed about the command."""

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        return self.exit_code is None

    def __str__(self) -> str:
        ended = "stopped at its timeout" if self.exit_code is None else f"exit code {self.exit_code}"
        parts = (self.note, self.stdout.rstrip(), self.stderr.rstrip(), f"[{ended}]")
        return "\n".join(part for part in parts if part)

    __repr__ = __str__


def run_command(cmd: list[str], timeout: float = 300.0) -> CommandOutcome:
    """Run a program with its arguments (a list, no shell) in the workspace. Build, test and search tools only.

    The result has exit_code, stdout, stderr and ok.
    """
    cmd = _listed(cmd)
    wanted = wanted_command(cmd, json.loads(GRANTED))
    decision = permit(read_rules(POLICY), CAPABILITY, INTERACTION, wanted)
    if decision.effect == "deny":
        raise PolicyError(decision.rule, "run_command", f"{wanted.subject}: {decision.reason}")
    if decision.effect == "ask":
        asked = (wanted.asks or "command", wanted.about or decision.action.subject)
        first = f"ask first, with request_permission({asked[0]!r}, {asked[1]!r}, why)"
        raise PolicyError(decision.rule, "run_command", f"{wanted.subject}: {decision.reason}; or {first}")
    if wanted.granted and installs(cmd):
        return CommandOutcome(0, "What this asks for is in the project's environment already.", "")
    note = ""
    if decision.action.subject != wanted.subject and (push := pushed(cmd)) is not None:
        note = f"[{decision.rule}] run_command: {wanted.subject} → {decision.action.subject}"
        cmd = [*push[0]]
    lost = leads_out(cmd) if CAPABILITY != "full_shell" else ""
    if lost:
        raise PathError(lost)
    done = execute([*_program(cmd[0]), *cmd[1:]], timeout)
    if done.exit_code and any(part in SHELL_SIGNS or "*" in part for part in cmd[1:]):
        done = replace(done, stderr=f"{done.stderr.rstrip()}\n[There is no shell: |, && and > do nothing, nor does *.]")
    return replace(done, note=note) if note else done


def _listed(cmd: object) -> list[str]:
    """The command as a list of text, or how it should have been given."""
    words = cmd.split() if isinstance(cmd, str) else []
    if isinstance(cmd, (list, tuple)):
        if not all(isinstance(part, (str, os.PathLike)) for part in cmd):
            raise ValueError("run_command takes a list of strings; str() what is not one.")
        given = [os.fsdecode(part) for part in cmd]
        if any("\0" in part or not _encodes(part) for part in given):
            raise ValueError("No argument of a program can hold a zero byte or half of a character.")
        if given and (len(given) > 1 or " " not in given[0].strip()):
            return given
        words = given[0].split() if given else []
    like = words or ["python", "-m", "pytest", "-q"]
    raise ValueError(f"run_command takes a list of strings, one for each argument, like {json.dumps(like)}.")


def _encodes(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _program(name: str) -> list[str]:
    """The command for a program's name: Python and its tools are the project's own."""
    if name in ("python", "python3"):
        return [PYTHON]
    if name in PYTHON_TOOLS:
        neighbour = Path(PYTHON).with_name(name)
        if os.access(neighbour, os.X_OK):
            return [str(neighbour)]
        if shutil.which(name) is None:
            return [PYTHON, "-m", name]
    return [name]


def execute(
    argv: Sequence[str],
    timeout: float,
    env: dict[str, str] | None = None,
    limit: int = MAX_OUTPUT,
    stdin: bytes = b"",
    folder: str = "",
) -> CommandOutcome:
    """Run a program in a folder of the workspace; at its timeout it ends with all that it started."""
    if not 0 < timeout < MAX_SEC:
        raise ValueError(f"The timeout is {timeout} s; it must be more than 0 and less than {MAX_SEC:g}.")
    try:
        process = subprocess.Popen(
            argv,
            cwd=ROOT / folder,
            env={**os.environ, **QUIET, **(env or {})},
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
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
        out, err = process.communicate(stdin or None, timeout=timeout)
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
    return head_and_tail(data.decode("utf-8", "replace"), limit)
