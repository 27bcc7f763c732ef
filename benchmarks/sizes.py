"""How much is measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """`actions` times, or as many as fit into `action_seconds`, for each action in each round."""

    rounds: int
    starts: int
    actions: int
    action_seconds: float
    memory_actions: int
    files: tuple[int, ...]
    file_bytes: int
    snapshot_rounds: int
    patch_rounds: int
    synced: bool = True
    """Whether file systems are synced before each snapshot and restore."""


FULL = Size(5, 3, 200, 0.5, 200, (2_000, 20_000), 25_000, 7, 25)
QUICK = Size(2, 1, 50, 0.1, 20, (2_000,), 5_000, 3, 5)
TINY = Size(1, 1, 2, 0.1, 6, (80,), 200, 1, 1, synced=False)
