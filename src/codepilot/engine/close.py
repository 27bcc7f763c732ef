"""The files of a run: its log while it works, its record and bundle when it has ended."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from codepilot.core.events import BundleWritten, Event
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.engine.executor_factory import remover
from codepilot.engine.report import report_run, worth_keeping
from codepilot.engine.runtime import Runtime
from codepilot.engine.workspace_lease import remove_leased_workspaces
from codepilot.telemetry import RunLog
from codepilot.verify import write_directory, write_record
from codepilot.workspace import remove_workspace

PATIENCE_SEC = 10.0

_log = logging.getLogger(__name__)


def open_log(runtime: Runtime, run_id: str) -> RunLog:
    """The run's log file, brought up to date. Events that others record later are added in their place."""

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
    if run.bundle is None:
        with _alone(runtime.home.logs / f"{run.run_id}.jsonl"):
            _write_record(run.run_id, runtime)
    if run.sandbox_level is not None and not worth_keeping(run):
        remove_workspaces(run, runtime)


def _write_record(run_id: str, runtime: Runtime) -> None:
    """Write the record of the run as it is now: it may have gone on since it ended."""
    run = runtime.store.load(run_id)
    if not run.terminal or run.bundle is not None:
        return
    directory, events = runtime.home.bundles / run_id, runtime.store.events(run_id)
    document = report_run(run, events, runtime.home).model_copy(update={"bundle": str(directory)})
    write_record(directory, run, events, document, runtime.redact)


@contextmanager
def _alone(log: Path) -> Iterator[None]:
    """While no other process of this home leaves the run's record; one that was frozen then is not waited for long."""
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
    """Lay the bundle of a run that was finished on another machine down here, in place of what an earlier end left; the
    record of one that ended without is made from its log.
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
            next_action="Let it end; `codepilot logs --follow` shows how it goes.",
        )
    return path
