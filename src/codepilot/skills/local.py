"""Skills that only read text: they run on the host, without a sandbox."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, cast

from codepilot.core.artifacts import PolicyCheck
from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.secrets import PLACEHOLDER, QUOTED_SECRET, known_secrets
from codepilot.project import is_test
from codepilot.project.plugin.codepilot_reports import BadReport, read_report

MAX_REPORT = 16 << 20

_DISABLED = re.compile(
    r"@(?:Ignore|Disabled)\b|@(?:pytest\.mark|unittest)\.(?:skip|xfail|expectedFailure)|\bpytest\.skip\(|\b(?:it|test|describe)\.skip\("
)
_DEBUG = re.compile(r"\b(?:breakpoint\(\)|pdb\.set_trace\(\)|console\.log\(|debugger;|System\.out\.println\()")
_UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX)\b")

Status = Literal["passed", "failed", "error", "skipped"]


class ReportedTest(Contract):
    """One test of a report."""

    test: str
    status: Status
    message: str = ""
    detail: str = ""
    duration_sec: float = 0.0
    flaky: bool = False


class PatchQuality(Contract):
    """How a patch looks from outside; 1.0 is small, focused and tested."""

    score: float
    added: int
    removed: int
    files: int
    remarks: tuple[str, ...] = ()


def parse_surefire_xml(report: str) -> tuple[ReportedTest, ...]:
    """The tests in an XML report of Surefire, Gradle, JUnit or pytest. `flaky` ones passed when they were run again."""
    try:
        cases = read_report(report, MAX_REPORT)
    except BadReport as error:
        raise _bad_report("it is no XML" if report and "<" not in report else str(error)) from None
    return tuple(
        ReportedTest(
            test=case.test,
            status=cast(Status, case.status),
            message=case.message,
            detail=case.detail,
            duration_sec=case.seconds,
            flaky=case.flaky,
        )
        for case in cases
    )


def score_patch_quality(diff: str) -> PatchQuality:
    """How small, focused and tested a unified diff is, with remarks."""
    added, removed, paths = _changed(diff)
    remarks = []
    score = 1.0
    for bad, cost, remark in (
        (len(added) + len(removed) > 100, 0.2, "large change"),
        (len(paths) > 5, 0.2, "touches many files"),
        (not any(is_test(path) for path in paths), 0.1, "no test is touched"),
        (any(_UNFINISHED.search(line) for line in added), 0.2, "leaves unfinished work"),
        (any(_DEBUG.search(line) for line in added), 0.2, "leaves debugging code"),
        (not added and not removed, 1.0, "changes nothing"),
    ):
        if bad:
            score -= cost
            remarks.append(remark)
    return PatchQuality(
        score=round(max(0.0, score), 2),
        added=len(added),
        removed=len(removed),
        files=len(paths),
        remarks=tuple(remarks),
    )


def check_policy(diff: str, patch_lines: int = 300) -> tuple[PolicyCheck, ...]:
    """Check a unified diff against policy: no secrets, no disabled tests, no debugging code, within its size."""
    added, removed, _ = _changed(diff)
    size = len(added) + len(removed)
    return (
        _absent("no_hardcoded_secrets", _holds_secret, added, shown=False),
        _absent("no_disabled_tests", _DISABLED.search, added),
        _absent("no_debug_left", _DEBUG.search, added),
        PolicyCheck(name="patch_within_size_limit", ok=size <= patch_lines, evidence=f"{size} of {patch_lines} lines"),
    )


def _holds_secret(line: str) -> bool:
    quoted = QUOTED_SECRET.search(line)
    return bool(known_secrets(line)) or (quoted is not None and not PLACEHOLDER.search(quoted[1]))


def _absent(name: str, holds: Callable[[str], object], added: list[str], shown: bool = True) -> PolicyCheck:
    found = [line.strip() for line in added if holds(line)]
    evidence = "; ".join(found[:3])[:300] if shown else f"{len(found)} line(s)" if found else ""
    return PolicyCheck(name=name, ok=not found, evidence=evidence)


def _changed(diff: str) -> tuple[list[str], list[str], set[str]]:
    """The lines that a unified diff adds and removes, and the files it names. Other text is refused, not passed."""
    added, removed, paths = [], [], set()
    in_hunk = False
    lines = [line.rstrip("\r") for line in diff.split("\n")]
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        header = line.startswith("--- ") and following.startswith("+++ ")
        if line.startswith("diff --git ") or header:
            in_hunk = False
            paths.update(_named(line) if not header else _named(following) or _named(line))
        elif line.startswith("@@"):
            in_hunk = True
        elif in_hunk and line.startswith("+"):
            added.append(line[1:])
        elif in_hunk and line.startswith("-"):
            removed.append(line[1:])
    if diff.strip() and not paths:
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS,
            "This is not a unified diff: no lines name a file (`--- a/PATH`, `+++ b/PATH`). Use what git_diff() gives.",
        )
    return added, removed, paths


def _named(line: str) -> set[str]:
    """The file that a header names, without git's prefix."""
    if line.startswith("diff --git "):
        _, found, path = line.rpartition(" b/")
        return {path.rstrip('"')} if found else set()
    path = line[4:].split("\t")[0].strip().strip('"')
    return set() if path == "/dev/null" else {path[2:] if path.startswith(("a/", "b/")) else path}


def _bad_report(why: str) -> CodePilotError:
    return CodePilotError(
        FailureKind.TOOL_INVALID_ARGS,
        f"This is not a report that can be read: {why}. Give its text: parse_surefire_xml(read_file(path)).",
    )
