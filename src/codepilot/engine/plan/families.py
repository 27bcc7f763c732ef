"""Parents and children: a parent goes on when a child has ended, and its children pause and end with it.

Every worker's monitor looks after all families of the store: nothing is lost with the worker that noticed first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from codepilot.core.children import at_work
from codepilot.core.decide import ask_cancel, ask_pause, decide_cancel, decide_pause, decide_resume
from codepilot.core.events import TERMINAL, WAITING, EventDraft
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.parallel import decide_children
from codepilot.core.run import Run
from codepilot.engine.follower import is_settled
from codepilot.store import ClaimedStep, Store

WAIT_SEC = 0.25
"""How often a thread looks whether a child that another worker has is free again."""


def look_after(store: Store) -> None:
    """Wake the parents whose children ended; end and pause the children whose parents did."""
    for run_id in store.families.blocked_parents():
        wake(store, run_id)
    for run_id in store.families.to_cancel():
        _ask(store, run_id, ask_cancel, decide_cancel)
    for run_id in store.families.to_pause():
        _ask(store, run_id, ask_pause, decide_pause)


def wake(store: Store, run_id: str) -> None:
    """Let a parent go on if a child of it ended, or if none can go on by itself."""
    states = store.families.children_of(run_id)
    store.control(run_id, lambda run: decide_children(run, states))


def pause_children(store: Store, run_id: str) -> None:
    for child_id in _going_on(store, run_id):
        _ask(store, child_id, ask_pause, decide_pause)


def cancel_children(store: Store, run_id: str) -> list[str]:
    """Cancel the children that have not ended; their ids."""
    left = [child for child, state in store.families.children_of(run_id).items() if state not in TERMINAL]
    for child_id in left:
        _ask(store, child_id, ask_cancel, decide_cancel)
    return left


def resume_children(store: Store, run_id: str) -> None:
    """Reopen the children that wait, with their parent."""
    for child_id, state in store.families.children_of(run_id).items():
        if state in WAITING:
            store.reclaim(child_id, wait=True)
            store.control(child_id, decide_resume)


def asking(store: Store, run_id: str, approval_id: str) -> str:
    """The run that asked: this one, or a child of it."""
    for name in (run_id, *store.families.children_of(run_id)):
        if any(one.request.approval_id == approval_id for one in store.load(name).approvals):
            return name
    return run_id


def _going_on(store: Store, run_id: str) -> list[str]:
    resting = TERMINAL | WAITING
    return [child for child, state in store.families.children_of(run_id).items() if state not in resting]


def _ask(
    store: Store,
    run_id: str,
    ask: Callable[[Run], list[EventDraft]],
    decide: Callable[[Run], list[EventDraft]],
) -> None:
    """Leave the request to the worker that holds the child; without one, decide here."""
    store.control(run_id, ask)
    if not store.queue.at_work(run_id):
        store.control(run_id, decide)


class ChildThreads:
    """Works on the children of one run in threads, for a process that drives the run by itself."""

    def __init__(self, store: Store, worker: str, execute: Callable[[ClaimedStep], None]) -> None:
        self._store = store
        self._worker = worker
        self._execute = execute
        self._threads: dict[str, threading.Thread] = {}
        self._failures: list[BaseException] = []

    def work_on(self, run: Run) -> None:
        """Begin a thread for each child that has none; raise what a thread failed with."""
        if self._failures:
            raise self._failures[0]
        self._threads = {child: thread for child, thread in self._threads.items() if thread.is_alive()}
        for child in at_work(run.children):
            if child.run_id not in self._threads and not self._settled(child.run_id):
                thread = threading.Thread(target=self._work, args=(child.run_id,), name=child.run_id, daemon=True)
                self._threads[child.run_id] = thread
                thread.start()

    @property
    def busy(self) -> bool:
        return any(thread.is_alive() for thread in self._threads.values())

    def _settled(self, run_id: str) -> bool:
        """True if nothing can be done for the child now; one that is not recorded yet is its parent's to record."""
        states = self._store.families.children_of(run_id.rpartition("-c")[0])
        return run_id not in states or is_settled(self._store.load(run_id))

    def _work(self, run_id: str) -> None:
        pause = threading.Event()
        try:
            self._store.reclaim(run_id, wait=True)
            while True:
                claimed = self._store.claim_next(self._worker, run_id)
                if claimed is not None:
                    self._execute(claimed)
                run = self._store.load(run_id)
                if is_settled(run):
                    break
                if claimed is None:
                    pause.wait(WAIT_SEC)
            if run.task.parent_run_id is not None:
                wake(self._store, run.task.parent_run_id)
        except BaseException as error:  # noqa: BLE001 - carried to the thread that drives the parent
            self._failures.append(error)


def refuse_child(run: Run, what: str) -> None:
    """Raise for a run that can only be handled with its parent."""
    if run.task.parent_run_id is not None:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Run {run.run_id} is a part of run {run.task.parent_run_id} and is {what} only with it.",
            next_action=f"Name {run.task.parent_run_id}.",
        )
