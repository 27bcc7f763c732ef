"""Opens and ends interactive work on a step, and goes on in deterministic mode where that cannot be."""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from codepilot.agents import StepContext, agent_spec
from codepilot.agents.cli.protocol import Feature
from codepilot.core.checkpoint import (
    CheckpointRecorded,
    CheckpointViolation,
    ModeChanged,
    Promoted,
    RolledBack,
    is_high_risk,
    violation,
)
from codepilot.core.events import Event, EventType, SnapshotTaken
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.interactive import Strategy, strategy_for
from codepilot.core.run import Run
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.interactive.checkpoints import Checkpoints
from codepilot.engine.interactive.figures import DISK_BYTES
from codepilot.engine.interactive.supervisor import Supervisor
from codepilot.engine.interactive.validation import Validation
from codepilot.engine.interactive.watch import Watch
from codepilot.engine.interactive.worktree import WorkingTree, check_place
from codepilot.engine.locks import held_by_others
from codepilot.engine.monitor import StopRequested
from codepilot.engine.work import Work
from codepilot.store import LostLease

NEEDED: tuple[Feature, ...] = ("interactive_mode", "working_directory")
SLOT_WAIT_SEC = 0.25

_log = logging.getLogger(__name__)


def is_interactive(run: Run) -> bool:
    return run.task.execution_mode == "interactive"


def strategy_of(run: Run) -> Strategy:
    """The strategy of the run: what was asked for, else shadow where the plan touches contracts or schemas."""
    return strategy_for(run.task.strategy, run.task.interactive.strategy, risky=_is_risky(run))


def _is_risky(run: Run) -> bool:
    plan = run.plan
    if plan is None:
        return False
    return bool(plan.contracts) or any(is_high_risk(area) for area in plan.allowed_areas)


@contextmanager
def supervised(work: Work, context: ExecutionContext) -> Iterator[Callable[[StepContext], StepContext]]:
    """Adds the step's supervision to an agent's context; nothing in deterministic mode, or where it cannot be.

    At the end of the block the workspace holds the run's tree.
    """
    if not is_interactive(work.run):
        yield _alone
        return
    with ExitStack() as stack:
        opened = _open(work, context, stack)
        if opened is None:
            yield _alone
            return
        supervisor, tree, watch = opened
        try:
            yield partial(_with_session, supervisor)
        except (LostLease, StopRequested):
            raise
        except CodePilotError as error:
            if not (supervisor.timed_out and error is supervisor.broken):
                raise
        finally:
            _end(work, supervisor, tree, watch)


def _open(work: Work, context: ExecutionContext, stack: ExitStack) -> tuple[Supervisor, WorkingTree, Watch] | None:
    """Begin; None if the step goes on in deterministic mode, which is recorded with its reason."""
    missing = [feature for feature in NEEDED if feature not in features_of(work)]
    if missing:
        words = " and ".join(name.replace("_", " ") for name in missing)
        fall_back(work, f"the agent {work.agent.name!r} does not offer {words}")
        return None
    check_place(work)
    settings, executor = work.run.task.interactive, context.executor
    stack.enter_context(slot(work.home.locks, settings.concurrent, work.step.raise_if_stopped))
    try:
        return _begin(work, context)
    except CodePilotError as error:
        if error.kind is FailureKind.INVALID_SPEC:
            raise
        executor.close_shadow(work.workspace)
        fall_back(work, f"interactive work could not begin: {error}", error.failure)
        return None


def _begin(work: Work, context: ExecutionContext) -> tuple[Supervisor, WorkingTree, Watch]:
    executor = context.executor
    tree = WorkingTree(work, executor, strategy_of(work.run))
    start = tree.open()
    executor.freeze(work.workspace)  # what cannot be frozen cannot be supervised: better to know it now
    executor.thaw(work.workspace)
    watch = Watch(executor, work.workspace, work.run.run_id, start.tree)
    checkpoints = Checkpoints(work, executor, tree, watch, Validation(locked=partial(_locked, work)), start)
    supervisor = Supervisor(work, watch, checkpoints)
    checkpoints.around = supervisor.around_freeze
    return supervisor, tree, watch


def _locked(work: Work, paths: Sequence[str]) -> list[CheckpointViolation]:
    """The changed paths whose contract lock another run holds; free locks are taken."""
    return [violation(one.rule, one.path, one.detail) for one in held_by_others(work, paths)]


def _end(work: Work, supervisor: Supervisor, tree: WorkingTree, watch: Watch) -> None:
    """Take the last checkpoint, unless the step was lost or must end now, and remove what only supervision needs."""
    error = sys.exception()
    supervisor.detached()
    try:
        work.executor.thaw(work.workspace)
        if not work.step.urgent:
            taken = supervisor.final()
            if taken.failure is not None and error is None:
                fall_back(work, "the last checkpoint could not be made", taken.failure)
    except CodePilotError as failed:
        if error is None:
            raise
        _log.warning("the last checkpoint of %s was not taken: %s", work.run.run_id, failed)
    finally:
        watch.close()
        DISK_BYTES.forget(run_id=work.run.run_id)
        try:
            tree.close(supervisor.checkpoints.last)
        except CodePilotError as failed:
            if error is None:
                raise
            _log.warning("the shadow of %s stays until its workspace is removed: %s", work.run.run_id, failed)


def fall_back(work: Work, reason: str, failure: Failure | None = None) -> None:
    """Go on in deterministic mode: the change is then checked once, at the end of the step."""
    _log.warning("run %s goes on in deterministic mode: %s", work.run.run_id, reason)
    work.record(EventType.MODE_CHANGED, ModeChanged(execution_mode="deterministic", reason=reason, failure=failure))


def features_of(work: Work) -> frozenset[Feature]:
    """What the run's agent can do in interactive mode."""
    own: frozenset[Feature] | None = getattr(work.agent, "features", None)
    return own if own is not None else agent_spec(work.run.task.agent).features


def _alone(context: StepContext) -> StepContext:
    return context


def _with_session(supervisor: Supervisor, context: StepContext) -> StepContext:
    """The agent's context, with its supervision."""

    def raise_if_stopped() -> None:
        supervisor.raise_if_broken()
        context.raise_if_stopped()

    return replace(
        context,
        session=supervisor,
        still=supervisor.checkpoints.still,
        raise_if_stopped=raise_if_stopped,
        seconds_left=lambda: min(context.seconds_left(), supervisor.time_left()),
    )


def last_state(history: Sequence[Event], strategy: Strategy, *, interactive: bool) -> str | None:
    """The snapshot that an interrupted start of a step left. A shadow's is the last that was promoted."""
    found, checkpoints = None, {}
    for event in history:
        match event.data:
            case CheckpointRecorded(checkpoint_id=checkpoint_id, snapshot=snapshot, trigger=trigger):
                checkpoints[checkpoint_id] = snapshot
                if strategy == "direct" and trigger != "rollback":
                    found = snapshot
            case Promoted(checkpoint_id=checkpoint_id):
                found = checkpoints.get(checkpoint_id, found)
            case RolledBack(snapshot=snapshot, failure=None) if strategy == "direct":
                found = snapshot
            case SnapshotTaken(snapshot=snapshot) if strategy == "direct" or not interactive:
                found = snapshot
    return found


@contextmanager
def slot(locks: Path, most: int, raise_if_stopped: Callable[[], None]) -> Iterator[None]:
    """Take one of the home's lock files for interactive work, or wait. The kernel frees them when a process ends."""
    held = _take_slot(locks, most)
    while held is None:
        raise_if_stopped()
        time.sleep(SLOT_WAIT_SEC)
        held = _take_slot(locks, most)
    try:
        yield
    finally:
        os.close(held)


def _take_slot(locks: Path, most: int) -> int | None:
    for number in range(1, most + 1):
        lock = os.open(locks / f"interactive-{number}.slot", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            return lock
    return None
