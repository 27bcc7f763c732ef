"""The deterministic part of every review, which no agent can overrule.

Each check takes the change as data and returns a `PolicyCheck` with its evidence. No check runs any of the code or
repeats a secret in its evidence.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from codepilot.core.artifacts import PolicyCheck, Review
from codepilot.core.policy import Severity
from codepilot.core.secrets import PLACEHOLDER, QUOTED_SECRET, known_secrets
from codepilot.core.task import Budget, TaskKind
from codepilot.executor import DiffResult, FileChange, Violation
from codepilot.project import is_test
from codepilot.verify import testcode
from codepilot.verify.configuration import bends_runner
from codepilot.verify.security_scan import Scan, generated_code
from codepilot.verify.weakening import weakenings

MARKERS = re.compile(
    r"""(?:\#|//|/\*|^\s{0,80}\*|<!--|\"{3}|'{3}).{0,200}?\b(TODO|FIXME|XXX|HACK)\b
    | ^\s{0,80}(TODO|FIXME|XXX|HACK):\s""",
    re.VERBOSE,
)
"""Notes to self in comments; outside of comments the words may belong to the product."""
SPEAKING_NAME = re.compile(
    r"(?:^|/)(?:bin|scripts|tools)/"
    r"|(?:(?:^|[/_.-])(?:log|logger|logging|cli|console|main|__main__|cmd)|Logger|Console|Main|Cli)\.\w{1,10}$"
)
SPEAKING = re.compile(
    r"\A#!|^\s{0,40}print\(|\bargparse\b|\bsys\.argv\b|__main__|^import (?:click|typer)\b|process\.argv"
    r"|static void main\s?\(",
    re.MULTILINE,
)
DEBUG_LINES = re.compile(r"\bconsole\.(?:log|debug|trace)\s*\(|\bSystem\.(?:out|err)\.print|\.printStackTrace\s*\(")
BREAKPOINTS = re.compile(r"(?:^|[;{}])\s*debugger\s*(?:;|$)")
_DEBUGGING = ("print", "breakpoint", "set_trace")
DEBUG_MODULES = frozenset({"pdb", "ipdb", "pudb", "wdb", "remote_pdb"})


def may_print(path: str, before: bytes | None, after: bytes | None) -> bool:
    """True if output of a file is no leftover: it is a program, a logger or a new Python file, or printed before."""
    if SPEAKING_NAME.search(path) or (before is None and path.endswith(".py")):
        return True
    text = ((after if before is None else before) or b"").decode("utf-8", "replace")
    return bool(SPEAKING.search(text) or (before is not None and DEBUG_LINES.search(text)))


def _directed(call: ast.Call) -> bool:
    """True if a call names the file of its output, which debug output does not."""
    return any(word.arg == "file" for word in call.keywords)


def debug_calls(tree: ast.Module) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in _DEBUGGING and not _directed(node):
                found[called.id] += 1
            elif isinstance(called, ast.Attribute) and called.attr == "set_trace":
                found["set_trace"] += 1
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name in DEBUG_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in DEBUG_MODULES:
            found[node.module] += 1
    return found


ADVICE_ON_OTHERS = frozenset({"no_debug_left", "new_tests_assert"})
"""Checks that do not refuse a change which a person or another tool made."""

ADVICE_ON_NEW = frozenset({"no_debug_left"})
"""Checks that do not refuse a new program: it may print."""

Read = Callable[[str], bytes | None]
"""The content of a path; None if there is no such file."""

MAX_EVIDENCE = 10
MAX_IMPORTS = 20

SKIPS = re.compile(
    r"""@?pytest\.mark\.(?:skip|skipif|xfail)\b | \bpytest\.(?:skip|xfail|importorskip)\s*\(
    | @?unittest\.(?:skip|expectedFailure) | ^\s*@(?:skip|skipIf|skipUnless|expectedFailure)\b
    | \bself\.skipTest\s*\( | \bSkipTest\b | ^\s*__test__\s*=\s*False | \bcollect_ignore(?:_glob)?\b""",
    re.VERBOSE,
)
TEST_SKIPS = re.compile(
    r"""(?:^|\s)@(?:[\w.]{1,80}\.)?(?:Ignore|Disabled\w*|EnabledIf\w*|EnabledOn\w*)\b
    | \bassume(?:True|False|That|NotNull|NoException)\s*\(
    | \b(?:it|test|describe|suite|context|specify)\.(?:\w{1,20}\.){0,3}(?:skip|todo|only|skipIf|runIf)\b
    | ^\s*(?:xit|xtest|xdescribe|xcontext|xspecify|fit|fdescribe)\s*[.(] | \b(?:this|t|ctx|context)\.(?:skip|todo)\s*\(
    | \b(?:it|test|describe)\([^{}]{0,200}\{[^{}]{0,100}\b(?:skip|todo|only)\s*:\s*(?!false\b)""",
    re.VERBOSE,
)
"""Words that skip tests in files of tests only; elsewhere they are common words."""
TESTING = re.compile(rb"org\.junit|org\.testng|io\.kotest|node:test|@jest/|\bvitest\b|@playwright/|\bdescribe\s*\(")
CODE = (*testcode.PYTHON, *testcode.JVM, *testcode.SCRIPT, ".vue", ".svelte")
TESTED = (".py", *testcode.JVM, *testcode.SCRIPT)
TEST_DEMANDED = frozenset({TaskKind.BUGFIX, TaskKind.CHANGE})
"""Kinds of task whose changes need a test; for others a missing test is only evidence."""
LONG_LITERAL = re.compile(r"['\"]([A-Za-z0-9+/_=-]{40,})['\"]")
NAMED_ENTROPY = 3.0
LITERAL_ENTROPY = 4.7

TEST_AWARE = re.compile(
    r"PYTEST_CURRENT_TEST|\bin\s+sys\.modules\b.{0,200}(?:pytest|unittest)|(?:pytest|unittest)['\"]\s+in\s+sys\.modules|\b_pytest\b|\bos\._exit\s*\("
    r"|forName\s*\(\s*\"org\.(?:junit|testng)|\"(?:surefire|org\.gradle\.test)\.|\bgetRuntime\(\)\.halt\s*\("
    r"|\b(?:JEST_WORKER_ID|NODE_TEST_CONTEXT|VITEST(?:_\w+)?)\b|\bNODE_ENV\b.{0,40}['\"]test['\"]"
)


@dataclass(frozen=True)
class ChangedFile:
    """One file of the change, with its content on either side."""

    change: FileChange
    before: bytes | None
    after: bytes | None

    @property
    def path(self) -> str:
        return self.change.path

    @property
    def is_python(self) -> bool:
        return self.path.endswith(testcode.PYTHON)

    @cached_property
    def added(self) -> list[tuple[int, str]]:
        """Lines of the new side that the old side lacks, with their numbers. A moved line is not added."""
        if self.after is None or self.change.binary:
            return []
        old = Counter(_lines(self.before))
        fresh = []
        for number, line in enumerate(_lines(self.after), 1):
            if old[line] > 0:
                old[line] -= 1
            else:
                fresh.append((number, line))
        return fresh

    def gained(self, pattern: re.Pattern[str]) -> list[tuple[int, str]]:
        """The matches in added lines, if the file has more matches than before: an edited line may keep one."""
        found = [
            (number, match[match.lastindex or 0].strip())
            for number, line in self.added
            if (match := pattern.search(line))
        ]
        if not found or self.before is None:
            return found
        counts = [sum(1 for line in _lines(side) if pattern.search(line)) for side in (self.before, self.after)]
        return found if counts[1] > counts[0] else []

    @cached_property
    def removed(self) -> bool:
        """True if a line of the old side is gone. A comma at its end, or more names in an import, do not count."""
        old, new = (
            Counter(line.rstrip().removesuffix(",") for line in _lines(side)) for side in (self.before, self.after)
        )
        gone = list(old - new)
        if len(gone) > MAX_IMPORTS:
            return True
        after = (self.after or b"").decode("utf-8", "replace") if gone else ""
        return not all(self.path.endswith(testcode.SCRIPT) and testcode.widened(line, after) for line in gone)

    @cached_property
    def tests(self) -> bool:
        """True if the file holds tests, by its path or by its imports."""
        return is_test(self.path) or any(TESTING.search(side or b"") for side in (self.before, self.after))


def _lines(content: bytes | None) -> list[str]:
    return (content or b"").decode("utf-8", "replace").splitlines()


def _check(name: str, found: Iterable[str]) -> PolicyCheck:
    seen = list(dict.fromkeys(found))
    shown = "; ".join(seen[:MAX_EVIDENCE])
    more = f"; and {len(seen) - MAX_EVIDENCE} more" if len(seen) > MAX_EVIDENCE else ""
    evidence = (shown + more).encode("utf-8", "backslashreplace").decode()
    return PolicyCheck(name=name, ok=not seen, evidence=evidence)


# Tests ----------------------------------------------------------------------------------------------


def no_disabled_tests(files: Sequence[ChangedFile], alters: Sequence[str] = ()) -> PolicyCheck:
    """No test was skipped, deleted or emptied, but those that the task lets the change alter."""
    found = [what for file in files for what in _disabled(file) if not _may_alter(alters, file.path, what)]
    return _check("no_disabled_tests", found)


def _may_alter(alters: Sequence[str], path: str, what: str) -> bool:
    """True if the task lets the change alter the test that a finding is about, or its whole file."""
    label = what.removeprefix(f"{path}: ").partition(" ")[0]
    for one in alters:
        dotted = one.removeprefix("./").replace("::", ".").replace("#", ".")
        if dotted == path or (PurePosixPath(path).stem in dotted and dotted.endswith(f".{label}")):
            return True
    return False


def _disabled(file: ChangedFile) -> Iterable[str]:
    if file.path.endswith(CODE):
        found = [*file.gained(SKIPS), *(file.gained(TEST_SKIPS) if file.tests else ())]
        yield from (f"{file.path}:{number} skips tests" for number, _ in found)
    if not is_test(file.path) or file.before is None:
        return
    if file.after is None:
        yield f"{file.path} was deleted"
        return
    old, new = testcode.read_tests(file.path, file.before), testcode.read_tests(file.path, file.after)
    if old is None or new is None:
        return
    for name, test in old.items():
        if name not in new:
            yield f"{file.path}: {name} was removed"
        elif new[name].empty and not test.empty:
            yield f"{file.path}: {name} was emptied"


def tests_untouched_or_added(files: Sequence[ChangedFile], alters: Sequence[str] = ()) -> PolicyCheck:
    """Existing tests and their data are unchanged, but those that the task lets the change alter; new ones may be
    added.
    """
    found = [(file.path, what) for file in files for what in _weakened(file)]
    refused = [what for path, what in found if not _may_alter(alters, path, what)]
    check = _check("tests_untouched_or_added", refused)
    altered = [what for _, what in found if what not in refused]
    return check.model_copy(update={"evidence": f"as asked, {'; '.join(altered)}"}) if altered and check.ok else check


def _weakened(file: ChangedFile) -> Iterable[str]:
    if not is_test(file.path) or file.before is None:
        return
    if file.after is None:
        yield f"{file.path} was deleted"
        return
    old = testcode.parsed(file.before) if file.is_python else None
    if old is None:
        if file.removed or file.change.binary:
            yield f"{file.path} was edited"
        return
    new = testcode.parsed(file.after)
    if new is None:
        yield f"{file.path} cannot be parsed any more"
        return
    yield from (f"{file.path}: {edit}" for edit in testcode.edits(old, new))


def assertions_kept(files: Sequence[ChangedFile]) -> PolicyCheck:
    """No existing test checks less than before. Other edits are judged by the tests in their base form."""
    return _check("assertions_kept", [f"{file.path}: {what}" for file in files for what in _taken(file)])


def _taken(file: ChangedFile) -> Iterable[str]:
    """What a change took from an existing file of tests, or of their data."""
    if not is_test(file.path) or file.after is None:
        return []
    if file.is_python:
        return weakenings(file.before or b"", file.after)
    if file.before is None:
        return []
    if file.path.endswith(CODE):
        return testcode.lost_lines(file.before, file.after)
    return ["lines of the tests' data were changed or removed"] if file.removed or file.change.binary else []


def no_runner_config_change(files: Sequence[ChangedFile], kind: TaskKind = TaskKind.BUGFIX) -> PolicyCheck:
    """Nothing that finds, loads or runs the tests changed. New projects may add their own configuration."""
    grows = kind in (TaskKind.BUILD, TaskKind.SCAFFOLD)
    bent = (
        f"{file.path} was {file.change.change}"
        for file in files
        if bends_runner(file.path, file.before, file.after) and not (grows and file.before is None)
    )
    return _check("no_runner_config_change", bent)


def no_test_detection(files: Sequence[ChangedFile]) -> PolicyCheck:
    """The product does not detect that it is tested, and does not end the runner."""
    found = (
        f"{file.path}:{number} depends on being tested"
        for file in files
        if not is_test(file.path)
        for number, _ in file.gained(TEST_AWARE)
    )
    return _check("no_test_detection", found)


def new_tests_assert(files: Sequence[ChangedFile]) -> PolicyCheck:
    """Every test that the change adds asserts something."""
    silent = (
        f"{file.path}: {name} asserts nothing"
        for file in files
        if is_test(file.path)
        for name in testcode.silent_tests(file.path, file.before, file.after)
    )
    return _check("new_tests_assert", silent)


def has_regression_test(files: Sequence[ChangedFile], kind: TaskKind, failing: Sequence[str]) -> PolicyCheck:
    """A test failed before; else the change must bring one, if its kind of task demands that."""
    name = "has_regression_test"
    if failing:
        return PolicyCheck(name=name, ok=True, evidence=f"{', '.join(failing[:3])} failed before")
    brought = [file.path for file in files if is_test(file.path) and file.after is not None]
    code = [file.path for file in files if file.path.endswith(TESTED) and not is_test(file.path)]
    if brought or not code:
        return PolicyCheck(name=name, ok=True, evidence=", ".join(brought[:3]) or "no code was changed")
    check = _check(name, [f"no test was added for {', '.join(code[:3])}"])
    return check.model_copy(update={"ok": kind not in TEST_DEMANDED})


# The product ----------------------------------------------------------------------------------------


def no_hardcoded_secrets(files: Sequence[ChangedFile]) -> PolicyCheck:
    """No key, token or password was written into the code. The evidence names the place, never the value."""
    found = (
        f"{file.path}:{number} looks like {kind}"
        for file in files
        for number, line in file.added
        for kind, value in secrets_in(line)
        if value.encode() not in (file.before or b"")
    )
    return _check("no_hardcoded_secrets", found)


def secrets_in(line: str) -> Iterable[tuple[str, str]]:
    """What looks like a key, token or password in a line of code: its kind and the text itself."""
    if known := known_secrets(line):
        yield from known
        return
    for named in QUOTED_SECRET.finditer(line):
        if entropy(named[1]) >= NAMED_ENTROPY and not PLACEHOLDER.search(named[1]):
            yield "a secret", named[1]
    for literal in LONG_LITERAL.finditer(line):
        mixed = all(re.search(kind, literal[1]) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
        if mixed and entropy(literal[1]) >= LITERAL_ENTROPY:
            yield "a random key", literal[1]


def entropy(text: str) -> float:
    """Bits per character."""
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values()) if text else 0.0


def no_debug_left(files: Sequence[ChangedFile]) -> PolicyCheck:
    """No print, breakpoint or note to self was left in the product."""
    return _check("no_debug_left", [what for file in files if not is_test(file.path) for what in _debug(file)])


def _debug(file: ChangedFile) -> Iterable[str]:
    may_speak = may_print(file.path, file.before, file.after)
    yield from (f"{file.path}:{number} adds a {marker}" for number, marker in file.gained(MARKERS))
    if not file.is_python:
        if file.path.endswith(CODE):
            yield from (f"{file.path}:{number} adds a breakpoint" for number, _ in file.gained(BREAKPOINTS))
            printed = () if may_speak else file.gained(DEBUG_LINES)
            yield from (f"{file.path}:{number} adds debug output" for number, _ in printed)
        return
    new = testcode.parsed(file.after)
    if new is None:
        return
    old = testcode.parsed(file.before)
    fresh = debug_calls(new) - (debug_calls(old) if old is not None else Counter())
    if may_speak:
        del fresh["print"]
    yield from (f"{file.path} adds {name}" for name in sorted(fresh))


def no_new_syntax_errors(files: Sequence[ChangedFile]) -> PolicyCheck:
    """Every Python file that could be parsed, or is new, can be parsed."""
    broken = (
        f"{file.path} cannot be parsed"
        for file in files
        if file.is_python and file.after is not None and testcode.parsed(file.after) is None
        if file.before is None or testcode.parsed(file.before) is not None
    )
    return _check("no_new_syntax_errors", broken)


def no_new_compilation_warnings(files: Sequence[ChangedFile], built: Sequence[str] = ()) -> PolicyCheck:
    """The compiler gives no new warnings; `built` are those of the project's own compiler."""
    fresh = (
        f"{file.path}: {message}"
        for file in files
        if file.is_python
        for message in testcode.compile_warnings(file.after) - testcode.compile_warnings(file.before)
    )
    return _check("no_new_compilation_warnings", (*fresh, *built))


def patch_within_size_limit(lines: int, limit: int) -> PolicyCheck:
    found = [f"{lines} changed lines, {limit} allowed"] if lines > limit else []
    return _check("patch_within_size_limit", found)


def no_violations(violations: Sequence[Violation]) -> PolicyCheck:
    """The tree holds no forbidden files."""
    return _check("no_violations", (f"{item.path}: {item.rule} {item.detail}".rstrip() for item in violations))


# The review -----------------------------------------------------------------------------------------


def review(
    diff: DiffResult,
    before: Read,
    after: Read,
    budget: Budget,
    kind: TaskKind = TaskKind.BUGFIX,
    scan: Scan | None = None,
    threshold: Severity = "high",
    warnings: Sequence[str] = (),
    failing: Sequence[str] | None = None,
    alters: Sequence[str] = (),
) -> Review:
    """Run every check on one change. A failed check requests changes.

    `scan` is the security scan of the change, None if the policy has it off. `warnings` are new compiler warnings.
    `failing` are the tests that failed before; with None, the task has criteria of its own, and no further test is
    demanded. `alters` are tests that the task lets the change alter.
    """
    judged = kind is TaskKind.PROVE
    files = [ChangedFile(c, before(c.path), None if c.change == "deleted" else after(c.path)) for c in diff.changes]
    checks = (
        no_violations(diff.violations),
        patch_within_size_limit(diff.lines, budget.patch_lines),
        no_new_syntax_errors(files),
        no_new_compilation_warnings(files, warnings),
        no_disabled_tests(files, alters),
        assertions_kept(files) if judged else tests_untouched_or_added(files, alters),
        new_tests_assert(files),
        *([has_regression_test(files, kind, failing)] if failing is not None else []),
        no_runner_config_change(files, kind),
        no_test_detection(files),
        no_hardcoded_secrets(files),
        no_debug_left(files),
        *([generated_code(scan, threshold)] if scan is not None else []),
    )
    advice = ADVICE_ON_OTHERS if judged else ADVICE_ON_NEW if kind is TaskKind.BUILD else frozenset()
    reasons = tuple(f"{check.name}: {check.evidence}" for check in checks if not check.ok and check.name not in advice)
    if not diff.changes:
        reasons = ("The patch changes nothing.",)
    return Review(
        verdict="REQUEST_CHANGES" if reasons else "APPROVE",
        patch_loc=diff.lines,
        policy_checks=checks,
        reasons=reasons,
    )
