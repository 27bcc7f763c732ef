"""What Bandit finds in the Python of a change, read inside the sandbox: the files are anybody's, and so is their shape.

Only the contents travel in, under names of ours, so that no configuration of the repository and no `# nosec` has a
say. Both sides of the change are read at once, and only what the change brought counts.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from codepilot.core.artifacts import PolicyCheck
from codepilot.core.policy import Severity
from codepilot.executor import CommandResult, Executor, FileChange, RunCommand
from codepilot.project import is_test
from codepilot.sandbox import Limits

Read = Callable[[str], bytes | None]
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
"""Asserts, made-up passwords and temporary paths: what tests are made of."""
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
    said = json.load(file)
shown = lambda one: os.path.basename(one["filename"])
keys = ("test_id", "test_name", "issue_severity", "issue_text", "line_number")
json.dump({
    "found": [[shown(one), *(one[key] for key in keys)] for one in said["results"]],
    "unread": [[shown(one), one["reason"]] for one in said["errors"]],
}, sys.stdout)
"""


@dataclass(frozen=True)
class Finding:
    """One thing that the change brought."""

    path: str
    line: int
    test: str
    severity: Severity
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.message} ({self.test}, {self.severity})"


@dataclass(frozen=True)
class Scan:
    """What was found, and what could not be looked at: `unread` newly so, `opaque` before the change as well."""

    findings: tuple[Finding, ...] = ()
    unread: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Seen:
    test: str
    severity: Severity
    message: str
    line: int
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """What stays the same when code around it moves."""
        return self.test, self.text


def scan_generated(
    executor: Executor,
    workspace: str,
    changes: Sequence[FileChange],
    before: Read,
    after: Read,
    timeout_sec: float = 60.0,
) -> Scan:
    """Read the Python files of a change on both sides. A change without any costs nothing."""
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
    """Generated code holds nothing that a security scanner finds grave. Lesser findings are evidence, no reason."""
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
) -> tuple[dict[_Where, list[_Seen]], dict[_Where, str]]:
    """What was seen in each file, and which could not be read and why.

    The report is parsed as hostile input: one that does not fit means that nothing of the new side was read.
    """
    lines = {where: _LINE_END.split(contents[where].decode("utf-8", "replace")) for where in names.values()}
    seen: dict[_Where, list[_Seen]] = {where: [] for where in names.values()}
    try:
        if done.status != "ok":
            said = done.stderr.decode("utf-8", "replace").strip()[-300:]
            raise ValueError(f"{done.limit or done.status} {said}".rstrip())
        report = json.loads(done.stdout)
        for name, test, title, severity, text, line in report["found"]:
            where, number = names[name], int(line)
            source = lines[where][number - 1].strip() if 0 < number <= len(lines[where]) else ""
            message = str(title if test in QUOTING else text)[:200]
            seen[where].append(_Seen(str(test), _SEVERITIES[severity], message, number, source))
        return seen, {names[name]: str(reason)[:200] for name, reason in report["unread"]}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        return {}, {where: f"Bandit gave no report ({error})" for where in names.values() if where[0] == "after"}


def _brought(seen: Mapping[_Where, Sequence[_Seen]], changes: Sequence[FileChange]) -> Iterator[Finding]:
    """The findings that were not there before: neither in the same file nor in one that the change removed."""
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
            if known[one.key] > 0:
                known[one.key] -= 1
            elif moved[one.key] > 0:
                moved[one.key] -= 1
            else:
                yield Finding(path, one.line, one.test, one.severity, one.message)
