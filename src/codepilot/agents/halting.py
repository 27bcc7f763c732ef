"""When a step must not go on, for reasons that its conversation cannot mend."""

from __future__ import annotations

import re

from codepilot.core.artifacts import RepoMap
from codepilot.core.events import TurnFinished
from codepilot.core.failures import CodePilotError, FailureKind

NOT_FOUND = "127"
_PROGRAM = re.compile(r'"cmd": \["((?:[^"\\]|\\.)*)"')


def require_tools(repo_map: RepoMap | None, turn: TurnFinished) -> None:
    """A command of the repository's map that is not there makes the map wrong."""
    if repo_map is None:
        return
    named = {command[0] for command in (repo_map.build_cmd, repo_map.test_cmd, repo_map.lint_cmd) if command}
    for call in turn.calls:
        program = _PROGRAM.search(call.arguments) if call.exit == NOT_FOUND else None
        if program and program.group(1) in named:
            raise CodePilotError(
                FailureKind.TOOL_MISSING,
                f"{program.group(1)}, which the map of the repository names, is not installed here (exit code 127).",
                tool=program.group(1),
            )
