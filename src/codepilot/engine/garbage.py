"""Garbage collection: workspaces of runs that have rested long enough, crashed ones included, and old artifacts."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.close import remove_workspaces
from codepilot.engine.report import worth_keeping
from codepilot.engine.runtime import Runtime
from codepilot.engine.settings import ARTIFACTS_VARIABLE, STORE_VARIABLE
from codepilot.engine.workspace_lease import lock_files, remove_leased_workspaces, run_of
from codepilot.store import Pruned, Unreadable
from codepilot.store import prune as prune_artifacts
from codepilot.store.home import NAMES
from codepilot.telemetry import now_us
from codepilot.workspace import remove_workspace

_log = logging.getLogger(__name__)

HALF_MADE_SEC = 3600.0
"""Temporary files older than this were left by a process that died: they take seconds to make."""


@dataclass(frozen=True)
class Collected:
    removed: list[str]
    """Names of workspaces."""
    left: dict[str, str]
    """Runs that were left alone because their state is not known, and why."""


def collect(runtime: Runtime, days: float, *, rehearse: bool = False) -> Collected:
    """Remove workspaces unused for `days`, but for those of runs that this version does not understand."""
    horizon = now_us() - int(days * 86_400 * 1e6)
    strange = runtime.store.not_understood()
    removed: list[str] = []
    left: dict[str, str] = {}

    def remove(workspace: str) -> None:
        path = runtime.home.workspaces / workspace
        if path.exists():
            remove_workspace(path)
            removed.append(workspace)

    for run_id in sorted(_here(runtime)):
        places = list(runtime.home.workspaces.glob(f"{run_id}*"))
        if not all(path.stat().st_mtime_ns // 1000 <= horizon for path in places):
            continue
        try:
            unneeded = run_id not in strange and _unneeded(runtime, run_id, horizon, strange)
        except Unreadable as error:
            strange[run_id] = str(error)
            unneeded = False
        if unneeded and rehearse:
            removed += sorted(path.name for path in places if path.is_dir())
        elif unneeded:
            remove_leased_workspaces(runtime.home, run_id, remove)
        elif run_id in strange:
            left[run_id] = strange[run_id]
    return Collected(removed, left)


def prune(runtime: Runtime, older_than: timedelta, *, rehearse: bool) -> Pruned:
    """Remove artifacts that only old, ended runs name; not from a place that other stores use as well."""
    _refuse_others(runtime)
    return prune_artifacts(runtime.store, runtime.artifacts, older_than, rehearse=rehearse)


def _refuse_others(runtime: Runtime) -> None:
    """Earlier versions left no names: whose artifacts lie in a place that was named, or in nobody's name, is asked."""
    names = runtime.artifacts.names()
    others = sorted(f"{place} ({name})" for name, place in names.items() if name != runtime.store.store_id)
    if others:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{runtime.artifacts.place} holds other stores' artifacts too, which would go: {', '.join(others)}.",
            next_action=f"Set {STORE_VARIABLE} to the store whose artifacts they are. If there is no such store any"
            f" more, remove its name from {NAMES}/ there.",
        )
    store, named = runtime.settings.store, runtime.settings.artifacts is not None
    owned = store if named else store in (None, "", str(runtime.home.database))
    if not owned and (not names or named):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Unknown owner of the artifacts in {runtime.artifacts.place}: what the runs of {runtime.store.place}"
            " do not name would be removed, a whole team's artifacts perhaps.",
            next_action=f"Set both {STORE_VARIABLE} and {ARTIFACTS_VARIABLE}: the store, and where its artifacts are.",
        )


def sweep(runtime: Runtime) -> None:
    """Remove the workspaces here of runs that ended elsewhere, or while another process had one in use; and what
    processes that were killed left half made."""
    for run_id in _here(runtime):
        with contextlib.suppress(CodePilotError), _logged(run_id):
            run = runtime.store.load(run_id)
            if run.terminal and not worth_keeping(run):
                remove_workspaces(run, runtime)
    for pattern in ("*.git/tmp_index_*", "*.tmp"):
        for path in runtime.home.repos.glob(pattern):
            with _logged(path.name):
                if time.time() - path.lstat().st_mtime > HALF_MADE_SEC:
                    remove_workspace(path)


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log what cannot be removed and leave it: no run depends on it."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("what is left of %s cannot be removed: %s", what, error)


def _here(runtime: Runtime) -> set[str]:
    """The runs that have, or had, a workspace in this home."""
    return {run_of(path.name) for path in runtime.home.workspaces.iterdir()} | set(
        map(run_of, lock_files(runtime.home))
    )


def _unneeded(runtime: Runtime, run_id: str, horizon: int, strange: dict[str, str]) -> bool:
    """Whether the run's workspaces are not needed; of an unknown run, only if no other store uses this home."""
    try:
        run = runtime.store.load(run_id)
    except CodePilotError as error:
        if error.kind is not FailureKind.INVALID_SPEC:
            raise
        names = runtime.home.names()
        if names.keys() == {runtime.store.store_id}:
            return True
        others = [place for name, place in names.items() if name != runtime.store.store_id]
        where = f"perhaps in {' or '.join(sorted(others))}" if others else "nor is it known which stores have runs here"
        strange[run_id] = f"Run {run_id} is not in {runtime.store.place}, {where}."
        return False
    runtime.store.reclaim(run_id)
    return run.updated_at <= horizon and not runtime.store.queue.at_work(run_id)
