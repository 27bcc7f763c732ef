"""A series of runs that repairs the failing tests of a project one after the other.

Each run is a normal run with a bundle of its own. Its base is the base of the run before it, with the change of that
run if it is trusted: a confirmed change, or a plausible one that was accepted.
"""

from __future__ import annotations

from collections.abc import Sequence

from codepilot.core.artifacts import TestSummary
from codepilot.core.events import BasePinned, State
from codepilot.core.run import Run
from codepilot.core.task import TaskSpec
from codepilot.engine.task import default_goal
from codepilot.store import new_id
from codepilot.verify import selects


def trusted(run: Run, *, accept_plausible: bool) -> bool:
    """True if the change of a run is part of the base of the runs after it."""
    return run.state is State.DONE and (run.verdict == "confirmed" or (accept_plausible and run.verdict == "plausible"))


def next_base(done: Sequence[Run], *, accept_plausible: bool) -> BasePinned | None:
    """The base of the next run; None before the first one has pinned its own."""
    if not done or done[-1].base is None:
        return None
    last, base = done[-1], done[-1].base
    if last.proposal is None or not trusted(last, accept_plausible=accept_plausible):
        measured = last.baseline.report if last.baseline and not last.baseline.cut_short else base.measured
        return base.model_copy(update={"measured": measured})
    return base.model_copy(update={"tree": last.proposal.tree, "carried": (), "measured": None})


def next_task(task: TaskSpec, done: Sequence[Run], *, accept_plausible: bool) -> TaskSpec | None:
    """The task of the next run: the first test that still fails and was not tried; None if there is none."""
    if not done:
        return task
    tried = {test for run in done for test in _settled_by(run)}
    wanted = [*task.tests, *task.within]
    for test in still_failing(done, accept_plausible=accept_plausible):
        inside = not wanted or any(selects(one, test) for one in wanted)
        if inside and test not in tried:
            goal = task.goal.model_copy(update={"natural": default_goal((test,))})
            return task.model_copy(update={"task_id": new_id("t-"), "tests": (test,), "within": (), "goal": goal})
    return None


def still_failing(done: Sequence[Run], *, accept_plausible: bool) -> tuple[str, ...]:
    """The tests that fail on the base of the next run."""
    for run in reversed(done):
        if run.proof is not None and trusted(run, accept_plausible=accept_plausible):
            return _red(run.proof.after)
        if run.baseline is not None:
            return _red(run.baseline.before)
    return ()


def _settled_by(run: Run) -> set[str]:
    """The tests that no further run is about: those that were tried, and those that the change of the run mends."""
    if run.baseline is None:
        return set(run.task.tests)
    mended = set(_red(run.baseline.before)) - set(_red(run.proof.after)) if run.verdict and run.proof else set()
    return mended.union(run.baseline.targets)


def _red(summary: TestSummary) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*summary.failed, *summary.errors)))
