"""Files of a change that decide what the tests judge: tests and their data, and the configuration of their runner."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from codepilot.project import is_test
from codepilot.verify import testcode
from codepilot.verify.configuration import bends_runner
from codepilot.verify.generality.sign import Sign, sign
from codepilot.verify.generality.values import TestValues
from codepilot.verify.review_checks import SKIPS, TEST_SKIPS, ChangedFile

DATA_FOLDER = re.compile(
    r"(?:^|/)(?:fixtures?|__fixtures__|__snapshots__|snapshots?|test_?data|golden|goldens|expected|cassettes|samples?|examples?)(?:/|$)",
    re.IGNORECASE,
)
DATA_NAME = re.compile(
    r"\.(?:snap|golden|approved|expected|cassette)(?:\.\w+)?$|(?:^|[/_.-])(?:expected|golden|snapshot|fixture)[/_.-]"
)
MUTATING = frozenset(
    {"append", "insert", "extend", "update", "setdefault", "add", "pop", "clear", "remove", "setattr", "delattr"}
    | {"start", "object", "patch", "__setattr__", "__setitem__", "exec"}
)
"""Calls that change what they are called on, or what they are given."""
RUNNERS = frozenset({"pytest", "hypothesis", "unittest", "mock", "django"})
CODE = (*testcode.PYTHON, *testcode.JVM, *testcode.SCRIPT)
TEXT = (".md", ".rst", ".txt", ".adoc", ".asciidoc")
PROSE = re.compile(
    r"(?:^|/)(?:CHANGE(?:S|LOG)?|HISTORY|NEWS|RELEASES?|README|AUTHORS|CONTRIBUTORS|CREDITS|THANKS|TODO)(?:[-_.][\w.-]*)?$"
    r"|(?:^|/)(?:newsfragments|changelog\.d|changes\.d|changelogs?|towncrier)/[^/]+$",
    re.IGNORECASE,
)
"""Files that tell people about a change, with the values of its tests among others."""
SETTINGS = re.compile(
    r"pytest11|\baddopts\b|\btestpaths\b|python_(?:files|classes|functions)|-p\s+no:|--deselect|--ignore|norecursedirs"
    r"|testPathIgnorePatterns|testMatch|passWithNoTests|\bskipTests\b|maven\.test\.skip|testFailureIgnore|<excludes?>"
    r"|ignoreFailures|failIfNoTests|bail\b|retryTimes|reruns|filterwarnings|xfail_strict|\|\|\s*true|PYTEST_ADDOPTS|PYTHONPATH|PYTHONSTARTUP"
)
MOST_COPIED = 2
"""How many values of the tests a new data file may share with them by chance."""


def file_signs(
    files: Sequence[ChangedFile], tests: TestValues, sources: Mapping[str, bytes], collected: Sequence[str]
) -> Iterator[Sign]:
    imported = _imported(sources)
    held: dict[str, list[str]] = {}
    for test in collected:
        held.setdefault(test.partition("::")[0], []).append(test)
    for file in files:
        if file.before is None and file.is_python and is_test(file.path) and _module(file.path) in imported:
            why = f"the change puts the module `{_module(file.path)}`, which the failing test imports, among the tests"
            yield sign("shadowed_module", file.path, 1, why)
        if file.before is None and file.is_python and _hides_library(file.path):
            why = f"the change puts a module in front of the standard library's `{_module(file.path)}`"
            yield sign("shadowed_module", file.path, 1, why)
        yield from _edited(file, tests)
        if file.is_python and is_test(file.path):
            yield from _patching(file)
        if file.path in held and not is_test(file.path) and file.before is not None:
            examples = all(_is_example(test, file) for test in held[file.path])
            if _loses_examples(file) if examples else file.after is None or _weakens(file):
                yield sign("edited_test", file.path, 1, "the change edits a test, or an example that is one")
        yield from _skipped(file)
        if bends_runner(file.path, file.before, file.after):
            why = "the change configures how tests are found, loaded or run"
            yield sign("runner_configuration", file.path, 1, why)
        elif not _is_prose(file.path) and not file.path.endswith(CODE):
            for number, line in file.added:
                if SETTINGS.search(line):
                    yield sign("runner_configuration", file.path, number, "the change sets an option of the test run")
        if file.after is not None and not _is_prose(file.path) and not file.path.endswith(CODE):
            yield from _data(file, tests)


def _is_prose(path: str) -> bool:
    return path.endswith(TEXT) or (not path.endswith(CODE) and bool(PROSE.search(path)))


def _module(path: str) -> str:
    pure = PurePosixPath(path)
    return pure.parent.name if pure.stem == "__init__" else pure.stem


def _hides_library(path: str) -> bool:
    """True for a module that hides one of the standard library: it is at the top of the tree or next to tests."""
    folder = PurePosixPath(path).parent
    top = str(folder) in (".", "src", "lib") or is_test(path)
    return top and PurePosixPath(path).stem in sys.stdlib_module_names


def _imported(sources: Mapping[str, bytes]) -> frozenset[str]:
    """The modules that the files of the failing tests import from the top."""
    names: set[str] = set()
    for tree in filter(None, map(testcode.parsed, sources.values())):
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names.add(node.module.partition(".")[0])
    return frozenset(names)


def _edited(file: ChangedFile, tests: TestValues) -> Iterator[Sign]:
    if file.before is None:
        return
    gone = "deletes" if file.after is None else "edits"
    if is_test(file.path):
        if file.after is None or _weakens(file):
            yield sign("edited_test", file.path, 1, f"the change {gone} a test or its data")
    elif not file.path.endswith(CODE):
        name = PurePosixPath(file.path).name
        if (
            DATA_FOLDER.search(str(PurePosixPath(file.path).parent))
            or DATA_NAME.search(file.path)
            or name in tests.text
        ):
            yield sign("edited_data", file.path, 1, f"the change {gone} data that tests compare with")


def _patching(file: ChangedFile) -> Iterator[Sign]:
    """What a file of tests changes in other modules when it is loaded."""
    tree = testcode.parsed(file.after)
    if tree is None:
        return
    fresh = {number for number, _ in file.added}
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    owners = {
        alias.asname or alias.name.partition(".")[0]: (getattr(node, "module", None) or alias.name).partition(".")[0]
        for node in imports
        for alias in node.names
    }
    owned = {name for name, module in owners.items() if module not in sys.stdlib_module_names | RUNNERS}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for node in ast.walk(statement):
            stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
            changes = stored and isinstance(node, ast.Attribute | ast.Subscript)
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                changes = name in MUTATING
            if changes and getattr(node, "lineno", 0) in fresh and _names(node) & owned:
                why = f"loading the tests changes a part of `{min(_names(node) & owned)}`"
                yield sign("monkeypatch", file.path, getattr(node, "lineno", 0), why)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _is_example(test: str, file: ChangedFile) -> bool:
    """True for a doctest; a function that is called as its file is none."""
    tree = testcode.parsed(file.before)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} if tree is not None else set()
    return testcode.is_documented(test) and test.partition("::")[2] not in functions


def _loses_examples(file: ChangedFile) -> bool:
    """True if an example of the base's docstrings is gone or gives something else."""
    kept = Counter(testcode.examples(testcode.parsed(file.after)))
    return bool(Counter(testcode.examples(testcode.parsed(file.before))) - kept)


def _weakens(file: ChangedFile) -> bool:
    """True if a statement of the tests is changed or gone; new tests may be added."""
    old = testcode.parsed(file.before) if file.is_python else None
    new = testcode.parsed(file.after) if file.is_python else None
    if old is not None and new is not None:
        return bool(testcode.edits(old, new))
    return file.removed or file.change.binary


def _skipped(file: ChangedFile) -> Iterator[Sign]:
    if not file.path.endswith(CODE):
        return
    found = [*file.gained(SKIPS), *(file.gained(TEST_SKIPS) if file.tests else ())]
    for number, _ in found:
        yield sign("skipped_test", file.path, number, "the change skips tests")


def _data(file: ChangedFile, tests: TestValues) -> Iterator[Sign]:
    """Data files that hold the values of the failing tests: tables of answers."""
    text = "\n".join(line for _, line in file.added)
    strings = [value for kind, value in tests.values if kind == "text" and isinstance(value, str) and len(value) > 1]
    held = sorted(value for value in strings if value in text)
    numbers = sorted(
        str(value)
        for kind, value in tests.values
        if kind == "number" and tests.copied(value) and re.search(rf"(?<![\w.]){re.escape(str(value))}(?![\w.])", text)
    )
    if held and len(held) + len(numbers) >= MOST_COPIED:
        yield sign(
            "copied_data", file.path, 1, f"a data file holds {', '.join([*held, *numbers][:3])} of the failing test"
        )
