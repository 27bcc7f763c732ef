"""Keeps a conversation within the size of a model's context."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codepilot.agents.transcript import Shortened, Turn
from codepilot.core.events import ContextCondensed
from codepilot.core.failures import CodePilotError, FailureKind

NEAR = 0.9
"""The share of a model's context from which a conversation is condensed."""
ENOUGH = 0.6
"""The share to which it is condensed, so that it can grow again."""


def condense(
    turns: Sequence[Turn], so_far: Shortened, tokens: Callable[[Shortened], int], room: int
) -> ContextCondensed | None:
    """Choose what to shorten, the oldest first; None while there is room, or if nothing is left to shorten.

    `tokens` estimates the request. Old observations are shortened first, then old turns are left out. The last turn
    stays, and stays whole as long as it fits.
    """
    before = tokens(so_far)
    if before <= room * NEAR:
        return None
    now = so_far
    for turn in turns[:-1]:
        if tokens(now) <= room * ENOUGH:
            break
        if turn.number not in now.turns and len(turn.condensed) < len(turn.observed):
            now = now.with_(turns=(turn.number,))
    if tokens(now) > room * NEAR:
        for turn in turns[:-1]:
            if tokens(now) <= room * ENOUGH:
                break
            now = now.with_(left_out=(turn.number,))
    if turns and tokens(now) > room * NEAR and len(turns[-1].condensed) < len(turns[-1].observed):
        now = now.with_(turns=(turns[-1].number,))
    if now == so_far:
        return None
    return ContextCondensed(
        turns=tuple(sorted(now.turns - so_far.turns)),
        left_out=tuple(sorted(now.left_out - so_far.left_out)),
        before=before,
        after=tokens(now),
    )


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
