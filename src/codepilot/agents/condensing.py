"""Keeps a conversation within what a model takes in: old observations are shown in short before the step must end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from codepilot.agents.transcript import Turn
from codepilot.core.events import ContextCondensed
from codepilot.core.failures import CodePilotError, FailureKind

NEAR = 0.9
"""Of a model's context: from here on a conversation is condensed,"""
ENOUGH = 0.6
"""and this far, so that it can grow again before the next time."""


def condense(
    turns: Sequence[Turn], so_far: Collection[int], tokens: Callable[[Collection[int]], int], room: int
) -> ContextCondensed | None:
    """Which observations are to be shown in short from here on, the oldest first; None while there is room.

    `tokens` estimates the request with the observations of the given turns in short. The last one always stays whole.
    """
    before = after = tokens(so_far)
    if before <= room * NEAR:
        return None
    chosen: list[int] = []
    for turn in turns[:-1]:
        if after <= room * ENOUGH:
            break
        if turn.number not in so_far and len(turn.condensed) < len(turn.observed):
            chosen.append(turn.number)
            after = tokens({*so_far, *chosen})
    return ContextCondensed(turns=tuple(chosen), before=before, after=after) if chosen else None


def require_room(model: str, tokens: int, room: int) -> None:
    """Refuse to ask what the model cannot take in together with its reply."""
    if tokens > room:
        raise CodePilotError(
            FailureKind.CONTEXT_EXCEEDED,
            f"The conversation has about {tokens} tokens with room for the reply, which is more than the {room} that "
            f"{model} takes in.",
            used=tokens,
            limit=room,
        )
