"""Tasks of kind prove: the change exists. INIT proposes it; gates and review judge all of it, its tests included."""

from __future__ import annotations

from collections.abc import Sequence

from codepilot.core.artifacts import Gate, PatchCandidate
from codepilot.core.events import PatchProposed
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.change.proposal import Read, lay_tree, propose
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.work import Work
from codepilot.executor import DiffResult
from codepilot.verify import NOTHING_RUN, Baseline, BaseTests, change_between, run_change_baseline


def proposed_tree(work: Work) -> str:
    if work.base.proposed is None:
        raise CodePilotError(FailureKind.INTERNAL, f"Run {work.run.run_id} has no change to judge.")
    return work.base.proposed


def judge_before(work: Work, context: ExecutionContext) -> Baseline:
    """The baseline of the change; the workspace holds the base with the tests of the change."""
    task, after, tree = work.run.task, f"{work.workspace}-copy", proposed_tree(work)
    if tree == work.base.tree:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            "There is nothing to judge: the change touches no file, or tests only.",
            next_action="Name the change by --diff, --branch or --commit. Tests alone prove nothing.",
        )
    context.executor.delete(after)
    context.create(after, tree)
    try:
        return run_change_baseline(
            context.executor, work.workspace, after, context.project, task.tests, task.budget.command_sec
        )
    except CodePilotError as error:
        if error.kind is not FailureKind.NO_TEST_RUNNER:
            raise
        if work.base.tree == work.base.untouched:
            if not task.judged_by_commands:
                raise
            return NOTHING_RUN
        raise CodePilotError(
            FailureKind.GATE_FAILED,
            f"With the files of tests as the change leaves them, {context.project.runner} collects no test any more.",
            next_action="Take out what skips them: an error or a skip at the top leaves out a whole file.",
        ) from error
    finally:
        context.executor.delete(after)


def propose_change(work: Work, context: ExecutionContext) -> PatchProposed:
    """Lay the change into the workspace and record it as the proposal."""
    lay_tree(work, context, proposed_tree(work))
    taken, diff = work.snapshot(), context.executor.diff(work.workspace, work.base.tree)
    patch = PatchCandidate(diff="", touched_files=(), rationale=work.run.task.goal.natural)
    return propose(work, patch, diff, taken.snapshot)


def base_tests_gate(work: Work, context: ExecutionContext, red: Sequence[str]) -> Gate:
    """Judge the tests that the change brought or altered; `red` are those that fail after it."""
    judge = BaseTests(
        executor=context.executor,
        objects=context.objects,
        project=context.project,
        create=context.request,
        workspace=work.workspace,
        command_sec=work.run.task.budget.command_sec,
    )
    return judge.judge(work.base.untouched, proposed_tree(work), red)


def whole_change(work: Work, context: ExecutionContext) -> tuple[DiffResult, Read, Read]:
    """The change with its tests, and functions that read a path before and after it."""
    before, after = work.base.untouched, proposed_tree(work)
    return change_between(context.objects, before, after), _reader(context, before), _reader(context, after)


def _reader(context: ExecutionContext, tree: str) -> Read:
    entries = context.objects.read_tree(tree)

    def read(path: str) -> bytes | None:
        entry = entries.get(path)
        return None if entry is None or entry.mode == "160000" else context.objects.read_blob(entry.oid)

    return read
