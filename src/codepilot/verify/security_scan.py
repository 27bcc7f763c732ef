"""The security scan of a change: Bandit reads its Python files inside the sandbox.

Only the contents of the files are copied in, under generated names, so that neither the repository's configuration nor
`# nosec` takes effect. Both sides of the change are scanned, and only new findings count.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from codepilot.core.artifacts import PolicyCheck
from codepilot.core.policy import Severity
from codepilot.executor import CommandResult, Executor, FileChange, RunCommand
from codepilot.project import is_test
from codepilot.sandbox import Limits

Read = Callable[[str], bytes | None]
Key = TypeVar("Key")
_Where = tuple[Literal["before", "after"], str]
"""One side of one file."""

PACKAGES = ("bandit", "stevedore", "yaml", "rich")
LIMITS = Limits(memory_bytes=512 << 20, processes=20, output_bytes=8 << 20)
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEVERITIES: dict[str, Severity] = {"LOW": "low", "MEDIUM": "medium", "HIGH": "high"}
LADDER: tuple[Severity, ...] = ("low", "medium", "high")
MAX_FILE_BYTES = 2 << 20
MAX_EVIDENCE = 10
QUIET_IN_TESTS = frozenset({"B101", "B105", "B106", "B107", "B108"})
"""Asserts, invented passwords and temporary paths, which are normal in tests."""
QUOTING = frozenset({"B105", "B106", "B107"})
"""Findings whose text repeats the secret."""

_SCAN = """
import base64, json, os, runpy, sys, tempfile
place = tempfile.mkdtemp()
for name, content in json.load(sys.stdin).items():
    with open(os.path.join(place, name), "wb") as file:
        file.write(base64.b64decode(content))
report = os.path.join(tempfile.mkdtemp(), "report.json")
sys.argv = ["bandit", "-r", place, "-q", "-n", "1", "--ignore-nosec", "--exit-zero", "-f", "json", "-o", report]
try:
    runpy.run_module("bandit", run_name="__main__", alter_sys=True)
except SystemExit as ended:
    if ended.code:
        raise
with open(report) as file:
    scan = json.load(file)
shown = lambda one: os.path.basename(one["filename"])
keys = ("test_id", "test_name", "issue_severity", "issue_text", "line_number")
json.dump({
    "found": [[shown(one), *(one[key] for key in keys)] for one in scan["results"]],
    "unread": [[shown(one), one["reason"]] for one in scan["errors"]],
}, sys.stdout)
"""


@dataclass(frozen=True)
class Finding:
    """One finding that the change introduces."""

    path: str
    line: int
    test: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.message} ({self.test}, {self.severity})"


@dataclass(frozen=True)
class Scan:
    """The new findings, and the files that could not be scanned: `unread` ones now, `opaque` ones before as well."""

    findings: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Raw:
    test: str
    severity: Severity
    message: str
    line: int
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the finding, which does not change when code around it moves."""
        return self.test, self.text


def scan_generated(
    executor: Executor,
    workspace: str,
    changes: Sequence[FileChange],
    before: Read,
    after: Read,
    timeout_sec: float = 60.0,
) -> Scan:
    """Scan the Python files of a change on both sides. A change without any starts no process."""
    contents = dict(_python_files(changes, before, after))
    if not any(side == "after" for side, _ in contents):
        return Scan()
    unread = {
        where: f"larger than {MAX_FILE_BYTES} bytes" for where in contents if len(contents[where]) > MAX_FILE_BYTES
    }
    names = {f"{number}.py": where for number, where in enumerate(contents) if where not in unread}
    request = RunCommand(
        workspace=workspace,
        argv=(_SCAN,),
        packages=PACKAGES,
        stdin=json.dumps({name: base64.b64encode(contents[names[name]]).decode() for name in names}).encode(),
        timeout_sec=timeout_sec,
        limits=LIMITS,
    )
    seen, refused = _read_report(executor.run_command(request), names, contents)
    unread |= refused
    missed = [(path, why) for (side, path), why in unread.items() if side == "after"]
    return Scan(
        findings=tuple(_brought(seen, changes)),
        unread=tuple(f"{path}: {why}" for path, why in missed if ("before", path) not in unread),
        opaque=tuple(f"{path}: {why}" for path, why in missed if ("before", path) in unread),
    )


def generated_code(scan: Scan, threshold: Severity) -> PolicyCheck:
    """Refuse findings of at least the threshold's severity, and unread files. Lesser findings are only evidence."""
    least = LADDER.index(threshold)
    grave = [str(one) for one in scan.findings if LADDER.index(one.severity) >= least]
    lesser = [str(one) for one in scan.findings if LADDER.index(one.severity) < least]
    missed = [f"could not be scanned: {what}" for what in scan.unread]
    known = [f"could not be scanned, nor before the change: {what}" for what in scan.opaque]
    seen = [*missed, *grave, *lesser, *known]
    more = f"; and {len(seen) - MAX_EVIDENCE} more" if len(seen) > MAX_EVIDENCE else ""
    evidence = ("; ".join(seen[:MAX_EVIDENCE]) + more).encode("utf-8", "backslashreplace").decode()
    return PolicyCheck(name="generated_code", ok=not grave and not missed, evidence=evidence)


def _python_files(changes: Sequence[FileChange], before: Read, after: Read) -> Iterator[tuple[_Where, bytes]]:
    for change in changes:
        old = None if change.change == "added" else before(change.path)
        new = None if change.change == "deleted" else after(change.path)
        if old is not None and _is_python(change.path, old):
            yield ("before", change.path), old
        if new is not None and _is_python(change.path, new):
            yield ("after", change.path), new


def _is_python(path: str, content: bytes) -> bool:
    first = content[:200].split(b"\n", 1)[0]
    return path.endswith((".py", ".pyw", ".pyi")) or (first.startswith(b"#!") and b"python" in first)


def _read_report(
    done: CommandResult, names: Mapping[str, _Where], contents: Mapping[_Where, bytes]
) -> tuple[dict[_Where, list[_Raw]], dict[_Where, str]]:
    """The findings in each file, and the files that could not be read with the reason.

    The report is hostile input. If it is malformed, no file of the new side counts as read.
    """
    lines = {where: _LINE_END.split(contents[where].decode("utf-8", "replace")) for where in names.values()}
    seen: dict[_Where, list[_Raw]] = {where: [] for where in names.values()}
    try:
        if done.status != "ok":
            error = done.stderr.decode("utf-8", "replace").strip()[-300:]
            raise ValueError(f"{done.limit or done.status} {error}".rstrip())
        report = json.loads(done.stdout)
        for name, test, title, severity, text, line in report["found"]:
            where, number = names[name], int(line)
            source = lines[where][number - 1].strip() if 0 < number <= len(lines[where]) else ""
            message = str(title if test in QUOTING else text)[:200]
            seen[where].append(_Raw(str(test), _SEVERITIES[severity], message, number, source))
        return seen, {names[name]: str(reason)[:200] for name, reason in report["unread"]}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        return {}, {where: f"Bandit gave no report ({error})" for where in names.values() if where[0] == "after"}


def _brought(seen: Mapping[_Where, Sequence[_Raw]], changes: Sequence[FileChange]) -> Iterator[Finding]:
    """The findings that were neither in the same file before nor in one that the change deletes."""
    moved = Counter(
        one.key for change in changes if change.change == "deleted" for one in seen.get(("before", change.path), ())
    )
    for (side, path), found in seen.items():
        if side == "before":
            continue
        known = Counter(one.key for one in seen.get(("before", path), ()))
        for one in found:
            if is_test(path) and one.test in QUIET_IN_TESTS:
                continue
            if not take(known, one.key) and not take(moved, one.key):
                yield Finding(path, one.line, one.test, one.severity, one.message)


def take(known: Counter[Key], key: Key) -> bool:
    """Take one occurrence of a known finding; False if there is none left."""
    known[key] -= 1
    return known[key] >= 0
