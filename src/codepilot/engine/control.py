"""What others ask of a run: pause, cancel, resume. Each is an event; none waits for the run's worker."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from codepilot.core.approval import ApprovalDecided
from codepilot.core.decide import ask_cancel, ask_pause, decide_cancel, decide_pause, decide_resume
from codepilot.core.decide import decide_approval as answer
from codepilot.core.events import EventDraft
from codepilot.core.run import Run, evolve
from codepilot.engine.close import close_run
from codepilot.engine.metrics import count
from codepilot.engine.runtime import Runtime
from codepilot.engine.task import Begun
from codepilot.store import new_id

Decision = Callable[[Run], list[EventDraft]]


def pause(runtime: Runtime, run_id: str) -> Run:
    """Let a run stop. If a worker holds it, the worker stops at the next safe point; else it waits from here on."""
    return _ask(runtime, run_id, ask_pause, decide_pause)


def cancel(runtime: Runtime, run_id: str) -> Run:
    """End a run. If a worker holds it, the worker ends it within a second; else it ends here."""
    return _ask(runtime, run_id, ask_cancel, decide_cancel)


def resume(runtime: Runtime, run_id: str) -> Run:
    """Reopen a run that waits, is to pause or has spent its budget; one whose worker died needs nothing but a worker.

    Returns the run as it was left here: a worker may have taken it since then.
    """
    known: list[Run] = []
    runtime.store.reclaim(run_id, wait=True)
    return reduce(evolve, runtime.store.control(run_id, _reopening(known)).events, known[-1])


def decide_approval(runtime: Runtime, run_id: str, decided: ApprovalDecided) -> Run:
    """Record a person's answer; a run that waited for it goes on."""
    known: list[Run] = []

    def decide(run: Run) -> list[EventDraft]:
        known.append(run)
        return answer(run, decided)

    return reduce(evolve, runtime.store.control(run_id, decide).events, known[-1])


def go_on(runtime: Runtime, run_id: str) -> Begun:
    """The same for one that this process works on: its step is ours, unless another worker has it."""
    known: list[Run] = []
    worker = new_id("w-")
    runtime.store.reclaim(run_id, wait=True)
    written = runtime.store.control(run_id, _reopening(known), worker)
    return Begun(reduce(evolve, written.events, known[-1]), worker, written.claimed)


def _reopening(known: list[Run]) -> Decision:
    def decide(run: Run) -> list[EventDraft]:
        known.append(run)
        return decide_resume(run)

    return decide


def _ask(runtime: Runtime, run_id: str, ask: Decision, decide: Decision) -> Run:
    """Ask it of the worker that holds the run; where none does, it is decided here."""
    runtime.store.control(run_id, ask)
    runtime.store.reclaim(run_id, wait=True)
    if not runtime.store.queue.at_work(run_id):
        count(runtime.store.load(run_id), runtime.store.control(run_id, decide).events)
        close_run(runtime.store.load(run_id), runtime)
    return runtime.store.load(run_id)
