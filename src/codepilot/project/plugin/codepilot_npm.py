"""Runs a package's `test` script as npm would, and reports its tests through a reporter for its framework.

Ids are `path/of/file.test.js::describe > test`. Runs inside, on Python 3.8 and newer, with the standard library alone.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from codepilot.project.plugin import codepilot_frames as frames
    from codepilot.project.plugin import codepilot_scripts as scripts
    from codepilot.project.plugin.codepilot_build import Matches, TestReporter, follow, relative
else:
    import codepilot_frames as frames
    import codepilot_scripts as scripts
    from codepilot_build import TestReporter, follow, relative

HERE = Path(__file__).resolve().parent
SEPARATOR = " > "
MAX_REPORT = 64 << 20
TAIL = 60

_MISSING = re.compile(r"Cannot find (?:module|package) '([^'./][^']*)'|Failed to resolve import \"([^\"./][^\"]*)\"")
_UNCOMPILED = re.compile(r"SyntaxError|Transform failed|[Pp]arse (?:failure|error)|Failed to parse|error TS\d+")
_SOURCE = re.compile(r"^[^:]+\.[cm]?[jt]sx?(?=::|$)")


def meaning(asked: str) -> Matches:
    """A file, a directory, a file with the name of a test or of a group of tests; or a name alone."""
    name = asked[2:] if asked.startswith("./") else asked
    name = name.rstrip("/")
    place = frames.from_project(name)
    if "::" not in name and not _SOURCE.match(name) and not Path(place).is_dir():
        return lambda test: test.partition("::")[2].split(SEPARATOR)[-1] == name or test.partition("::")[2] == name
    name = place if name == "." else frames.from_top(place)
    marks = ("::", SEPARATOR, "/")
    return lambda test: name == "." or test == name or any(test.startswith(name + mark) for mark in marks)


class Report:
    """The lines that a reporter has written so far."""

    def __init__(self, reporter: TestReporter, path: Path) -> None:
        self._reporter = reporter
        self._path = path
        self._at = 0
        self._rest = b""
        self.ended = False

    def look(self) -> None:
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read(max(0, MAX_REPORT - self._at))
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                fact = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(fact, dict):
                self._take(fact)

    def _take(self, fact: dict[str, Any]) -> None:
        event = fact.get("event")
        if event == "end":
            self.ended = True
            return
        file, names = str(fact.get("file") or ""), fact.get("names")
        place = relative(file) if file else "."
        if not isinstance(names, list) or not names:
            if event == "broken":
                self._broken(place, fact)
            return
        test = f"{place}::{SEPARATOR.join(' '.join(str(name).split()) for name in names)}"
        if event == "run":
            self._reporter.running(test)
        elif event == "test":
            duration = fact.get("duration")
            self._reporter.test(test, str(fact.get("outcome")), **_error(fact), duration=duration or 0)

    def _broken(self, place: str, fact: dict[str, Any]) -> None:
        """A file that could not be loaded; reported if it may hold a requested test."""
        if self._reporter.asked and not any(_may_hold(place, name) for name in self._reporter.asked):
            self._reporter.unrequested()
            return
        error = _error(fact)
        found = _MISSING.search(error["message"])
        missing = next(filter(None, found.groups())) if found else ""
        if _UNCOMPILED.search(f"{error['error_type']} {error['message']}"):
            error["error_type"] = "SyntaxError"
        self._reporter.unloadable(place, **error, missing_module=missing)


def _may_hold(place: str, asked: str) -> bool:
    file = asked.partition("::")[0]
    file = frames.from_project(file[2:] if file.startswith("./") else file)
    whole = frames.from_top(file).rstrip("/")
    return not Path(file).exists() or file == "." or place == whole or place.startswith(f"{whole}/")


def _error(fact: dict[str, Any]) -> dict[str, str]:
    return {key: str(fact.get(key) or "") for key in ("error_type", "message", "traceback")}


def command(package: dict[str, object], files: list[str]) -> tuple[str, str]:
    """The shell's line for the `test` script, and Node's options, so that the framework reports to us."""
    given = package.get("scripts")
    table = given if isinstance(given, dict) else {}
    text = str(table.get("test", ""))
    script = scripts.read(table)
    framework = script.framework if script else ""
    more: list[str] = []
    if framework == "node":
        if files and script is not None and script.hops == 0:
            text, more = scripts.without_files(text), files
        reporter = HERE / "codepilot_node.mjs"
        return _line(text, more, False), f"--test-reporter={reporter} --test-reporter-destination=stdout"
    if framework == "jest":
        more = [f"--reporters={HERE}/codepilot_jest.cjs", "--ci", "--bail=0", "--coverage=false", "--maxWorkers=1"]
        more += ["--watchAll=false", *(["--runTestsByPath", *files] if files else [])]
    elif framework == "vitest":
        more = ["--run", f"--reporter={HERE}/codepilot_vitest.mjs", "--bail=0", "--coverage.enabled=false", *files]
    elif framework == "mocha":
        more = ["--reporter", f"{HERE}/codepilot_mocha.cjs", "--no-bail", *files]
    return _line(text, more, script is not None and script.hops > 0), ""


def _line(text: str, more: list[str], delegated: bool) -> str:
    dashes = (
        ["--"] if delegated and more and not re.search(r"(?:^|\s)(?:yarn\s|--\s)", scripts.last_command(text)) else []
    )
    return " ".join([text, *dashes, *map(shlex.quote, more)])


def main() -> int:
    reporter = TestReporter("npm", meaning)
    package = json.loads(Path("package.json").read_text(encoding="utf-8-sig"))
    files = [frames.from_project(name).partition("::")[0] for name in reporter.asked]
    absent = [file for file in files if not Path(file).exists()]
    line, options = command(package, list(dict.fromkeys(files)) if files and not absent else [])
    table = package.get("scripts") or {}
    before = [str(table["pretest"])] if table.get("pretest") else []
    handle, name = tempfile.mkstemp(".jsonl", "tests-")
    os.close(handle)
    report = Report(reporter, Path(name))
    tail: list[str] = []

    def keep_line(text: str) -> None:
        tail.append(text)
        del tail[:-TAIL]

    env = {**os.environ, "CODEPILOT_REPORT": name, "npm_lifecycle_event": "test", "PATH": _path(), "CI": "true"}
    env["NODE_OPTIONS"] = f"{env.get('NODE_OPTIONS', '')} {options}".strip()
    try:
        for text in before:
            code = follow(
                ["/bin/sh", "-c", text], keep_line, env={**env, "NODE_OPTIONS": os.environ.get("NODE_OPTIONS", "")}
            )
            if code:
                return _failed(reporter, tail, code, "pretest")
        code = follow(["/bin/sh", "-c", line], keep_line, report.look, env)
    finally:
        Path(name).unlink()
    if not report.ended and reporter.silent and not reporter.troubled:
        return _failed(reporter, tail, code, "test")
    return reporter.end(code) if report.ended else code or 1


def _path() -> str:
    return f"{Path.cwd() / 'node_modules/.bin'}:{os.environ.get('PATH', os.defpath)}"


def _failed(reporter: TestReporter, tail: list[str], code: int, script: str) -> int:
    """The script ended before any test was reported: the last line that names an error is the reason."""
    lines = [line.strip() for line in tail if line.strip()]
    found = next((match for line in lines if (match := _MISSING.search(line))), None)
    missing = next(filter(None, found.groups())) if found else ""
    why = next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "there was no output")
    reporter.cannot_start(f"the script {script!r} failed", f"{why} (exit code {code})", missing)
    return reporter.end(code or 1)


if __name__ == "__main__":
    sys.exit(main())
