"""Requests to a run: pause, cancel, resume. Each is an event; none waits for the run's worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from codepilot.core.approval import ApprovalDecided
from codepilot.core.decide import ask_cancel, ask_pause, decide_cancel, decide_pause, decide_resume
from codepilot.core.decide import decide_approval as answer
from codepilot.core.events import EventDraft
from codepilot.core.interactive import ModeSwitch
from codepilot.core.run import Run, evolve
from codepilot.core.spending import check_limits
from codepilot.engine.close import close_run
from codepilot.engine.plan.families import asking, cancel_children, pause_children, resume_children
from codepilot.engine.runtime import Runtime
from codepilot.engine.task import Begun
from codepilot.store import new_id

Decision = Callable[[Run], list[EventDraft]]


def pause(runtime: Runtime, run_id: str, by: str = "user") -> Run:
    """Let a run stop. If a worker holds it, the worker stops at the next safe point; else it waits from here on.

    Its child runs pause with it.
    """
    _ask(runtime, run_id, lambda run: ask_pause(run, by), decide_pause)
    pause_children(runtime.store, run_id)
    return runtime.store.load(run_id)


def cancel(runtime: Runtime, run_id: str, by: str = "user") -> Run:
    """End a run. If a worker holds it, the worker ends it within a second; else it ends here.

    Its child runs end with it.
    """
    _ask(runtime, run_id, lambda run: ask_cancel(run, by), decide_cancel)
    for child in cancel_children(runtime.store, run_id):
        close_run(runtime.store.load(child), runtime)
    return runtime.store.load(run_id)


def resume(
    runtime: Runtime,
    run_id: str,
    by: str = "user",
    limits: Mapping[str, float] | None = None,
    mode: ModeSwitch | None = None,
) -> Run:
    """Reopen a run that waits, is to pause or has spent its budget; one whose worker died needs nothing but a worker.

    Returns the run as it was left here: a worker may have taken it since then.
    """
    known: list[Run] = []
    runtime.store.reclaim(run_id, wait=True)
    reopened = reduce(evolve, runtime.store.control(run_id, _reopening(known, by, limits, mode)).events, known[-1])
    resume_children(runtime.store, run_id)
    return reopened


def decide_approval(runtime: Runtime, run_id: str, decided: ApprovalDecided) -> Run:
    """Record a person's decision; a run that waited for it continues. A run answers for its child runs."""
    known: list[Run] = []
    run_id = asking(runtime.store, run_id, decided.approval_id)
    now = runtime.store.now()

    def decide(run: Run) -> list[EventDraft]:
        known.append(run)
        return answer(run, decided, now)

    return reduce(evolve, runtime.store.control(run_id, decide).events, known[-1])


def go_on(
    runtime: Runtime, run_id: str, limits: Mapping[str, float] | None = None, mode: ModeSwitch | None = None
) -> Begun:
    """The same for one that this process works on: its step is ours, unless another worker has it."""
    known: list[Run] = []
    worker = new_id("w-")
    runtime.store.reclaim(run_id, wait=True)
    written = runtime.store.control(run_id, _reopening(known, limits=limits, mode=mode), worker)
    resume_children(runtime.store, run_id)
    return Begun(reduce(evolve, written.events, known[-1]), worker, written.claimed)


def _reopening(
    known: list[Run],
    by: str = "user",
    limits: Mapping[str, float] | None = None,
    mode: ModeSwitch | None = None,
) -> Decision:
    def decide(run: Run) -> list[EventDraft]:
        check_limits(run, limits or {})
        known.append(run)
        return decide_resume(run, by, limits, mode)

    return decide


def _ask(runtime: Runtime, run_id: str, ask: Decision, decide: Decision) -> Run:
    """Leave the request to the worker that holds the run; without one, decide here."""
    runtime.store.control(run_id, ask)
    runtime.store.reclaim(run_id, wait=True)
    if not runtime.store.queue.at_work(run_id):
        runtime.count(runtime.store.load(run_id), runtime.store.control(run_id, decide).events)
        close_run(runtime.store.load(run_id), runtime)
    return runtime.store.load(run_id)
