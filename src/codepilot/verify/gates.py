"""The gates of a task: each is judged with evidence from before the change and from after it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codepilot.core.artifacts import Gate, GateName, TestError, TestResult
from codepilot.executor import Executor, FileChange, RunCommand
from codepilot.project import Project
from codepilot.verify import python_tests
from codepilot.verify.lint import LintBench, new_findings
from codepilot.verify.suite_runs import Baseline, run_gate

Read = Callable[[str], bytes | None]

MAX_SHOWN = 5
MAX_SAID = 500
_ERRORS = {"compiles": "SyntaxError", "lint": "LintError", "command": "CommandFailed"}
"""The type of the error by which a red gate is told to the agent."""


@dataclass(frozen=True)
class GateJudge:
    """What the gates are judged by: the tests' result, the change, and both trees in workspaces."""

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
        """Run the tests, then judge every gate; one that is red makes the result red."""
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

        Linters and commands are left out when the tests are red: the change is not going to stay.
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
        told = _listed(result.regressions) if result.regressions else f"suite: {result.suite}"
        return Gate(
            name=name,
            before=f"{before.passed} pass",
            after=f"{result.summary.passed} pass, {len(result.regressions)} broken",
            ok=False if broken else None if result.suite == "none" else True,
            evidence=told,
        )

    def _compiles(self, result: TestResult) -> Gate:
        """Python is parsed; other languages are compiled by the run of their tests."""
        if not self.project.is_python:
            broken = [error.message for error in result.errors if error.error_type == "CompilationError"]
            return Gate(name="compiles", ok=not broken, evidence=_listed(broken) or "the build compiled the change")
        files = [one.path for one in self.changes if one.path.endswith((".py", ".pyi")) and one.change != "deleted"]
        wrong = [path for path in files if python_tests.parsed(self.after(path)) is None]
        known = [path for path in wrong if (old := self.before(path)) is not None and python_tests.parsed(old) is None]
        fresh = [path for path in wrong if path not in known]
        return Gate(
            name="compiles",
            before=f"{len(known)} file(s) cannot be parsed",
            after=f"{len(wrong)} file(s) cannot be parsed",
            ok=not fresh,
            evidence=_listed(fresh) or f"{len(files)} Python file(s) of the change",
        )

    def _lint(self, base: str) -> Gate:
        """What the project's linters find in the touched files and did not find before."""
        bench = LintBench(self.executor, self.project, self.after, self.command_sec)
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
        """A command of the contract: it must succeed once the change is made."""
        before, _ = self._run(base, command)
        after, said = self._run(self.workspace, command)
        evidence = f"{command}: {said}" if after and said else command
        return Gate(name="command", before=_ended(before), after=_ended(after), ok=after == 0, evidence=evidence)

    def _run(self, workspace: str, command: str) -> tuple[int | None, str]:
        done = self.executor.run_command(
            RunCommand(
                workspace=workspace,
                argv=("/bin/sh", "-c", command),
                env=self.project.env,
                timeout_sec=self.command_sec,
                hosts=self.project.hosts,
            )
        )
        said = (done.stdout + done.stderr).decode("utf-8", "replace").replace("\0", "\\0").strip()[-MAX_SAID:]
        return done.exit_code, said or (done.limit or "")


def with_gates(result: TestResult, gates: Sequence[Gate]) -> TestResult:
    """The result with its gates; what is red beside the tests becomes an error that the agent is shown."""
    red = [gate for gate in gates if gate.ok is False and gate.name in _ERRORS]
    if not result.passed or not red:
        return result.model_copy(update={"gates": tuple(gates)})
    said = "\n".join(f"{gate.name}: {gate.evidence}" for gate in red)
    errors = [TestError(test=gate.name, error_type=_ERRORS[gate.name], message=gate.evidence) for gate in red]
    return result.model_copy(
        update={
            "passed": False,
            "gates": tuple(gates),
            "errors": (*result.errors, *errors),
            "signature": hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        }
    )


def _ended(code: int | None) -> str:
    return "it did not end" if code is None else f"exit code {code}"


def _listed(items: Sequence[str], between: str = ", ") -> str:
    more = f" and {len(items) - MAX_SHOWN} more" if len(items) > MAX_SHOWN else ""
    return (between.join(items[:MAX_SHOWN]) + more).encode("utf-8", "backslashreplace").decode()
