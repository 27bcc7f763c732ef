"""Mistakes that a service tells apart by status; in this process they are ordinary failures."""

from __future__ import annotations

from codepilot.core.failures import CodePilotError, FailureKind


class UnknownWorkspace(CodePilotError):
    def __init__(self, workspace: str) -> None:
        super().__init__(FailureKind.EXECUTOR_LOST, f"the workspace {workspace} is not open here", workspace=workspace)


class Conflict(CodePilotError):
    """What is asked contradicts what is there."""

    def __init__(self, message: str, next_action: str = "", **details: object) -> None:
        super().__init__(FailureKind.TOOL_INVALID_ARGS, message, next_action, **details)


class Unfinished(CodePilotError):
    """The executor ended in the middle of a request; nobody knows how far it came."""

    def __init__(self, key: str) -> None:
        super().__init__(
            FailureKind.EXECUTOR_LOST,
            f"the executor ended while it carried out the request {key}; how far it came is not known",
            "Look at the workspace or restore a snapshot, then ask again with another key.",
            interrupted=True,
        )
