"""What a run that succeeded leaves for those after it: the failure it mended, and how it went about its task."""

from __future__ import annotations

from codepilot.context import signature_of
from codepilot.core.events import DependencyDegraded, EventType, PatchProposed
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import (
    MAX_LINE,
    MAX_NAMES,
    MAX_TEXT,
    MAX_WORD,
    FailureMemory,
    Memory,
    MemoryRecorded,
    PatternMemory,
)
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.work import Work
from codepilot.verify import Baseline

_TRACE_LINES = 2


def learn(work: Work, context: ExecutionContext, baseline: Baseline) -> None:
    """Record it all or nothing, once in a run: a later attempt at the step, or another step like it, adds nothing.

    A change that is handed over is not lost because nothing can be learnt from it.
    """
    proposal = work.run.proposal
    if proposal is None or not work.run.task.memory.enabled:
        return
    if any(isinstance(event.data, MemoryRecorded) for event in work.store.events(work.run.run_id)):
        return
    learnt = [_failure(work, baseline, proposal), _pattern(work, baseline, proposal)]
    repo, language = work.lineage, context.project.language
    recorded = [MemoryRecorded(repo=repo, language=language, memory=memory) for memory in learnt if memory]
    try:
        work.store.memories("pattern", repo=repo, limit=1)  # fails after seconds if the table is locked
        work.append([work.draft(EventType.MEMORY_RECORDED, one) for one in recorded])
    except CodePilotError as error:
        if error.kind not in (FailureKind.STORE_UNAVAILABLE, FailureKind.INTERNAL):
            raise
        consequence = "later runs learn nothing from this one"
        degraded = DependencyDegraded(dependency="memory", consequence=consequence, failure=error.failure)
        work.record(EventType.DEPENDENCY_DEGRADED, degraded)


def _failure(work: Work, baseline: Baseline, proposal: PatchProposed) -> Memory | None:
    """The failure that the run began with, as its first test reported it."""
    case = next((baseline.suite.cases[test] for test in baseline.targets if test in baseline.suite.cases), None)
    if case is None:
        return None
    trace = [line.strip() for line in case.traceback.splitlines() if line.strip()]
    error_type, message = _clean(work, case.error_type, MAX_WORD), _clean(work, case.message, MAX_TEXT)
    return FailureMemory(
        error_type=error_type,
        message=message,
        signature=signature_of(error_type, message),
        where=_clean(work, "\n".join((case.test, *trace[-_TRACE_LINES:])), MAX_LINE),
        solution=_clean(work, proposal.patch.rationale, MAX_TEXT),
        changed=_changed(work, proposal),
    )


def _pattern(work: Work, baseline: Baseline, proposal: PatchProposed) -> Memory:
    return PatternMemory(
        task=_clean(work, work.run.task.goal.natural, MAX_TEXT),
        tests=tuple(_clean(work, test, MAX_LINE) for test in baseline.targets[:MAX_NAMES]),
        touched=tuple(_clean(work, path, MAX_LINE) for path in proposal.patch.touched_files[:MAX_NAMES]),
        solution=_clean(work, proposal.patch.rationale, MAX_TEXT),
        changed=_changed(work, proposal),
    )


def _changed(work: Work, proposal: PatchProposed) -> str:
    lines = work.run.review.patch_loc if work.run.review else 0
    return _clean(work, f"{lines} lines in {', '.join(proposal.patch.touched_files)}", MAX_LINE)


def _clean(work: Work, text: str, most: int) -> str:
    """Redacted first, so that no half of a secret is left at the cut."""
    clean = work.runtime.redact(text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"
