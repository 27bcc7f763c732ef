"""Which artifacts may go: those that no run needs any more, and what broken writes left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.artifacts import Artifacts, Stored
from codepilot.telemetry import now_us

if TYPE_CHECKING:
    from codepilot.store.store import Store

GRACE = timedelta(days=1)
"""What was put so recently stays: the run that put it may not have named it yet."""
_BATCH = 5_000


@dataclass(frozen=True)
class Pruned:
    """What retention did, or (after a rehearsal) would do."""

    rehearsed: bool
    removed: int = 0
    removed_bytes: int = 0
    leftovers: int = 0
    """How many of the removed were unfinished writes."""
    kept: int = 0
    kept_bytes: int = 0
    left: Mapping[str, str] = field(default_factory=dict)
    """Runs that keep all they name because it is not known how they stand, and why."""


def prune(
    store: Store,
    artifacts: Artifacts,
    older_than: timedelta,
    *,
    rehearse: bool,
    clock: Callable[[], int] = now_us,
) -> Pruned:
    """Remove what only runs name that ended and were last touched longer ago than `older_than`, or that none names.

    Whatever was put within the last day stays, also if it is put again while this runs. Stopping halfway is fine.
    """
    if older_than < timedelta(0):
        raise CodePilotError(FailureKind.INVALID_SPEC, "Artifacts cannot be older than a time that is yet to come.")
    now = clock()
    horizon, grace = now - _us(older_than), now - _us(GRACE)
    removed = removed_bytes = leftovers = kept = kept_bytes = 0
    found = artifacts.stored()
    while batch := list(islice(found, _BATCH)):
        for one in _unneeded(store, batch, horizon, grace):
            if rehearse or (not _is_needed(store, one, horizon) and artifacts.remove(one, grace)):
                removed += 1
                removed_bytes += one.size_bytes
                leftovers += one.sha256 is None
        kept += len(batch)
        kept_bytes += sum(one.size_bytes for one in batch)
    kept, kept_bytes, left = kept - removed, kept_bytes - removed_bytes, store.not_understood()
    return Pruned(rehearse, removed, removed_bytes, leftovers, kept, kept_bytes, left)


def _unneeded(store: Store, batch: list[Stored], horizon: int, grace: int) -> Iterator[Stored]:
    old = [one for one in batch if one.modified <= grace]
    needed = store.named_artifacts([one.sha256 for one in old if one.sha256], horizon)
    return (one for one in old if one.sha256 not in needed)


def _is_needed(store: Store, one: Stored, horizon: int) -> bool:
    """Asked again before each is removed: by the end of a batch an old run may have been forked or gone on with."""
    return one.sha256 is not None and bool(store.named_artifacts([one.sha256], horizon))


def _us(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
