"""The tests before a change: which of them fail, twice and in the same way, and why none can be repaired.

A test whose file cannot be imported is a failing test like any other, unless the environment lacks what it imports.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from codepilot.core.artifacts import TestStatus, TestSummary
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import Executor
from codepilot.project import ModuleFacts, Project, SuiteRun
from codepilot.verify.lacking import (
    ASYNC_UNSUPPORTED,
    NO_FIXTURE,
    Missing,
    awaited_by_nobody,
    cannot_start,
    no_async_plugin,
    no_fixture,
    no_locale,
    no_server,
)
from codepilot.verify.suite_runs import Baseline, Bench
from codepilot.verify.verdict import (
    CUT_SHORT,
    Failing,
    baseline_verdict,
    lacks_locale,
    lacks_program,
    lacks_server,
    passes,
    selects,
    suite_kind,
    summary,
    unloadable,
)

MAX_CANDIDATE_TARGETS = 5
"""How many failing tests of a suite are tried, in order, before all are called flaky."""
CLOSE_MATCHES = 3
MAX_LISTED = 10
_MARKS = ("::", ".", "/", "#", " > ")
_TESTED = re.compile(r"\.(?:py|java|kt|[cm]?[jt]sx?)$")


def _unknown(module: str) -> ModuleFacts:
    return ModuleFacts(module, in_repository=False)


def run_baseline(
    executor: Executor,
    workspace: str,
    project: Project,
    targets: Sequence[str],
    command_sec: float,
    narrowed: bool = False,
    within: Sequence[str] = (),
    missing: Missing | None = None,
    suite: SuiteRun | None = None,
) -> Baseline:
    """Run the targets twice and the suite once. Without targets, take the first failure of the suite.

    `within` names files or directories: only failures in them are taken. `narrowed` leaves the suite out. `suite` is
    the run of the suite on this tree if it is known.
    """
    bench = Bench(executor, workspace, project, command_sec)
    missing = missing or Missing(_unknown)
    if not targets:
        return _first_failure(bench, tuple(_collected_name(one, project) for one in within), missing)
    named = tuple(dict.fromkeys(_collected_name(target, project) for target in targets))
    if bench.starts_slowly and not narrowed:
        return _confirm_by_suite(bench, named, missing)
    first = bench.run(named)
    if not narrowed and first.status in ("not_found", "no_tests"):
        named, suite = _whole_names(bench, named, first.not_found or named, missing)
        first = bench.run(named)
    failing, first = _confirm(bench, named, missing, first)
    if narrowed:
        return Baseline(failing.tests, failing.signature, first, _before(failing, first), "none")
    return _with_suite(failing, suite or bench.after(first).suite(), project)


def run_change_baseline(
    executor: Executor,
    before: str,
    after: str,
    project: Project,
    named: Sequence[str],
    command_sec: float,
) -> Baseline:
    """The baseline of a change that exists: the named tests, or those that fail in the workspace `before` and pass in
    the workspace `after`. There may be none. Unnamed tests that are not steady, or whose names are not, are left out.
    """
    missing = Missing(_unknown, may_be_written=True)
    if named:
        return run_baseline(executor, before, project, named, command_sec, missing=missing)
    bench = Bench(executor, before, project, command_sec)
    suite, changed = bench.suite(), Bench(executor, after, project, command_sec).suite()
    known = None if suite.status != "finished" or unloadable(suite) else set(suite.cases)
    passing = [test for test in changed.having(TestStatus.PASSED) if known is None or test in known]
    mended = [test for test in passing if not passes(suite, test)]
    if not mended:
        if suite.status == "cannot_start":
            raise cannot_start(suite, project, missing)
        _require_start(suite, bench, (), missing)
        return Baseline((), "", suite, summary(suite), suite_kind(suite, suite))
    first = bench.run(mended)
    _require_start(first, bench, mended, missing)
    second = bench.after(first).run(mended)
    steady = [test for test in mended if isinstance(baseline_verdict(first, second, (test,)), Failing)]
    failing, _ = _confirmed(bench, steady or mended, missing, first, second)
    return _with_suite(failing, suite, project)


def run_suite_baseline(executor: Executor, workspace: str, project: Project, command_sec: float) -> Baseline:
    """The baseline of a task that no failing test describes: the suite as it is."""
    suite = Bench(executor, workspace, project, command_sec).suite()
    return Baseline((), "", suite, summary(suite), suite_kind(suite, suite))


def _collected_name(target: str, project: Project) -> str:
    """A target relative to the repository's top, as the runner's ids are; modules for unittest."""
    name = target.removeprefix(project.root.rstrip("/") + "/").removeprefix("./")
    if project.runner != "unittest" or not ("/" in name or name.partition("::")[0].endswith(".py")):
        return name
    path, _, rest = name.partition("::")
    inner = path.removeprefix(f"{project.folder}/" if project.folder else "").removeprefix("src/")
    module = inner.removesuffix(".py").rstrip("/").replace("/", ".")
    return ".".join([module, *rest.split("::")]) if rest else module


def _confirm_by_suite(bench: Bench, named: Sequence[str], missing: Missing) -> Baseline:
    """Run the named tests alone and in the suite; if the results disagree, run them alone again."""
    first = bench.run(named)
    _require_start(first, bench, named, missing)
    suite = bench.after(first).suite()
    verdict = baseline_verdict(first, replace(suite, resolved=first.resolved), named)
    if not isinstance(verdict, Failing):
        verdict, _ = _confirm(bench, named, missing, first)
    return _with_suite(verdict, suite, bench.project)


def _confirm(bench: Bench, named: Sequence[str], missing: Missing, first: SuiteRun) -> tuple[Failing, SuiteRun]:
    _require_start(first, bench, named, missing)
    return _confirmed(bench, named, missing, first, bench.after(first).run(named))


def _confirmed(
    bench: Bench, named: Sequence[str], missing: Missing, first: SuiteRun, second: SuiteRun
) -> tuple[Failing, SuiteRun]:
    verdict = baseline_verdict(first, second, named)
    if isinstance(verdict, Failing):
        if (test := awaited_by_nobody(first)) is not None:
            raise no_async_plugin(test, bench.project, missing)
        return verdict, first
    if verdict.kind is FailureKind.TEST_NOT_FOUND:
        raise _not_found(bench, named)
    raise CodePilotError.of(verdict)


def _first_failure(bench: Bench, within: Sequence[str], missing: Missing) -> Baseline:
    suite = bench.suite()
    _require_start(suite, bench, (), missing, whole=True)
    red = [test for test in _in_order(suite) if not within or any(selects(one, test) for one in within)]
    if not red:
        if suite.status in CUT_SHORT and not suite.red:
            return _hanging(bench, suite)
        raise _nothing_fails(suite, within)
    lacking: CodePilotError | None = None
    awaited = [test for test in red if ASYNC_UNSUPPORTED in suite.cases[test].message]
    if awaited:
        lacking = no_async_plugin(awaited[0], bench.project, missing)
    unserved = [test for test in red if lacks_server(suite.cases[test])]
    if unserved and not lacking:
        lacking = no_server(unserved, suite)
    unplaced = [test for test in red if lacks_locale(suite.cases[test])]
    if unplaced and not lacking:
        lacking = no_locale(unplaced)
    unfixed = [test for test in red if suite.cases[test].error_type == NO_FIXTURE]
    if unfixed and not lacking and not missing.may_be_written:
        lacking = no_fixture(unfixed, suite, bench.project, missing)
    tried = [test for test in red if test not in (*awaited, *unserved, *unplaced, *unfixed)]
    tried += unfixed if missing.may_be_written else []
    tried.sort(key=lambda test: lacks_program(suite.cases[test]))  # no edit installs a program
    for test in tried[:MAX_CANDIDATE_TARGETS]:
        first = bench.run((test,))
        if first.status == "cannot_start" and first.missing_module and missing.blocks(first.missing_module):
            lacking = lacking or cannot_start(first, bench.project, missing)
            continue
        verdict = baseline_verdict(first, bench.run((test,)), (test,))
        if isinstance(verdict, Failing):
            return _with_suite(verdict, suite, bench.project)
    raise lacking or _unreliable(suite)


def _nothing_fails(suite: SuiteRun, within: Sequence[str]) -> CodePilotError:
    inside = [test for test in suite.collected if not within or any(selects(one, test) for one in within)]
    if within and not inside:
        advice = "Name a test file, or a directory that holds tests."
        return CodePilotError(FailureKind.TEST_NOT_FOUND, f"There is no test in {', '.join(within)}.", advice)
    passed = set(suite.having(TestStatus.PASSED))
    where = f" in {', '.join(within)}" if within else ""
    number = sum(test in passed for test in inside)
    of_suite = "" if within else " of the suite"
    match number:
        case 0:
            tests = f"no test{of_suite} was run, all are skipped"
        case 1:
            tests = f"the one test{of_suite} that was run passes"
        case _:
            tests = f"all {number:,} tests{of_suite} that were run pass"
    return CodePilotError(
        FailureKind.TEST_ALREADY_PASSES,
        f"Nothing fails{where}: {tests}.",
        "Write a test that shows the bug, then name it with --test.",
    )


def _hanging(bench: Bench, suite: SuiteRun) -> Baseline:
    """Take a test that used most of the suite's time and also hangs alone as the first failure."""
    running = next((test for test in suite.collected if test not in suite.cases), None)
    spent = suite.duration_sec - sum(case.duration_sec for case in suite.cases.values())
    if suite.status != "timeout" or running is None or spent < bench.command_sec / 2:
        raise _too_slow(bench, running)
    verdict = baseline_verdict(suite, bench.after(suite).run((running,)), (running,))
    if not isinstance(verdict, Failing):
        raise _too_slow(bench, running)
    return _with_suite(verdict, suite, bench.project)


def _in_order(suite: SuiteRun) -> list[str]:
    """Failing tests in the order of their files; files that could not be loaded come last."""
    place = {test: number for number, test in enumerate(suite.collected)}
    return sorted(suite.red, key=lambda test: place.get(test, len(place)))


def _with_suite(failing: Failing, suite: SuiteRun, project: Project) -> Baseline:
    if project.is_python and suite.status == "cannot_start" and suite.red:
        suite = replace(suite, status="finished")  # it ran to its end: every file of tests failed to load
    return Baseline(failing.tests, failing.signature, suite, _before(failing, suite), suite_kind(suite, suite))


def _before(failing: Failing, run: SuiteRun) -> TestSummary:
    """The summary of a run, with named tests that did not come to run as errors."""
    found = summary(run)
    stopped = tuple(test for test in failing.tests if test not in run.cases)
    return found.model_copy(update={"errors": (*found.errors, *stopped)})


# Names ----------------------------------------------------------------------------------------------


def _whole_names(
    bench: Bench, named: Sequence[str], unknown: Sequence[str], missing: Missing
) -> tuple[tuple[str, ...], SuiteRun]:
    """The named tests with short names made whole, and the run of the suite in which they were found."""
    suite = bench.suite()
    _require_start(suite, bench, (), missing, whole=True)
    whole = []
    for name in named:
        found = _ending_in(name, suite.collected) if name in unknown else [name]
        found = found or _in_broken_files(name, bench, suite)
        if not found:
            raise _no_such_test(name, suite.collected)
        failing = [test for test in found if any(selects(test, one) for one in suite.red)]
        found = failing if len(failing) == 1 else found
        if len(found) > 1:
            more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
            raise CodePilotError(
                FailureKind.TEST_NOT_FOUND,
                f"{len(found)} tests are named {name}: {', '.join(found[:MAX_LISTED])}{more}.",
                f"Name one of them, for example --test {found[0]}.",
                close_matches=found[:MAX_LISTED],
            )
        whole.append(found[0])
    return tuple(whole), suite


def _ending_in(name: str, tests: Iterable[str]) -> list[str]:
    """The tests whose id ends in a name that leaves out its beginning; the cases of one function count as one."""
    spellings = {name, name.replace(".", "::")} if "/" not in name and not _TESTED.search(name) else {name}
    found: dict[str, None] = {}
    for test in tests:
        whole = test.partition("[")[0]
        for shown in (test,) if "[" in name else (whole,):
            if any(shown == one or shown.endswith(tuple(mark + one for mark in _MARKS)) for one in spellings):
                found[shown] = None
    return list(found)


def _in_broken_files(name: str, bench: Bench, suite: SuiteRun) -> list[str]:
    """The same for a test of a file that cannot be imported, by the text of the file."""
    owner, _, function = name.rpartition("::")
    if not function.isidentifier():
        return []
    found = []
    for path in (test for test in suite.red if test.endswith(".py")):
        text = bench.executor.read_file(bench.workspace, path).decode("utf-8", "replace")
        for match in re.finditer(rf"^([ \t]*)(?:async )?def {function}\b", text, re.M):
            classes = re.findall(r"^class (\w+)", text[: match.start()], re.M) if match[1] else []
            if not owner or classes[-1:] == [owner]:
                found.append("::".join([path, *classes[-1:], function]))
    return found


def _not_found(bench: Bench, missing: Sequence[str]) -> CodePilotError:
    """The error for a missing test, with the closest names, of the same file if it exists."""
    name = missing[0]
    known: tuple[str, ...] = ()
    place = name.split("::")[0].split("#")[0]
    if place != name:
        known = bench.run((place,)).collected
    return _no_such_test(name, known or bench.suite().collected)


def _no_such_test(name: str, known: Sequence[str]) -> CodePilotError:
    near = difflib.get_close_matches(name, known, n=CLOSE_MATCHES, cutoff=0.5)
    if not near:
        last = {test.partition("[")[0].split("::")[-1]: test for test in known}
        close = difflib.get_close_matches(name.split("::")[-1], last, n=CLOSE_MATCHES, cutoff=0.6)
        near = [last[one] for one in close]
    advice = f"Did you mean {' or '.join(near)}?" if near else ""
    return CodePilotError(FailureKind.TEST_NOT_FOUND, f"There is no test {name}.", advice, close_matches=near)


# Errors ---------------------------------------------------------------------------------------------


def _too_slow(bench: Bench, running: str | None = None) -> CodePilotError:
    then = f": it was running {running}" if running else ""
    return CodePilotError(
        FailureKind.SUITE_TIMEOUT,
        f"The suite did not end within {bench.command_sec:g} s and showed no failing test by then{then}.",
        "Name the failing test with --test, or raise --budget command_sec=SECONDS.",
    )


def _unreliable(suite: SuiteRun) -> CodePilotError:
    shown = ", ".join(_in_order(suite)[:CLOSE_MATCHES])
    return CodePilotError(
        FailureKind.FLAKY_TEST,
        f"{len(suite.red)} test(s) fail in the suite, but none fails each time when it is run by itself: {shown}.",
        failing=suite.red,
    )


def _require_start(run: SuiteRun, bench: Bench, named: Sequence[str], missing: Missing, *, whole: bool = False) -> None:
    """Raise if a run has no result for any test. Files of tests that cannot be imported are results.

    In a run of the `whole` suite one of them may be repaired even if others lack something of the environment.
    """
    if run.status == "interrupted" and not run.cases:
        raise CodePilotError(FailureKind.SUITE_CANNOT_START, run.message or "The tests were stopped before any ended.")
    if run.status == "cannot_start":
        lacks = run.missing_module is not None and missing.blocks(run.missing_module)
        if not run.red or (lacks and not whole):
            raise cannot_start(run, bench.project, missing)
    if run.status == "not_found" or (run.status == "no_tests" and named):
        raise _not_found(bench, run.not_found or named)
    if run.status == "no_tests":
        raise CodePilotError(
            FailureKind.NO_TEST_RUNNER,
            f"{bench.project.runner} found no tests in this project.",
            "Write a test that fails because of the bug, then try again.",
        )
