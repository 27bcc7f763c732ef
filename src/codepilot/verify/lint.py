"""The linters that projects configure, run inside the sandbox: what a change brought to the files it touches."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor import CommandResult, Executor, RunCommand
from codepilot.project import Project

Read = Callable[[str], bytes | None]

MAX_FINDINGS = 1000
_REPORTS = "find . '(' -name checkstyle-result.xml -o -path '*/reports/checkstyle/*.xml' ')'"
_CHECKSTYLE = f"{_REPORTS} -delete; {{program}} 1>&2; ended=$?; {_REPORTS} -exec cat '{{{{}}}}' +; exit $ended"
_FILE = re.compile(r'<file name="([^"]{1,4096})">(.*?)</file>', re.DOTALL)
_ERROR = re.compile(r"<error\s([^<>]{1,8192}?)/>")
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


class Finding(NamedTuple):
    """One remark of a linter. `line` is where it stands, which is no part of what it is."""

    path: str
    rule: str
    message: str
    line: int


@dataclass(frozen=True)
class Linter:
    """One tool: where its configuration is, for which files, and how it is run and read."""

    name: str
    suffixes: tuple[str, ...]
    configuration: tuple[tuple[str, bytes], ...]
    """Files of the project's root that configure it, with a text that must be in them."""
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
            said = {key: html.unescape(value) for key, value in _ATTRIBUTE.findall(given)}
            line = int(said["line"]) if said.get("line", "").isdigit() else 0
            yield Finding(html.unescape(path), said.get("source", ""), said.get("message", ""), line)


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
        return tuple(one for one in LINTERS if one.configured(self.read))

    def require(self, workspace: str) -> None:
        """Refuse a task that demands a clean lint of a project which has no linter, or where it cannot run."""
        if not (linters := self.linters()):
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"lint_clean is demanded, but the project configures none of {', '.join(one.name for one in LINTERS)}.",
                next_action="Configure a linter in the project, or leave lint_clean out.",
            )
        for one in linters:
            done = self._run(workspace, one.probe(self.project))
            if done.status != "ok" or done.exit_code != 0:
                raise _unavailable(one, done)

    def findings(self, workspace: str, linter: Linter, files: Sequence[str]) -> list[Finding]:
        """What a linter says of these files, by the names they have here."""
        if not files:
            return []
        done = self._run(workspace, linter.argv(self.project, files))
        try:
            if done.exit_code is None or (done.exit_code != 0 and not done.stdout):  # findings are an exit code, too
                raise ValueError(done.limit or done.status)
            found = list(linter.parse(done.stdout.decode("utf-8", "replace")))[:MAX_FINDINGS]
            named = ((one, [file for file in files if f"/{one.path}".endswith(f"/{file}")]) for one in found)
            return [one._replace(path=max(there, key=len)) for one, there in named if there]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise _unavailable(linter, done) from error

    def _run(self, workspace: str, argv: tuple[str, ...]) -> CommandResult:
        command = RunCommand(workspace=workspace, argv=argv, env=self.project.env, timeout_sec=self.timeout_sec)
        return self.executor.run_command(command)


def new_findings(before: Sequence[Finding], after: Sequence[Finding]) -> list[Finding]:
    """The findings that were not there before; one that only moved within its file is no new one."""
    known = Counter((one.path, one.rule, one.message) for one in before)
    fresh = []
    for one in after:
        key = (one.path, one.rule, one.message)
        if known[key] > 0:
            known[key] -= 1
        else:
            fresh.append(one)
    return fresh


def _unavailable(linter: Linter, done: CommandResult) -> CodePilotError:
    said = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1][:300]
    return CodePilotError(
        FailureKind.ENVIRONMENT_MISSING,
        f"{linter.name} is configured, but it cannot be run here: {said}",
        next_action=linter.install,
    )
