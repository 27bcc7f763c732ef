"""Sizes of the benchmarks."""

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


@dataclass(frozen=True)
class EngineSize:
    """How much is measured of durable engines."""

    rounds: int
    runs: int
    """How many runs are worked off for one figure."""
    floor_seconds: float
    starts: int
    """How many runs are enqueued one by one, to see when each is started."""
    takeovers: int
    patience_seconds: float
    """How long a dead worker's step is waited for."""
    shapes: tuple[tuple[int, int], ...] = ((1, 1), (1, 8), (1, 32), (4, 1), (4, 8), (4, 32))
    """How many processes work, and on how many runs each at a time."""
    requests: int = 20
    """How many cancels, and how many pauses, are asked for."""
    stored_runs: int = 1_000
    events_each: int = 2_000
    questions: int = 30
    """How often each command is asked of a large store."""


ENGINE_FULL = EngineSize(3, 480, 2.0, 60, 5, 30.0)
ENGINE_QUICK = EngineSize(1, 40, 1.0, 8, 1, 10.0, requests=4, stored_runs=100)
ENGINE_TINY = EngineSize(1, 4, 0.1, 1, 1, 10.0, ((1, 1),), requests=1, stored_runs=5, events_each=80, questions=2)
