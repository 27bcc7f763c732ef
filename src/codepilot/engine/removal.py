"""Removes runs: one that a user names, and with `[retention]` those that ended long ago."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from codepilot.core.events import TERMINAL, WAITING
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.close import lacks_owner, remove_workspaces
from codepilot.engine.control import cancel
from codepilot.engine.plan.families import refuse_child
from codepilot.engine.runtime import Runtime
from codepilot.store import Activity, Unreadable
from codepilot.store.retention import GRACE
from codepilot.telemetry import now_us

CANCEL_SEC = 60.0
"""How long a run that is cancelled may take to stop."""
_WHOLE_ID = re.compile(r"r-[a-z0-9][a-z0-9-]{0,60}")
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class RemovedRun:
    """What the removal of a run freed."""

    run_id: str
    existed: bool
    """False if it was removed before."""
    artifacts: int = 0
    artifacts_left: int = 0
    """Artifacts that only this run named and that a run at work may need; `gc --artifacts` removes them later."""


@dataclass(frozen=True)
class Expired:
    """What retention removed, or would remove."""

    bundles: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


def remove_run(runtime: Runtime, name: str, *, force: bool = False) -> RemovedRun:
    """Remove a run with its rows, workspace, bundle and log, and the artifacts that no other run names.

    A run at work is refused, or with `force` cancelled first. Removing a run again changes nothing.
    """
    try:
        run_id = runtime.store.find(name)
    except CodePilotError as error:
        if error.kind is not FailureKind.INVALID_SPEC or not _WHOLE_ID.fullmatch(name):
            raise
        if not runtime.store.was_removed(name):
            raise
        _remove_files(runtime, name)
        return RemovedRun(name, existed=False)
    with suppress(Unreadable):
        refuse_child(runtime.store.load(run_id), "removed")
    children = list(runtime.store.families.children_of(run_id))
    if force and _at_work(runtime, run_id, *children):
        _cancel(runtime, run_id, children)
    _refuse_working(runtime, run_id, children)
    removed = left = 0
    for name in (*children, run_id):  # its parent last: a second try finds what is left
        with suppress(Unreadable):  # its workspace is left to `gc`
            remove_workspaces(runtime.store.load(name), runtime)
        hashes = runtime.store.remove_run(name)
        freed = _remove_artifacts(runtime, hashes)
        removed, left = removed + freed, left + len(hashes) - freed
        _remove_files(runtime, name)
    return RemovedRun(run_id, True, removed, left)


def _at_work(runtime: Runtime, *run_ids: str) -> bool:
    return Activity.WORKING in runtime.store.activities.of(run_ids).values()


def _refuse_working(runtime: Runtime, run_id: str, children: Sequence[str]) -> None:
    if _at_work(runtime, run_id, *children):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Run {run_id} is at work.",
            next_action=f"Wait for its end, or cancel and remove it: codepilot rm --force {run_id}",
        )


def _cancel(runtime: Runtime, run_id: str, children: Sequence[str]) -> None:
    cancel(runtime, run_id)
    deadline = time.monotonic() + CANCEL_SEC
    while any(
        runtime.store.load(name).state not in TERMINAL | WAITING or runtime.store.queue.at_work(name)
        for name in (run_id, *children)
    ):
        if time.monotonic() >= deadline:
            raise CodePilotError(
                FailureKind.WORKER_LOST,
                f"Run {run_id} was cancelled, and its worker has not stopped within {CANCEL_SEC:g} s.",
                next_action="Try again in a minute.",
            )
        time.sleep(0.1)


def _remove_artifacts(runtime: Runtime, hashes: list[str]) -> int:
    """Remove artifacts that no run names. A run at work may have stored the same bytes and not named them yet:
    while one is, or may be, only what is old enough goes. Where other stores keep artifacts too, nothing does.
    """
    if lacks_owner(runtime) is not None:
        return 0
    alone = not runtime.shared and runtime.store.queue.running() == 0
    newest = now_us() if alone else now_us() - int(GRACE.total_seconds() * 1e6)
    found = (runtime.artifacts.find(sha256) for sha256 in hashes)
    return sum(one is None or runtime.artifacts.remove(one, newest) for one in found)


def _remove_files(runtime: Runtime, run_id: str) -> None:
    home = runtime.home
    _remove_bundle(home.bundles, run_id)
    shutil.rmtree(home.builds / run_id, ignore_errors=True)
    (home.logs / f"{run_id}.jsonl").unlink(missing_ok=True)


def _remove_bundle(bundles: Path, run_id: str) -> None:
    shutil.rmtree(bundles / run_id, ignore_errors=True)
    (bundles / f"{run_id}.apply.json").unlink(missing_ok=True)


def expire(
    runtime: Runtime, bundles_days: float | None, history_days: float | None, *, rehearse: bool = False
) -> Expired:
    """Remove the bundles, and the runs, that ended longer ago than these days. None keeps them."""
    expired, now = Expired(), now_us()
    if history_days is not None:
        for run_id in runtime.store.activities.ended_before(now - int(history_days * _DAY_US)):
            if not rehearse:
                remove_run(runtime, run_id)
            expired.runs.append(run_id)
    if bundles_days is not None:
        for run_id in runtime.store.activities.ended_before(now - int(bundles_days * _DAY_US)):
            if run_id not in expired.runs and (runtime.home.bundles / run_id).is_dir():
                if not rehearse:
                    _remove_bundle(runtime.home.bundles, run_id)
                expired.bundles.append(run_id)
    return expired
