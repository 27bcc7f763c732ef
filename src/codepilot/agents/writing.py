"""Exact bytes into a file of the workspace, by a program inside: only an executor touches it."""

from __future__ import annotations

from codepilot.agents.protocol import Desk
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import RunCommand

WRITE_SEC = 60.0
_WRITER = "import sys\nwith open(sys.argv[1], 'wb') as f: f.write(sys.stdin.buffer.read())"


def write_file(desk: Desk, path: str, content: bytes) -> None:
    """Make the file hold exactly these bytes; nothing is done if it already does."""
    if desk.executor.read_file(desk.workspace, path) == content:
        return
    command = RunCommand(
        workspace=desk.workspace,
        argv=(desk.project.interpreter.executable, "-I", "-S", "-c", _WRITER, path),
        stdin=content,
        timeout_sec=WRITE_SEC,
    )
    result = desk.executor.run_command(command)
    if result.status != "ok" or desk.executor.read_file(desk.workspace, path) != content:
        raise CodePilotError(
            FailureKind.TOOL_FAILED,
            f"The repair could not be written to {path} ({result.limit or result.status}).",
            stderr=result.stderr[-500:].decode("utf-8", "replace"),
        )
