"""The files of runs: the log while a run works, its record when it ends, and removal of unneeded workspaces.

Garbage collection removes workspaces of runs that rested long enough, crashed ones included, and old artifacts.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from codepilot.core.events import BundleWritten, Event
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.engine.execution_context import lock_files, remove_leased_workspaces, remover, run_of
from codepilot.engine.kinds.dry_run import record_rehearsal
from codepilot.engine.memory.learning import keep_partial
from codepilot.engine.report import report_run, worth_keeping
from codepilot.engine.runtime import Runtime
from codepilot.engine.settings import ARTIFACTS_VARIABLE, STORE_VARIABLE
from codepilot.store import Pruned, Unreadable
from codepilot.store import prune as prune_artifacts
from codepilot.store.home import NAMES
from codepilot.telemetry import RunLog, now_us
from codepilot.verify import write_directory, write_record
from codepilot.workspace import remove_workspace

PATIENCE_SEC = 10.0
"""How long to wait for another process that writes the record."""
HALF_MADE_SEC = 3600.0
"""Temporary files older than this were left by a process that died: writing one takes seconds."""

_log = logging.getLogger(__name__)


def open_log(runtime: Runtime, run_id: str) -> RunLog:
    """The run's log file, brought up to date. Events that another process records later are added in order."""

    def missing(after: int, before: int) -> Sequence[Event]:
        return runtime.store.events(run_id, after, limit=before - after - 1)

    log = RunLog(runtime.home.logs / f"{run_id}.jsonl", runtime.redact, missing)
    try:
        log.catch_up(runtime.store.events(run_id))
    except BaseException:
        log.close()
        raise
    return log


class LiveLog:
    """The log file of a run at work.

    The store has every event, so a file that cannot be written stops nothing: it is a warning, and the next write that
    succeeds adds what is missing.
    """

    def __init__(self, runtime: Runtime, run_id: str) -> None:
        self._runtime = runtime
        self._run_id = run_id
        self._file: RunLog | None = None
        self._failed = False

    def write(self, events: Sequence[Event]) -> None:
        try:
            if self._file is None:
                self._file = open_log(self._runtime, self._run_id)
            else:
                self._file.write(events)
            self._failed = False
        except (OSError, CodePilotError) as error:
            if not self._failed:
                _log.warning("%s", error, extra={"run_id": self._run_id})
            self._failed = True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def close_run(run: Run, runtime: Runtime) -> None:
    """Bring the log file up to date, write the record of an ended run, remove workspaces that are not needed.

    Idempotent: a crash in here is repaired by calling it again.
    """
    open_log(runtime, run.run_id).close()
    if not run.terminal:
        return
    runtime.store.locks.release(run.run_id)
    if run.task.dry_run:
        record_rehearsal(run, runtime)
        open_log(runtime, run.run_id).close()
    keep_partial(run, runtime)
    if run.bundle is None:
        with _alone(runtime.home.logs / f"{run.run_id}.jsonl"):
            _write_record(run.run_id, runtime)
    if run.sandbox_level is not None and not worth_keeping(run):
        remove_workspaces(run, runtime)


def _write_record(run_id: str, runtime: Runtime) -> None:
    """Write the record of the run as it is now: it may have been resumed since it ended."""
    run = runtime.store.load(run_id)
    if not run.terminal or run.bundle is not None:
        return
    directory, events = runtime.home.bundles / run_id, runtime.store.events(run_id)
    document = report_run(run, events, runtime.home).model_copy(update={"bundle": str(directory)})
    write_record(directory, run, events, document, runtime.redact)


@contextmanager
def _alone(log: Path) -> Iterator[None]:
    """Hold the lock under which a process of this home writes the run's record; after `PATIENCE_SEC` go on without."""
    with log.open("ab") as file:
        deadline = time.monotonic() + PATIENCE_SEC
        while time.monotonic() < deadline:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:  # a file system without locks
                break
        yield


def remove_workspaces(run: Run, runtime: Runtime) -> None:
    home, elsewhere = runtime.home, runtime.settings.executor.url is not None
    here: Callable[[str], None] = lambda workspace: remove_workspace(home.workspaces / workspace)  # noqa: E731
    remove = remover(run.task, runtime.settings) if elsewhere else here
    remove_leased_workspaces(home, run.run_id, remove, elsewhere=elsewhere)


def fetch_bundle(run: Run, events: list[Event], runtime: Runtime) -> None:
    """Bring the bundle of a run that ended on another machine here. It replaces what an earlier end left.

    For a run that ended without a bundle, the record is written from its events.
    """
    directory = runtime.home.bundles / run.run_id
    written = next((event.data for event in reversed(events) if isinstance(event.data, BundleWritten)), None)
    if written is None and run.terminal and not directory.is_dir():
        close_run(run, runtime)
    if written is None or not written.files:
        return
    named = {Path(name).name: ref for name, ref in written.files.items()}
    if _holds(directory, {name: ref.sha256 for name, ref in named.items()}):
        return
    files = {name: runtime.artifacts.get(ref) for name, ref in named.items()}
    open_log(runtime, run.run_id).close()
    with _alone(runtime.home.logs / f"{run.run_id}.jsonl"):
        write_directory(directory, files)


def _holds(directory: Path, digests: dict[str, str]) -> bool:
    try:
        held = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}
    except OSError:
        return False
    return held == digests


def recording(runtime: Runtime, name: str) -> Path:
    """The transcript of an ended run, by its id or a prefix of it. Its models' replies can be replayed."""
    run_id = runtime.store.find(name)
    path = runtime.home.bundles / run_id / "transcript.jsonl"
    fetch_bundle(runtime.store.load(run_id), runtime.store.events(run_id), runtime)
    if not path.is_file():
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Run {run_id} has not ended: there is no transcript of it yet.",
            next_action="Wait for its end: `codepilot logs --follow` shows the progress.",
        )
    return path


# Garbage collection ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Collected:
    removed: list[str]
    """Names of the removed workspaces."""
    left: dict[str, str]
    """Runs that were not touched because their state is unknown, and why."""


def collect(runtime: Runtime, days: float, *, rehearse: bool = False) -> Collected:
    """Remove workspaces unused for `days`, except those of runs that this version cannot read."""
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
    """Remove artifacts that only old, ended runs refer to. Refused where other stores keep artifacts too."""
    _refuse_others(runtime)
    return prune_artifacts(runtime.store, runtime.artifacts, older_than, rehearse=rehearse)


def _refuse_others(runtime: Runtime) -> None:
    """Raise unless the artifacts certainly belong to this store alone."""
    if (problem := lacks_owner(runtime)) is not None:
        raise problem


def lacks_owner(runtime: Runtime) -> CodePilotError | None:
    """Why the artifacts may not be removed by this store: others may need them."""
    names = runtime.artifacts.names()
    others = sorted(f"{place} ({name})" for name, place in names.items() if name != runtime.store.store_id)
    if others:
        return CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{runtime.artifacts.place} holds other stores' artifacts too, which would go: {', '.join(others)}.",
            next_action=f"Set {STORE_VARIABLE} to the store whose artifacts they are. If there is no such store any"
            f" more, remove its name from {NAMES}/ there.",
        )
    store, named = runtime.settings.store, runtime.settings.artifacts is not None
    owned = store if named else store in (None, "", str(runtime.home.database))
    if not owned and (not names or named):
        return CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Unknown owner of the artifacts in {runtime.artifacts.place}: what the runs of {runtime.store.place}"
            " do not name would be removed, a whole team's artifacts perhaps.",
            next_action=f"Set both {STORE_VARIABLE} and {ARTIFACTS_VARIABLE}: the store, and where its artifacts are.",
        )
    return None


def sweep(runtime: Runtime) -> None:
    """Remove workspaces of runs that ended elsewhere or while another process used one, and leftovers of killed
    processes."""
    for run_id in _here(runtime):
        with suppress(CodePilotError), _logged(run_id):
            run = runtime.store.load(run_id)
            if run.terminal and not worth_keeping(run):
                remove_workspaces(run, runtime)
    for pattern in ("*.git/tmp_index_*", "*.tmp"):
        for path in runtime.home.repos.glob(pattern):
            with _logged(path.name):
                if time.time() - path.lstat().st_mtime > HALF_MADE_SEC:
                    remove_workspace(path)


@contextmanager
def _logged(name: str) -> Iterator[None]:
    """Log what cannot be removed and continue: no run depends on it."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("what is left of %s cannot be removed: %s", name, error)


def _here(runtime: Runtime) -> set[str]:
    """The runs that have or had a workspace in this home."""
    return {run_of(path.name) for path in runtime.home.workspaces.iterdir()} | set(
        map(run_of, lock_files(runtime.home))
    )


def _unneeded(runtime: Runtime, run_id: str, horizon: int, strange: dict[str, str]) -> bool:
    """True if the run needs its workspaces no more. An unknown run needs none if no other store uses this home."""
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
