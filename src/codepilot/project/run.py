"""Runs a project's tests in its workspace and says how the run ended."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace

from codepilot.core.artifacts import TestStatus
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CommandResult, Executor, RunCommand
from codepilot.project.build import PLUGIN_DIR
from codepilot.project.report import Case, Report, parse
from codepilot.project.runner_command import FOLDER, PYTEST, UNITTEST, VARIABLE, described, importable, with_places
from codepilot.project.suite import Project, SuiteRun, SuiteStatus, TestCase
from codepilot.sandbox import Limits

OUTPUT_BYTES = 64 << 20
LOG_TAIL = 16_000


def run_tests(
    executor: Executor,
    workspace: str,
    project: Project,
    tests: Sequence[str] = (),
    timeout_sec: float = 300.0,
) -> SuiteRun:
    """Run the named tests, or the whole suite. Raises only for ids that no runner could be given."""
    for name in tests:
        _check_id(name)
    nonce = secrets.token_hex(16)
    header = json.dumps({"nonce": nonce, "tests": list(dict.fromkeys(tests))}) + "\n"
    cmd = command(project, tests)
    result = executor.run_command(
        RunCommand(
            workspace=workspace,
            argv=cmd,
            timeout_sec=timeout_sec,
            stdin=header.encode(),
            env=environment(project),
            limits=Limits(wall_sec=timeout_sec, output_bytes=OUTPUT_BYTES),
            hosts=project.hosts,
            cwd=project.folder or ".",
        )
    )
    return judge(result, parse(result.stdout, nonce), cmd, timeout_sec)


def command(project: Project, tests: Sequence[str] = ()) -> tuple[str, ...]:
    """The command line. The exact ids travel on standard input; pytest gets only the files to look in."""
    return tuple(with_places(base_command(project), tests, project.folder))


def base_command(project: Project) -> tuple[str, ...]:
    """The command line for the whole suite."""
    python = project.interpreter.executable
    if project.driver:
        return (python, str(PLUGIN_DIR / project.driver[0]), *project.driver[1:])
    return (python, *(UNITTEST if project.runner == "unittest" else PYTEST))


def environment(project: Project) -> dict[str, str]:
    """The project's own variables, with the reporting plugin importable."""
    return {**project.env, **importable("" if project.driver else str(PLUGIN_DIR), project.env)}


def with_command(project: Project) -> Project:
    """The project with the command in its environment, where an agent's `run_tests` finds it."""
    described_command = described(base_command(project), "" if project.driver else str(PLUGIN_DIR))
    folder = {FOLDER: project.folder} if project.folder else {}
    return replace(project, env={VARIABLE: described_command, **folder, **project.env})


def judge(result: CommandResult, report: Report, cmd: tuple[str, ...], timeout_sec: float) -> SuiteRun:
    """Compare the report with how the process ended; where they disagree, the worse counts."""
    status, message = _ending(result, report, timeout_sec)
    notes = "".join(f"\n[report: {note}]" for note in report.notes)
    return SuiteRun(
        status=status,
        cases={name: _case(case) for name, case in report.cases.items()},
        collected=_collected(report, status),
        cmd=cmd,
        exit_code=result.exit_code,
        duration_sec=result.duration_ms / 1000.0,
        log_tail=_tail(result.stderr) + notes,
        message=message,
        missing_module=report.missing_module,
        not_found=tuple(report.missing),
        limit=result.limit,
        resolved=report.resolved,
        warnings=tuple(report.warnings),
    )


def _case(case: Case) -> TestCase:
    return TestCase(
        case.test, TestStatus(case.status), case.error_type, case.message, case.traceback, case.duration_sec
    )


def _collected(report: Report, status: SuiteStatus) -> tuple[str, ...]:
    """The collected tests, with the test that a limit stopped."""
    stopped = report.running if status in ("timeout", "limit") else None
    return tuple(dict.fromkeys([*report.collected, *([stopped] if stopped else [])]))


def _ending(result: CommandResult, report: Report, timeout_sec: float) -> tuple[SuiteStatus, str]:
    during = f" while running {report.running}" if report.running else ""
    if result.status == "timeout":
        return "timeout", f"The tests did not end within {timeout_sec:g} s{during}."
    if result.status == "limit":
        return "limit", f"The tests went over the {result.limit or 'resource'} limit{during}."
    if result.status in ("interrupted", "violation"):
        return "interrupted", f"The test run was stopped{during}."
    if not report.started or (report.startup is not None and not report.collected):
        return "cannot_start", _why_not_started(result, report)
    if report.missing:
        return "not_found", f"No such test: {', '.join(report.missing)}."
    if not report.ended and not report.collected and not report.cases:
        return "cannot_start", _why_not_started(result, report)
    if not report.ended:
        died = f"The test process ended by itself (exit code {result.exit_code}){during}"
        return "interrupted", f"{died}, before the suite's end."
    if report.collect_errors and not report.collected:
        return "cannot_start", _why_not_collected(report)
    if not report.collected and not report.cases:
        if result.exit_code == 5 and report.end_code == 5:
            return "no_tests", "The runner found no tests."
        return "cannot_start", _why_not_started(result, report)
    return _contradictions(result, report)


def _contradictions(result: CommandResult, report: Report) -> tuple[SuiteStatus, str]:
    if result.truncated and len(result.stdout) >= OUTPUT_BYTES:
        return "interrupted", "The report was longer than is kept, so it is incomplete."
    if report.unreported:
        first = report.unreported[0]
        return "interrupted", f"{len(report.unreported)} collected tests have no result, {first} first."
    if not report.red and (result.exit_code != 0 or report.end_code != 0):
        return "interrupted", f"No test was reported red, yet the runner ended with exit code {result.exit_code}."
    return "finished", ""


def _why_not_started(result: CommandResult, report: Report) -> str:
    if report.startup is not None:
        return _sentence(report.startup.error_type, report.startup.message)
    lines = [line.strip() for line in _tail(result.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line] or lines
    reason = errors[-1] if errors else "there was no output"
    return f"{reason[:500]} (exit code {result.exit_code})"


def _why_not_collected(report: Report) -> str:
    trouble = next((one for one in report.collect_errors if one.missing_module), report.collect_errors[0])
    return f"{trouble.where} cannot be loaded: {_sentence(trouble.error_type, trouble.message)}"


def _sentence(error_type: str, message: str) -> str:
    first = next(iter(message.splitlines()), "")
    return f"{error_type}: {first[:500]}" if first else error_type


def _tail(data: bytes) -> str:
    text = data[-LOG_TAIL * 4 :].decode("utf-8", "replace").replace("\0", "\\0")
    return text if len(text) <= LOG_TAIL else "[...]\n" + text[-LOG_TAIL:]


def _check_id(name: str) -> None:
    if not name.strip() or name.startswith("-") or any(char in name for char in "\0\n\r"):
        raise CodePilotError(FailureKind.TEST_NOT_FOUND, f"{name!r} is not a test id.")
