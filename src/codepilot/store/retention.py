"""Which artifacts may go: those that no run needs any more, and what broken writes left behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
"""Artifacts younger than this stay: their run may not have recorded them yet."""
_BATCH = 5_000


@dataclass(frozen=True)
class Pruned:
    """The result of retention, or of its dry run."""

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
    store: Store, artifacts: Artifacts, older_than: timedelta, *, rehearse: bool, clock: Callable[[], int] = now_us
) -> Pruned:
    """Remove artifacts that no run names, or only runs that ended and were last touched before `older_than`.

    An artifact that was put within the last day stays, also if it is put again meanwhile. It is safe to interrupt.
    """
    if older_than < timedelta(0):
        raise CodePilotError(FailureKind.INVALID_SPEC, "Artifacts cannot be older than a time that is yet to come.")
    now = clock()
    horizon, grace = (now - span // timedelta(microseconds=1) for span in (older_than, GRACE))

    def unneeded(batch: list[Stored]) -> list[Stored]:
        needed = store.named_artifacts([one.sha256 for one in batch if one.sha256], horizon)
        return [one for one in batch if one.sha256 not in needed]

    removed: list[Stored] = []
    kept = kept_bytes = 0
    found = artifacts.stored()
    while batch := list(islice(found, _BATCH)):
        kept += len(batch)
        kept_bytes += sum(one.size_bytes for one in batch)
        for one in unneeded([one for one in batch if one.modified <= grace]):
            # Checked again just before it is removed: an old run may have been forked or resumed meanwhile.
            if rehearse or (unneeded([one]) and artifacts.remove(one, grace)):
                removed.append(one)
    removed_bytes = sum(one.size_bytes for one in removed)
    leftovers, left = sum(one.sha256 is None for one in removed), store.not_understood()
    kept, kept_bytes = kept - len(removed), kept_bytes - removed_bytes
    return Pruned(rehearse, len(removed), removed_bytes, leftovers, kept, kept_bytes, left)
