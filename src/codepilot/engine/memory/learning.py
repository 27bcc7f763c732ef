"""Records memories: failures when they are reflected on, their solutions when there are any, and a run's result."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codepilot.context import signature_of
from codepilot.core.artifacts import Reflection, TestError, TestResult
from codepilot.core.contract import Contract
from codepilot.core.events import DependencyDegraded, Event, EventDraft, EventType, PatchProposed, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import (
    MAX_LINE,
    MAX_NAMES,
    MAX_TEXT,
    MAX_WORD,
    FailureMemory,
    Memory,
    MemoryRecorded,
    MemorySolved,
    PatternMemory,
    QuirkMemory,
)
from codepilot.core.run import Run
from codepilot.core.task import TaskKind
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.runtime import Runtime
from codepilot.engine.work import Work
from codepilot.store import MemoryRow
from codepilot.verify import Baseline

_TRACE_LINES = 2
_MOST_FAILURES = 3
"""Failures that one reflection records."""
_MOST_QUIRKS = 5
"""Quirks that one run records."""


def learn_failures(work: Work, context: ExecutionContext, reflection: Reflection) -> None:
    """Record what the last change failed with, once in a step; the solution comes when there is one."""
    result = work.run.test_result
    if result is None or not work.run.task.memory.enabled or work.recorded(MemoryRecorded):
        return
    known = {memory.signature for _, memory in _unsolved(work.store.events(work.run.run_id))}
    found: dict[str, FailureMemory] = {}
    for error in result.errors:
        memory = _failed(work, error, reflection)
        if memory.signature not in known:
            found.setdefault(memory.signature, memory)
    if found:
        recorded = _recorded(work, context, list(found.values())[:_MOST_FAILURES])
        _record(work, EventType.MEMORY_RECORDED, lambda: recorded)


def fill_solutions(work: Work, result: TestResult) -> None:
    """Give the recorded failures that no longer occur the change that was made since as their solution."""
    proposal, run = work.run.proposal, work.run
    if proposal is None or not run.task.memory.enabled or work.recorded(MemorySolved):
        return
    events = work.store.events(run.run_id)
    left = {_signature(work, error) for error in result.errors}
    gone = [seq for seq, memory in _unsolved(events) if memory.signature not in left]
    solution = _solution(work.runtime, events, proposal)
    changed = _changed(work.runtime, run, proposal)
    solved = [MemorySolved(of=seq, solution=solution, changed=changed) for seq in gone if solution]
    if solved:
        _record(work, EventType.MEMORY_SOLVED, lambda: solved)


def learn(work: Work, context: ExecutionContext, baseline: Baseline) -> None:
    """Record all memories of a success or none. Repeating a step records them only once.

    If they cannot be recorded, the run still ends well: memory is dispensable.
    """
    proposal = work.run.proposal
    if proposal is None or not work.run.task.memory.enabled:
        return
    events = work.store.events(work.run.run_id)
    if any(isinstance(event.data, MemoryRecorded) and _concludes(event.data.memory) for event in events):
        return
    approach = work.run.plan.approach if work.run.plan else ""
    pattern = pattern_of(work.runtime, work.run, proposal, baseline.targets, notes=approach)

    def learnt() -> list[MemoryRecorded]:
        found = [_first_failure(work, baseline, proposal), pattern, *_quirks(work)]
        return _recorded(work, context, [memory for memory in found if memory])

    _record(work, EventType.MEMORY_RECORDED, learnt)


def _concludes(memory: Memory) -> bool:
    return isinstance(memory, PatternMemory) and not memory.partial


def keep_partial(run: Run, runtime: Runtime) -> None:
    """Record what a failed build achieved, as a partial solution, once."""
    result, proposal = run.test_result, run.proposal
    if run.task.kind is not TaskKind.BUILD or run.state not in (State.FAILED, State.ABORTED):
        return
    if proposal is None or result is None or not result.summary.passed or run.base is None:
        return
    if not run.task.memory.enabled or run.task.parent_run_id is not None:
        return
    failed = result.errors[0] if result.errors else None
    last = f"{failed.error_type}: {failed.message}" if failed else ""
    notes = f"{result.summary.passed} passed; {last}"
    pattern = pattern_of(runtime, run, proposal, (), notes=notes).model_copy(update={"partial": True})
    recorded = MemoryRecorded(repo=run.base.lineage, language=run.task.language or "", memory=pattern)

    def once(current: Run) -> list[EventDraft]:
        draft = EventDraft(
            type=EventType.MEMORY_RECORDED, data=recorded, step_id=current.step_id, attempt=current.attempt
        )
        return [draft] if current.terminal else []

    kept = (event.data for event in runtime.store.events(run.run_id) if isinstance(event.data, MemoryRecorded))
    if recorded not in kept:
        runtime.store.control(run.run_id, once)


def pattern_of(
    runtime: Runtime, run: Run, proposal: PatchProposed, tests: Sequence[str], *, notes: str
) -> PatternMemory:
    return PatternMemory(
        task_type=run.task.kind.value,
        task=_clean(runtime, run.task.goal.natural, MAX_TEXT),
        tests=tuple(_clean(runtime, test, MAX_LINE) for test in tests[:MAX_NAMES]),
        touched=tuple(_clean(runtime, path, MAX_LINE) for path in proposal.patch.touched_files[:MAX_NAMES]),
        solution=_clean(runtime, proposal.patch.rationale, MAX_TEXT),
        changed=_changed(runtime, run, proposal),
        notes=_clean(runtime, notes, MAX_TEXT),
    )


def _recorded(work: Work, context: ExecutionContext, memories: Sequence[Memory]) -> list[MemoryRecorded]:
    repo, language = work.lineage, context.project.language
    return [MemoryRecorded(repo=repo, language=language, memory=memory) for memory in memories]


def _record(work: Work, kind: EventType, make: Callable[[], Sequence[Contract]]) -> None:
    """Record what `make` returns. A run does not fail because it cannot reach the memory."""
    try:
        work.store.memories("pattern", repo=work.lineage, limit=1)  # fails after seconds if the table is locked
        work.append([work.draft(kind, one) for one in make()])
    except CodePilotError as error:
        if error.kind not in (FailureKind.STORE_UNAVAILABLE, FailureKind.INTERNAL):
            raise
        consequence = "later runs learn nothing from this one"
        degraded = DependencyDegraded(dependency="memory", consequence=consequence, failure=error.failure)
        work.record(EventType.DEPENDENCY_DEGRADED, degraded)


def _unsolved(events: Sequence[Event]) -> list[tuple[int, FailureMemory]]:
    """The run's failures without a solution, with the numbers of their events."""
    solved = {event.data.of for event in events if isinstance(event.data, MemorySolved)}
    return [
        (event.seq, event.data.memory)
        for event in events
        if isinstance(event.data, MemoryRecorded)
        and isinstance(event.data.memory, FailureMemory)
        and not event.data.memory.solution
        and event.seq not in solved
    ]


def _failed(work: Work, error: TestError, reflection: Reflection) -> FailureMemory:
    trace = [line.strip() for line in error.traceback.splitlines() if line.strip()]
    return FailureMemory(
        error_type=_clean(work.runtime, error.error_type, MAX_WORD),
        message=_clean(work.runtime, error.message, MAX_TEXT),
        signature=_signature(work, error),
        where=_clean(work.runtime, "\n".join((error.test, *trace[-_TRACE_LINES:])), MAX_LINE),
        cause=_clean(work.runtime, reflection.root_cause, MAX_TEXT),
    )


def _signature(work: Work, error: TestError) -> str:
    error_type, message = (
        _clean(work.runtime, error.error_type, MAX_WORD),
        _clean(work.runtime, error.message, MAX_TEXT),
    )
    return signature_of(error_type, message)


def _solution(runtime: Runtime, events: Sequence[Event], proposal: PatchProposed) -> str:
    """What the last reflection proposed and what the agent says it did."""
    thoughts = [event.data.fix_hypothesis for event in events if isinstance(event.data, Reflection)]
    parts = [*thoughts[-1:], proposal.patch.rationale]
    return _clean(runtime, "; ".join(dict.fromkeys(part.strip() for part in parts if part.strip())), MAX_TEXT)


def _first_failure(work: Work, baseline: Baseline, proposal: PatchProposed) -> Memory | None:
    """The failure at the baseline, as the first target reported it."""
    case = next((baseline.suite.cases[test] for test in baseline.targets if test in baseline.suite.cases), None)
    if case is None:
        return None
    error = TestError(test=case.test, error_type=case.error_type, message=case.message, traceback=case.traceback)
    reflection = Reflection(root_cause=work.run.plan.root_cause if work.run.plan else "", fix_hypothesis="")
    return _failed(work, error, reflection).model_copy(
        update={
            "solution": _clean(work.runtime, proposal.patch.rationale, MAX_TEXT),
            "changed": _changed(work.runtime, work.run, proposal),
        }
    )


def _quirks(work: Work) -> list[QuirkMemory]:
    """What the mapper and the reflector found peculiar about the repository and is not known yet."""
    if work.run.task.kind is TaskKind.BUILD:
        return []
    named = list(work.run.repo_map.quirks) if work.run.repo_map else []
    for event in work.store.events(work.run.run_id):
        if isinstance(event.data, Reflection):
            named += event.data.quirks
    known = {_text(row) for row in work.store.memories("quirk", repo=work.lineage)}
    found = {
        text.casefold(): text for name in named if (text := _clean(work.runtime, " ".join(name.split()), MAX_LINE))
    }
    return [QuirkMemory(text=text) for folded, text in found.items() if folded not in known][:_MOST_QUIRKS]


def _text(row: MemoryRow) -> str:
    return row.memory.text.casefold() if isinstance(row.memory, QuirkMemory) else ""


def _changed(runtime: Runtime, run: Run, proposal: PatchProposed) -> str:
    lines = run.review.patch_loc if run.review else 0
    counted = f"{lines} lines in " if lines else ""
    return _clean(runtime, f"{counted}{', '.join(proposal.patch.touched_files)}", MAX_LINE)


def _clean(runtime: Runtime, text: str, most: int) -> str:
    """Redacted first, so that no half of a secret is left at the cut."""
    clean = runtime.redact(text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
