"""The landing queue of a service: changes that people send to a branch, worked off in their order.

Queuing is an event of the run, so the queue survives the process. Workers of the store judge the merged trees; the
service merges and moves the branch.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.landing import Landed, LandingEntry, LandingQueued, LandingRefused
from codepilot.core.run import Run
from codepilot.engine.base import open_objects
from codepilot.engine.change.landing import LOOK_SEC, Landing, Queue, landable, record, turn
from codepilot.engine.follower import is_settled
from codepilot.engine.runtime import Runtime
from codepilot.engine.task import Begun
from codepilot.store import RunFilter
from codepilot.workspace import branch_tip, is_url

NEWEST = 500
"""Ended runs that are looked at for the queue."""
AGAIN_SEC = 5.0
"""How long a store that does not answer is left alone."""

DEFECT_SEC = 60.0
"""How long the queue rests after a defect: what waits is not lost, and no log is flooded."""

_log = logging.getLogger(__name__)


def landings(runtime: Runtime) -> list[LandingEntry]:
    """The queue in its order, then what landed or was refused, the newest first."""
    entries = [_entry(run) for run in _runs(runtime) if run.landing is not None]
    waiting = [one for one in entries if one.status == "queued"]
    done = [one for one in entries if one.status != "queued"]
    return [*sorted(waiting, key=_order), *sorted(done, key=lambda one: -one.at)]


def _order(one: LandingEntry) -> tuple[str, str, int, str]:
    return one.checkout, one.branch, one.position, one.run_id


def _runs(runtime: Runtime) -> list[Run]:
    rows = runtime.store.listing.page(RunFilter(states=(State.DONE,)), NEWEST)
    return list(runtime.views.of([row.run_id for row in rows]).values())


def _entry(run: Run) -> LandingEntry:
    checkout = run.base.checkout if run.base is not None and run.base.checkout is not None else ""
    about = (run.run_id, run.task.goal.natural.strip().partition("\n")[0], str(checkout))
    match run.landing:
        case Landed() as landed:
            return LandingEntry(
                *about, landed.branch, "landed", run.updated_at, commit=landed.commit, judged_by=landed.judged_by
            )
        case LandingRefused() as refused:
            return LandingEntry(
                *about,
                refused.branch,
                "refused",
                run.updated_at,
                judged_by=refused.judged_by or "",
                reason=refused.reason,
                conflicts=refused.conflicts,
            )
        case LandingQueued() as queued:
            return LandingEntry(*about, queued.branch, "queued", run.updated_at, position=queued.position, by=queued.by)
    raise ValueError(f"{run.run_id} was never sent to a branch")


def can_land(run: Run) -> bool:
    """True if the run has a proved change of a checkout that is neither on its way to a branch nor there."""
    proved = run.state is State.DONE and run.verdict is not None and run.proposal is not None
    local = run.base is not None and run.base.checkout is not None and not is_url(run.task.repo)
    return proved and local and not run.task.dry_run and not isinstance(run.landing, Landed | LandingQueued)


def queue_landing(runtime: Runtime, run_ids: Sequence[str], asked: Landing) -> list[LandingEntry]:
    """Let these changes wait for a branch behind those that wait already. A `LandingWorker` carries it out."""
    runs, checkout, base = landable(runtime, run_ids, asked)
    with closing(open_objects(runtime.home, base.repo_id)) as objects:
        branch_tip(checkout, asked.branch, objects)  # refuses a branch that is checked out
    before = [one for one in landings(runtime) if (one.status, one.branch) == ("queued", asked.branch)]
    position = max((one.position for one in before), default=0)
    for run in runs:
        if run.run_id in {one.run_id for one in before}:
            continue
        position += 1
        waits = LandingQueued(
            branch=asked.branch,
            position=position,
            by=asked.by,
            accept_plausible=asked.accept_plausible,
            by_service=True,
        )
        record(runtime, run, waits)
    return [_entry(runtime.store.load(run.run_id)) for run in runs]


class LandingWorker:
    """Works off the queue in a thread of its own, between `with` and its end."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="landing", daemon=True)

    def __enter__(self) -> LandingWorker:
        self._woken.set()  # what an earlier process left
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._thread.join()

    def wake(self) -> None:
        """Look at the queue now: something was put into it."""
        self._woken.set()

    def stop(self) -> None:
        """Land nothing more; what waits stays in the queue."""
        self._stopping.set()
        self._woken.set()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._woken.wait()
            self._woken.clear()
            try:
                while not self._stopping.is_set() and self._land_next():
                    pass
            except _Stopped:
                return
            except CodePilotError as error:
                _log.warning("nothing can be landed now: %s", error)
                self._stopping.wait(AGAIN_SEC)
                self._woken.set()
            except Exception:  # noqa: BLE001 - one defect must not end the queue
                _log.exception("the landing queue was interrupted")
                self._stopping.wait(DEFECT_SEC)
                self._woken.set()

    def _land_next(self) -> bool:
        """Land what waits for the branch that is first in the queue; True if there was something."""
        waiting = [run for run in _runs(self._runtime) if _waits(run) and Path(_entry(run).checkout).is_dir()]
        if not waiting:
            return False
        first = _entry(min(waiting, key=lambda run: _order(_entry(run))))
        group = [run for run in waiting if (_entry(run).checkout, _entry(run).branch) == (first.checkout, first.branch)]
        asked = Landing(
            first.branch,
            accept_plausible=True,  # each was checked when it was queued
            judge=partial(_judged_by_workers, self._raise_if_stopped),
            raise_if_stopped=self._raise_if_stopped,
        )
        try:
            self._land([run.run_id for run in sorted(group, key=lambda run: _order(_entry(run)))], asked)
        except CodePilotError as error:
            if error.kind in (FailureKind.STORE_UNAVAILABLE, FailureKind.ARTIFACT_STORE_UNAVAILABLE):
                raise
            for run in group:
                if _waits(self._runtime.store.load(run.run_id)):
                    record(self._runtime, run, LandingRefused(branch=first.branch, reason=str(error)))
        return True

    def _land(self, run_ids: Sequence[str], asked: Landing) -> None:
        _, checkout, base = landable(self._runtime, run_ids, asked)
        with (
            turn(self._runtime, base.repo_id, asked),
            closing(open_objects(self._runtime.home, base.repo_id)) as objects,
        ):
            left = [run for run in map(self._runtime.store.load, run_ids) if _waits(run)]
            Queue(self._runtime, checkout, objects, asked).work(left)

    def _raise_if_stopped(self) -> None:
        if self._stopping.is_set():
            raise _Stopped


class _Stopped(Exception):
    """The service ends; the queue stays as it is."""


def _waits(run: Run) -> bool:
    return isinstance(run.landing, LandingQueued) and run.landing.by_service


def _judged_by_workers(raise_if_stopped: Callable[[], None], runtime: Runtime, begun: Begun) -> Run:
    """Leave the run to any worker of the store and wait for its end."""
    if begun.start is not None:
        runtime.store.give_back(begun.start.claim)
    runtime.store.release_worker(begun.worker)
    while True:
        run = runtime.store.load(begun.run.run_id)
        if is_settled(run):
            return run
        raise_if_stopped()
        time.sleep(LOOK_SEC)
