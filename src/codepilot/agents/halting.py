"""When a step must not go on, for reasons that its conversation cannot mend."""

from __future__ import annotations

import re
from collections.abc import Sequence

from codepilot.core.artifacts import RepoMap
from codepilot.core.events import TurnFinished
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.models import Message, Model

CHARACTERS_PER_TOKEN = 3
"""Code has fewer characters to a token than prose has: rather too many are counted than too few."""
NOT_FOUND = "127"
_PROGRAM = re.compile(r'"cmd": \["((?:[^"\\]|\\.)*)"')


def estimated_tokens(messages: Sequence[Message]) -> int:
    """About how much a conversation takes of a model's context."""
    spoken = sum(len(message.content) for message in messages)
    asked = sum(len(str(call.arguments)) for message in messages for call in message.tool_calls)
    return (spoken + asked) // CHARACTERS_PER_TOKEN


def require_room(model: Model, messages: Sequence[Message], max_tokens: int) -> None:
    """Refuse to ask what the model cannot take in together with its reply."""
    room, used = model.context_tokens, estimated_tokens(messages)
    if room is not None and used + max_tokens > room:
        raise CodePilotError(
            FailureKind.CONTEXT_EXCEEDED,
            f"The conversation has about {used} tokens, which with {max_tokens} for the reply is more than the {room} "
            f"that {model.name} takes in.",
            used=used + max_tokens,
            limit=room,
        )


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
