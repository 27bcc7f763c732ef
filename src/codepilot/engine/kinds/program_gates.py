"""TEST of a build: scan what was generated, ask a person where that is needed, and only then run its tests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from codepilot.agents.approvals import NOT_INSTALLED
from codepilot.core.approval import Operation, Risk
from codepilot.core.artifacts import Gate, TestError, TestResult
from codepilot.core.failures import CodePilotError
from codepilot.core.pipeline import gates_of
from codepilot.engine.approvals import denial_reason, require
from codepilot.engine.change.proposal import gate_judge, readers
from codepilot.engine.environment.installs import install_allowed
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.work import Work
from codepilot.project import Project, command
from codepilot.verify import (
    Baseline,
    Finding,
    ProgramBench,
    Sign,
    scan_generated,
    scan_program,
    tests_gate,
)

MAX_SHOWN = 20
NOT_RUN = "The program was not run"
NOT_THERE = "The package {} was allowed, but it could not be installed: {} Write the program without it."
_ASKED: dict[str, tuple[Operation, Risk, str]] = {
    "network": ("network", "medium", "network access"),
    "command": ("command", "high", "starting other programs"),
    "install": ("install", "medium", "installing a package"),
}
_URL_TESTS = frozenset({"B310"})
"""Bandit's findings about opening URLs: harmless in files that name only this machine, or whose hosts were allowed."""


@dataclass(frozen=True)
class Objection:
    """One reason not to run the program, as the agent reads it."""

    where: str
    kind: str
    message: str


def judge_build(work: Work, context: ExecutionContext, baseline: Baseline) -> TestResult:
    """The gates of a build: security first, then the generated tests, then the task's own commands."""
    before, after = readers(work, context)
    changes = context.executor.diff(work.workspace, work.base.tree).changes
    contents = ((one.path, after(one.path)) for one in changes if one.change != "deleted")
    files = {path: content for path, content in contents if content is not None}
    language = work.run.task.language or "python"
    signs = scan_program(files, language, installed(context.project, work.base.checkout))
    findings: Sequence[Finding] = ()
    unread: Sequence[str] = ()
    if work.run.task.policy.generated_code != "off":
        scan = scan_generated(context.executor, work.workspace, changes, before, after)
        local = {path for path in files if is_local(path, signs, files)}
        findings = [one for one in scan.findings if not (one.test in _URL_TESTS and one.path in local)]
        unread = scan.unread
    if objections := [*_blocked(signs), *_grave(work, findings), *_unread(unread)]:
        return _refused(context.project, baseline, objections)
    denied, allowed = _asked(work, signs, findings)
    if denied := [*denied, *_installed(work, context, allowed)]:
        return _refused(context.project, baseline, denied)
    context = work.context(context.project)
    context.create(work.workspace, work.base.tree)
    hosts = dict.fromkeys((*context.project.hosts, *(host for one in allowed for host in one.remote_hosts)))
    project = replace(context.project, hosts=tuple(hosts))
    bench = ProgramBench(context.executor, work.workspace, project, work.run.task.budget.command_sec)
    result = bench.judge(baseline)
    scanned = f"{len(files)} file(s) read, {len(findings)} finding(s)"
    security = Gate(name="security", after=scanned, ok=True, evidence=_listed(str(one) for one in findings))
    gates = (security, tests_gate(result, baseline, files))
    judged = _further_gates(work, context, baseline, result)
    return judged.model_copy(update={"gates": (*gates, *judged.gates)})


def installed(project: Project, directory: str | None) -> frozenset[str]:
    """The packages that the program's environment has: it may be one that a person named."""
    if project.runner == "npm":
        mounted = (Path(source) for source, _ in project.mounts if Path(source).name == "node_modules")
        places = [Path(directory or "/nonexistent") / "node_modules", *mounted]
        names = [path.name for place in places for path in place.glob("*") if not path.name.startswith((".", "@"))]
        scoped = [f"{path.parent.name}/{path.name}" for place in places for path in place.glob("@*/*")]
        return frozenset((*names, *scoped))
    sites = (Path(site) for site in project.interpreter.sites)
    found = (path.name.partition(".")[0] for site in sites if site.is_dir() for path in site.iterdir())
    return frozenset(name for name in found if name.isidentifier())


def is_local(path: str, signs: Sequence[Sign], files: dict[str, bytes]) -> bool:
    """True if a file names no other machine than this one."""
    named = next((one for one in signs if one.path == path and one.kind == "network"), None)
    return named is None and any(word in files[path] for word in (b"127.0.0.1", b"localhost", b"::1"))


def _further_gates(work: Work, context: ExecutionContext, baseline: Baseline, result: TestResult) -> TestResult:
    """The gates that the task itself asks for, judged as in any change."""
    task = work.run.task
    wanted = [name for name in gates_of(task) if name in ("compiles", "lint")]
    if not wanted and not task.accept:
        return result
    with gate_judge(work, context, baseline) as judge:
        return judge.of(wanted, task.accept, result)


def _blocked(signs: Sequence[Sign]) -> list[Objection]:
    found = [one for one in signs if one.kind == "blocked"]
    return [Objection(f"{one.path}:{one.line}", "BlockedCode", f"{one.subject}: {one.why}") for one in found]


def _grave(work: Work, findings: Sequence[Finding]) -> list[Objection]:
    """The findings that the policy refuses: high ones, or all from medium or low on where it is stricter."""
    least = work.run.task.policy.generated_code
    ladder = ("low", "medium", "high")
    if least == "off":
        return []
    found = [one for one in findings if ladder.index(one.severity) >= ladder.index(least)]
    return [Objection(f"{one.path}:{one.line}", "SecurityFinding", f"{one.message} ({one.test})") for one in found]


def _unread(unread: Sequence[str]) -> list[Objection]:
    """Files that could not be scanned. One that cannot be parsed is for the tests to report."""
    return [Objection(one, "Unreadable", "it could not be scanned") for one in unread if "syntax error" not in one]


def _asked(work: Work, signs: Sequence[Sign], findings: Sequence[Finding]) -> tuple[list[Objection], list[Sign]]:
    """Ask about everything that needs an answer, up to the first denial: the program is rewritten then.

    Returns what was denied, and the signs that were allowed.
    """
    allowed: list[Sign] = []
    subjects: dict[tuple[str, str], list[Sign]] = {}
    for sign in signs:
        subjects.setdefault((sign.kind, _subject(sign)), []).append(sign)
    for (kind, subject), found in subjects.items():
        operation, risk, name = _ASKED[kind]
        places = tuple(f"{one.path}:{one.line}: {one.why}" for one in found[:MAX_SHOWN])
        snippet = "\n".join(dict.fromkeys(one.snippet for one in found[:MAX_SHOWN]))
        if require(work, operation, subject, risk=risk, reasons=places, snippet=snippet):
            allowed += found
        else:
            message = f"A person denied {name} ({subject}){_why(work, subject)}. Find another way without it."
            return [Objection(f"{found[0].path}:{found[0].line}", "ApprovalDenied", message)], allowed
    opened = {one.path for one in allowed if one.kind == "network"}
    for one in findings:
        if one.severity != "medium" or (one.test in _URL_TESTS and one.path in opened):
            continue
        subject = f"{one.test} in {one.path}"
        if not require(work, "finding", subject, risk="medium", reasons=(str(one),), snippet=one.message):
            message = (
                f"A person denied this finding{_why(work, subject)}: {one.message} ({one.test}). Write it without."
            )
            return [Objection(f"{one.path}:{one.line}", "ApprovalDenied", message)], allowed
    return [], allowed


def _why(work: Work, subject: str) -> str:
    reason = denial_reason(work.run, subject)
    return f", because: {reason.rstrip('.')}" if reason else ""


def _installed(work: Work, context: ExecutionContext, allowed: Sequence[Sign]) -> list[Objection]:
    """Install the packages that were allowed; what could not be installed."""
    missing: list[Objection] = []
    for subject, sign in {one.subject: one for one in allowed if one.kind == "install"}.items():
        try:
            install_allowed(work, context.project, subject)
        except CodePilotError as error:
            if error.kind not in NOT_INSTALLED:
                raise
            message = NOT_THERE.format(subject, error.failure.message)
            missing.append(Objection(f"{sign.path}:{sign.line}", "NotInstalled", message))
    return missing


def _subject(sign: Sign) -> str:
    """What a person answers for: the hosts that are named, else the module or package."""
    if sign.kind == "network" and sign.remote_hosts:
        return ", ".join(sign.remote_hosts)
    return sign.subject


def _refused(project: Project, baseline: Baseline, objections: Sequence[Objection]) -> TestResult:
    """The red result of a program that was not run."""
    errors = tuple(
        TestError(test=one.where, error_type=one.kind, message=one.message) for one in objections[:MAX_SHOWN]
    )
    evidence = _listed(f"{one.where} {one.message}" for one in objections)
    facts = sorted(f"{one.where.partition(':')[0]}|{one.kind}|{one.message}" for one in objections)
    return TestResult(
        passed=False,
        cmd=command(project),
        exit_code=None,
        errors=errors,
        summary=baseline.summary,
        signature=hashlib.sha256("\n".join(facts).encode("utf-8", "surrogatepass")).hexdigest()[:16],
        log_tail=f"{NOT_RUN}: {evidence}",
        gates=(
            Gate(name="security", after=f"{len(objections)} objection(s)", ok=False, evidence=evidence),
            Gate(name="own_tests", after="not run", ok=None),
        ),
    )


def _listed(items: Iterable[str]) -> str:
    found = list(items)
    more = f"; and {len(found) - MAX_SHOWN} more" if len(found) > MAX_SHOWN else ""
    return ("; ".join(found[:MAX_SHOWN]) + more).encode("utf-8", "backslashreplace").decode()
