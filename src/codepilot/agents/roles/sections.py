"""The sections of a role's prompt about the work so far, each bounded."""

from __future__ import annotations

from itertools import groupby

from codepilot.agents.protocol import StepContext
from codepilot.agents.transcript import bounded
from codepilot.context import listed_quirks, quoted
from codepilot.core.artifacts import TestResult
from codepilot.core.contract import Contract
from codepilot.core.events import PatchProposed
from codepilot.core.plan import NodeStatus, with_status
from codepilot.core.replan import staying_parts

MAX_SECTION = 12_000
MAX_TRACE = 3_000
MAX_TESTS = 5
MAX_CYCLES = 8


def constraints(context: StepContext) -> str:
    task = context.run.task
    alters = f"you may edit or remove these existing tests, and no others: {', '.join(task.alters)}"
    lines = [*task.constraints, alters if task.alters else "", task.evaluation.acceptance_hint]
    return "\n".join(f"- {line}" for line in lines if line)


def repository(context: StepContext) -> str:
    return written(context.run.repo_map)


def reflection(context: StepContext) -> str:
    return written(context.run.reflection)


def red_tests(context: StepContext) -> str:
    return "\n".join(context.baseline.red[:20])


def project(context: StepContext) -> str:
    return f"The platform runs the tests by {context.project.runner}."


def failing_tests(context: StepContext) -> str:
    """The tests to repair, with their messages before any change."""
    targets = context.targets
    parts = []
    for test in targets[:MAX_TESTS]:
        case = context.baseline.cases.get(test)
        error = f"{case.error_type}: {case.message}\n{bounded(case.traceback, MAX_TRACE)}" if case else ""
        parts.append(f"{test}\n{error}".rstrip())
    if len(targets) > MAX_TESTS:
        parts.append(f"and {len(targets) - MAX_TESTS} more")
    return "\n\n".join(parts)


def written(contract: Contract | None) -> str:
    """A contract as JSON, without what is empty."""
    return "" if contract is None else bounded(contract.model_dump_json(exclude_defaults=True, indent=1), MAX_SECTION)


def plan(context: StepContext) -> str:
    """The plan without the progress of its nodes, so that it reads the same after a restart."""
    made = context.run.plan
    return "" if made is None else written(with_status(made, NodeStatus.PENDING))


def parts_that_stay(context: StepContext) -> str:
    """The succeeded parts that a new plan is built around."""
    run = context.run
    titles = {node.id: node.title for node in run.plan.nodes} if run.plan is not None else {}
    files = {child.node: child.joined.touched_files for child in run.children if child.joined is not None}
    return "\n".join(f"- {node}: {titles[node]} ({', '.join(files[node]) or 'no file'})" for node in staying_parts(run))


def last_result(context: StepContext) -> str:
    result = context.run.test_result
    if result is None:
        return ""
    lines = [f"passed: {result.passed}"]
    for title, tests in (("still failing", result.failed_tests_after), ("newly failing", result.regressions)):
        if tests:
            lines.append(f"{title}: {', '.join(tests[:20])}")
    for error in result.errors[:MAX_TESTS]:
        lines.append(f"\n{error.test}\n{error.error_type}: {error.message}\n{bounded(error.traceback, MAX_TRACE)}")
    if not result.passed:
        lines.append(_log_tail(result))
    return "\n".join(lines)


def red_cycles(context: StepContext) -> str:
    """Every change that the gates did not hold for, with the tests that failed and the end of their log."""
    parts: list[str] = []
    diff = ""
    for event in context.earlier:
        match event.data:
            case PatchProposed(patch=patch):
                diff = patch.diff
            case TestResult() as result if not result.passed:
                failing = dict.fromkeys((*result.failed_tests_after, *result.regressions))
                lines = [f"## Change {len(parts) + 1}", bounded(diff, MAX_SECTION // 3)]
                lines += [f"failing: {', '.join(list(failing)[:20])}", _log_tail(result)]
                parts.append("\n".join(lines))
    return "\n\n".join(parts[-MAX_CYCLES:])


def _log_tail(result: TestResult) -> str:
    tail = result.log_tail.strip()
    return f"the end of the log:\n{tail[-MAX_TRACE:]}" if tail else ""


def attempts(context: StepContext) -> str:
    """Changes that were tried and did not hold, newest last."""
    return "\n\n".join(bounded(patch.diff, MAX_SECTION // 3) for patch in context.run.attempted[-3:])


def failures(context: StepContext) -> str:
    """The last failures; a repeated one, such as an outage, is listed once."""
    lines = (f"- {failure.kind}: {bounded(failure.message, 500)}" for failure in context.run.failures)
    return "\n".join([line for line, _ in groupby(lines)][-10:])


def memories(context: StepContext) -> str:
    """Similar cases that other runs recorded."""
    return quoted(one for one in context.recalled if one.memory.kind != "quirk")


def quirks(context: StepContext) -> str:
    """What people and earlier runs know of the repository."""
    return listed_quirks(context.recalled)


def proposal(context: StepContext) -> str:
    return bounded(context.run.proposal.patch.diff, 2 * MAX_SECTION) if context.run.proposal else ""


def objections(context: StepContext) -> str:
    review = context.run.review
    if review is None or review.verdict == "APPROVE":
        return ""
    return "\n".join(f"- {reason}" for reason in review.reasons)


def test_places(context: StepContext) -> str:
    known = context.run.repo_map.test_files if context.run.repo_map else ()
    return "\n".join([project(context), *known[:50]])


def criteria(context: StepContext) -> str:
    """The plan's acceptance criteria and test strategies."""
    plan = context.run.plan
    if plan is None:
        return ""
    lines = [*plan.acceptance_criteria, plan.regression_strategy, plan.testing_strategy]
    return "\n".join(f"- {line}" for line in lines if line)


def areas(context: StepContext) -> str:
    """The paths that the plan allows and forbids to change."""
    plan = context.run.plan
    if plan is None:
        return ""
    rows = (("may be changed", plan.allowed_areas), ("may not be changed", plan.forbidden_areas))
    return "\n".join(f"{what}: {', '.join(paths)}" for what, paths in rows if paths)
