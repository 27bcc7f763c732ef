"""The gates of a task, each judged with evidence from before and after the change; and the linters of a project."""

from __future__ import annotations

import hashlib
import html
import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from codepilot.core.artifacts import Gate, GateName, TestError, TestResult
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CommandResult, Executor, FileChange, RunCommand
from codepilot.project import Project
from codepilot.verify import testcode
from codepilot.verify.security_scan import take
from codepilot.verify.suite_runs import Baseline, run_gate

Read = Callable[[str], bytes | None]

MAX_SHOWN = 5
MAX_OUTPUT = 500
_ERRORS = {"compiles": "SyntaxError", "lint": "LintError", "command": "CommandFailed"}
_ERRORS |= {"own_tests": "NoTests", "base_tests": "TestsWeakened"}
"""The error type under which the agent sees a red gate."""


@dataclass(frozen=True)
class GateJudge:
    """Judges the gates of one change, with the base tree and the changed tree in workspaces."""

    executor: Executor
    workspace: str
    base_workspace: Callable[[], str]
    project: Project
    baseline: Baseline
    changes: Sequence[FileChange]
    before: Read
    after: Read
    command_sec: float

    def judge(self, wanted: Sequence[GateName], commands: Sequence[str] = (), narrowed: bool = False) -> TestResult:
        """Run the tests, then judge every gate. One red gate makes the result red."""
        result = run_gate(
            self.executor,
            self.workspace,
            self.project,
            self.baseline,
            self.command_sec,
            base_workspace=self.base_workspace,
            narrowed=narrowed,
        )
        return self.of(wanted, commands, result)

    def of(self, wanted: Sequence[GateName], commands: Sequence[str], result: TestResult) -> TestResult:
        """The result of the tests with the record of every gate.

        Linters and commands do not run when the tests are red.
        """
        gates = [self._of_tests(name, result) for name in wanted if name in ("fail_to_pass", "pass_to_pass")]
        if "compiles" in wanted:
            gates.append(self._compiles(result))
        if result.passed and (("lint" in wanted) or commands):
            base = self.base_workspace()
            if "lint" in wanted:
                gates.append(self._lint(base))
            gates += [self._command(base, command) for command in commands]
        return with_gates(result, gates)

    def _of_tests(self, name: GateName, result: TestResult) -> Gate:
        targets = self.baseline.targets
        unmet = [test for test in targets if test in result.failed_tests_after]
        before = self.baseline.summary
        if name == "fail_to_pass":
            after = f"{len(unmet)} of {len(targets)} fail" if unmet else f"{len(targets)} pass"
            evidence = _listed(unmet or targets)
            return Gate(name=name, before=f"{len(targets)} fail", after=after, ok=not unmet, evidence=evidence)
        broken = bool(result.regressions) or (not result.passed and not unmet)
        evidence = _listed(result.regressions) if result.regressions else f"suite: {result.suite}"
        return Gate(
            name=name,
            before=f"{before.passed} pass",
            after=f"{result.summary.passed} pass, {len(result.regressions)} broken",
            ok=False if broken else None if result.suite == "none" else True,
            evidence=evidence,
        )

    def _compiles(self, result: TestResult) -> Gate:
        """Parse the changed Python files; other languages are compiled by their test run."""
        if not self.project.is_python:
            broken = [error.message for error in result.errors if error.error_type == "CompilationError"]
            return Gate(name="compiles", ok=not broken, evidence=_listed(broken) or "the build compiled the change")
        files = [one.path for one in self.changes if one.path.endswith((".py", ".pyi")) and one.change != "deleted"]
        wrong = [path for path in files if testcode.parsed(self.after(path)) is None]
        known = [path for path in wrong if (old := self.before(path)) is not None and testcode.parsed(old) is None]
        fresh = [path for path in wrong if path not in known]
        return Gate(
            name="compiles",
            before=f"{len(known)} file(s) cannot be parsed",
            after=f"{len(wrong)} file(s) cannot be parsed",
            ok=not fresh,
            evidence=_listed(fresh) or f"{len(files)} Python file(s) of the change",
        )

    def _lint(self, base: str) -> Gate:
        """Compare the findings of the project's linters in the touched files before and after the change."""
        bench = LintBench(self.executor, self.project, self.after, self.command_sec)
        if not bench.linters():
            known = ", ".join(one.name for one in LINTERS)
            return Gate(name="lint", ok=None, evidence=f"the project configures none of {known}")
        old, new = [], []
        for linter in bench.linters():
            touched = [one for one in self.changes if one.path.endswith(linter.suffixes)]
            there = [one.path for one in touched if one.change != "added"]
            old += bench.findings(base, linter, there)
            here = [one.path for one in touched if one.change != "deleted"]
            new += bench.findings(self.workspace, linter, here)
        fresh = [f"{one.path}:{one.line} {one.rule} {one.message}" for one in new_findings(old, new)]
        names = ", ".join(linter.name for linter in bench.linters())
        return Gate(
            name="lint",
            before=f"{len(old)} finding(s)",
            after=f"{len(new)} finding(s), {len(fresh)} new",
            ok=not fresh,
            evidence=_listed(fresh, "; ") or f"{names} found nothing new in the touched files",
        )

    def _command(self, base: str, command: str) -> Gate:
        """Run an acceptance command before and after; it must succeed after the change."""
        seconds = self.command_sec
        before, _ = run_shell(self.executor, base, self.project, command, seconds)
        after, output = run_shell(self.executor, self.workspace, self.project, command, seconds)
        evidence = f"{command}: {output}" if after and output else command
        return Gate(name="command", before=_ended(before), after=_ended(after), ok=after == 0, evidence=evidence)


def run_shell(
    executor: Executor, workspace: str, project: Project, command: str, timeout_sec: float
) -> tuple[int | None, str]:
    """The exit code of an acceptance command, and the end of its output."""
    done = executor.run_command(
        RunCommand(
            workspace=workspace,
            argv=("/bin/sh", "-c", command),
            env=project.env,
            timeout_sec=timeout_sec,
            hosts=project.hosts,
        )
    )
    output = (done.stdout + done.stderr).decode("utf-8", "replace").replace("\0", "\\0").strip()
    return done.exit_code, output[-MAX_OUTPUT:] or (done.limit or "")


def with_gates(result: TestResult, gates: Sequence[Gate]) -> TestResult:
    """The result with its gates. A red gate that is no test gate becomes an error that the agent sees."""
    red = [gate for gate in gates if gate.ok is False and gate.name in _ERRORS]
    if not result.passed or not red:
        return result.model_copy(update={"gates": tuple(gates)})
    evidence = "\n".join(f"{gate.name}: {gate.evidence}" for gate in red)
    errors = [TestError(test=gate.name, error_type=_ERRORS[gate.name], message=gate.evidence) for gate in red]
    return result.model_copy(
        update={
            "passed": False,
            "gates": tuple(gates),
            "errors": (*result.errors, *errors),
            "signature": hashlib.sha256(evidence.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        }
    )


def _ended(code: int | None) -> str:
    return "it did not end" if code is None else f"exit code {code}"


def _listed(items: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(items) - MAX_SHOWN} more" if len(items) > MAX_SHOWN else ""
    return (between.join(items[:MAX_SHOWN]) + more).encode("utf-8", "backslashreplace").decode()


# Linters --------------------------------------------------------------------------------------------

MAX_FINDINGS = 1000
_REPORTS = "find . '(' -name checkstyle-result.xml -o -path '*/reports/checkstyle/*.xml' ')'"
_CHECKSTYLE = f"{_REPORTS} -delete; {{program}} 1>&2; ended=$?; {_REPORTS} -exec cat '{{{{}}}}' +; exit $ended"
_FILE = re.compile(r'<file name="([^"]{1,4096})">(.*?)</file>', re.DOTALL)
_ERROR = re.compile(r"<error\s([^<>]{1,8192}?)/>")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


class Finding(NamedTuple):
    """One finding of a linter. Findings that differ only in `line` count as equal."""

    path: str
    rule: str
    message: str
    line: int


@dataclass(frozen=True)
class Linter:
    """One linter: its configuration files, the files that it checks, and how to run it and parse its output."""

    name: str
    suffixes: tuple[str, ...]
    configuration: tuple[tuple[str, bytes], ...]
    """Files in the project's root that configure it, each with a text that it must contain."""
    probe: Callable[[Project], tuple[str, ...]]
    argv: Callable[[Project, Sequence[str]], tuple[str, ...]]
    parse: Callable[[str], Iterator[Finding]]
    install: str

    def configured(self, read: Read) -> bool:
        return any(text in content for name, text in self.configuration if (content := read(name)) is not None)


def _ruff(project: Project, files: Sequence[str]) -> tuple[str, ...]:
    options = ("check", "--output-format=json", "--no-cache", "--force-exclude", "--exit-zero")
    return (project.interpreter.executable, "-m", "ruff", *options, "--", *files)


def _parse_ruff(text: str) -> Iterator[Finding]:
    for one in json.loads(text):
        yield Finding(one["filename"], str(one["code"]), one["message"], int(one["location"]["row"]))


def _eslint(project: Project, files: Sequence[str]) -> tuple[str, ...]:
    return ("node_modules/.bin/eslint", "--format=json", "--no-error-on-unmatched-pattern", "--", *files)


def _parse_eslint(text: str) -> Iterator[Finding]:
    for file in json.loads(text):
        for one in file["messages"]:
            yield Finding(file["filePath"], str(one["ruleId"]), one["message"], int(one.get("line", 0)))


def _checkstyle(project: Project, files: Sequence[str]) -> tuple[str, ...]:
    maven = "mvn -B -o -q checkstyle:checkstyle"
    gradle = "gradle --offline --no-daemon -q checkstyleMain checkstyleTest"
    command = maven if project.runner == "maven" else gradle.replace("-q", "-q --continue")
    return ("/bin/sh", "-c", _CHECKSTYLE.format(program=command))


def _parse_checkstyle(text: str) -> Iterator[Finding]:
    for path, inside in _FILE.findall(text):
        for given in _ERROR.findall(inside):
            error = {key: html.unescape(value) for key, value in _ATTRIBUTE.findall(given)}
            line = int(error["line"]) if error.get("line", "").isdigit() else 0
            yield Finding(html.unescape(path), error.get("source", ""), error.get("message", ""), line)


_ESLINT_FILES = tuple(f"eslint.config.{end}" for end in ("js", "mjs", "cjs", "ts", "mts", "cts"))
_ESLINT_OLD = (".eslintrc", *(f".eslintrc.{end}" for end in ("js", "cjs", "json", "yml", "yaml")))
LINTERS = (
    Linter(
        name="ruff",
        suffixes=(".py", ".pyi"),
        configuration=(("ruff.toml", b""), (".ruff.toml", b""), ("pyproject.toml", b"[tool.ruff")),
        probe=lambda project: (project.interpreter.executable, "-m", "ruff", "--version"),
        argv=_ruff,
        parse=_parse_ruff,
        install="Install ruff into the project's environment.",
    ),
    Linter(
        name="eslint",
        suffixes=(".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte"),
        configuration=(*((name, b"") for name in (*_ESLINT_FILES, *_ESLINT_OLD)), ("package.json", b'"eslintConfig"')),
        probe=lambda project: ("node_modules/.bin/eslint", "--version"),
        argv=_eslint,
        parse=_parse_eslint,
        install="Run `npm install` in the checkout, so that node_modules has eslint.",
    ),
    Linter(
        name="checkstyle",
        suffixes=(".java",),
        configuration=(
            ("pom.xml", b"maven-checkstyle-plugin"),
            ("build.gradle", b"checkstyle"),
            ("build.gradle.kts", b"checkstyle"),
        ),
        probe=lambda project: _checkstyle(project, ()),
        argv=_checkstyle,
        parse=_parse_checkstyle,
        install="Run Checkstyle in the checkout once, so that the local repository has what it needs.",
    ),
)


@dataclass(frozen=True)
class LintBench:
    """Runs the linters of a project on one tree."""

    executor: Executor
    project: Project
    read: Read
    timeout_sec: float

    def linters(self) -> tuple[Linter, ...]:
        """Those that the project configures in its own directory."""
        return tuple(one for one in LINTERS if one.configured(self._read_own))

    def _read_own(self, name: str) -> bytes | None:
        return self.read(posixpath.join(self.project.folder, name))

    def require(self, workspace: str) -> None:
        """Raise if the project configures a linter that cannot run here."""
        for one in self.linters():
            done = self._run(workspace, one.probe(self.project))
            if done.status != "ok" or done.exit_code != 0:
                raise _unavailable(one, done)

    def findings(self, workspace: str, linter: Linter, files: Sequence[str]) -> list[Finding]:
        """The findings of a linter in these files, by their paths in the workspace."""
        if not files:
            return []
        seen = [posixpath.relpath(file, self.project.folder or ".") for file in files]
        done = self._run(workspace, linter.argv(self.project, seen))
        try:
            if done.exit_code is None or (done.exit_code != 0 and not done.stdout):  # findings are an exit code, too
                raise ValueError(done.limit or done.status)
            found = list(linter.parse(done.stdout.decode("utf-8", "replace")))[:MAX_FINDINGS]
            named = ((one, [file for file in files if self._same(one.path, file)]) for one in found)
            return [one._replace(path=max(there, key=len)) for one, there in named if there]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _unavailable(linter, done) from error

    def _same(self, found: str, file: str) -> bool:
        own = posixpath.relpath(file, self.project.folder or ".")
        return any(f"/{found}".endswith(f"/{one}") for one in (file, own))

    def _run(self, workspace: str, argv: tuple[str, ...]) -> CommandResult:
        command = RunCommand(
            workspace=workspace,
            argv=argv,
            env=self.project.env,
            timeout_sec=self.timeout_sec,
            cwd=self.project.folder or ".",
        )
        return self.executor.run_command(command)


def new_findings(before: Sequence[Finding], after: Sequence[Finding]) -> list[Finding]:
    """The findings of `after` that `before` lacks. A finding that only moved within its file is not new."""
    known = Counter((one.path, one.rule, one.message) for one in before)
    return [one for one in after if not take(known, (one.path, one.rule, one.message))]


def _unavailable(linter: Linter, done: CommandResult) -> CodePilotError:
    last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"])[-1][:300]
    return CodePilotError(
        FailureKind.ENVIRONMENT_MISSING,
        f"{linter.name} is configured, but it cannot be run here: {last}",
        next_action=linter.install,
    )
