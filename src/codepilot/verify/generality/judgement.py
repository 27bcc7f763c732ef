"""From signs to concerns: which signs remain after the changed functions were run on further inputs."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from codepilot.core.artifacts import Concern
from codepilot.executor import FileChange
from codepilot.project import is_test, is_test_file
from codepilot.verify.generality.files import CODE
from codepilot.verify.generality.sign import ONLY_TESTED, SINGLE_EXAMPLE, Sign
from codepilot.verify.review_checks import ChangedFile
from codepilot.verify.testcode import parsed
from codepilot.workspace import Entry, ObjectStore

if TYPE_CHECKING:
    from codepilot.repair import FunctionSpread, Spread, Variants

GITLINK = "160000"
MAX_CONCERNS = 12
MAX_SOURCES = 40
MAX_BYTES = 2 << 20


def changed_files(objects: ObjectStore, base_tree: str, tree: str) -> list[ChangedFile]:
    """The files that differ between two trees, with their content on either side."""
    found = []
    for path, before, after in objects.changes(base_tree, tree):
        old, new = (_content(objects, entry) for entry in (before, after))
        kind: Literal["added", "modified", "deleted"] = (
            "added" if before is None else "deleted" if after is None else "modified"
        )
        binary = any(side is not None and b"\0" in side for side in (old, new))
        found.append(ChangedFile(FileChange(path=path, change=kind, binary=binary), old, new))
    return found


def _content(objects: ObjectStore, entry: Entry | None) -> bytes | None:
    if entry is None or entry.mode == GITLINK:
        return None
    return objects.read_blob(entry.oid)


def sources_of(objects: ObjectStore, tree: str, tests: Sequence[str]) -> dict[str, bytes]:
    """The files of the named tests, and the data that those name.

    They are found by path, or by the names in a test's id; all test files if there are none.
    """
    entries = {path: entry for path, entry in objects.read_tree(tree).items() if entry.mode != GITLINK}
    named = {token for test in tests for token in re.split(r"[^\w-]+", test)}
    files = [path for path in entries if is_test(path)]
    wanted = [path for path in entries if any(path == test.partition("::")[0] for test in tests)]
    wanted = wanted or [path for path in files if path.rpartition("/")[2].split(".")[0] in named]
    wanted = wanted or [path for path in files if is_test_file(path)]
    contents = _read(objects, entries, wanted)
    text = b"\n".join(contents.values()).decode("utf-8", "replace")
    data = [path for path in files if not path.endswith(CODE) and path.rpartition("/")[2] in text]
    return contents | _read(objects, entries, data)


def _read(objects: ObjectStore, entries: Mapping[str, Entry], paths: Sequence[str]) -> dict[str, bytes]:
    """The contents of some files, without those that are too large to look at."""
    sizes = {path: objects.header(entries[path].oid) for path in paths[:MAX_SOURCES]}
    small = [path for path, header in sizes.items() if header is not None and header[1] <= MAX_BYTES]
    return {path: objects.read_blob(entries[path].oid) for path in small}


def versions(base: Mapping[str, bytes | None], signs: Sequence[Sign]) -> Variants:
    """What to compare the changed files with, to see which of the signs stand."""
    from codepilot.repair import Variants  # repair loads libraries that most commands do without

    variants = ((one.concern.path, text) for one in signs if not one.certain for text in one.variants)
    return Variants(base, tuple(dict.fromkeys(variants)))


def concerns(signs: Sequence[Sign], files: Sequence[ChangedFile], spread: Spread | None = None) -> tuple[Concern, ...]:
    """The concerns of a change. `spread` is what the changed functions do on further inputs."""
    sources = {file.path: file.after for file in files}
    found = [one.concern for one in signs if _stands(one, spread, sources.get(one.concern.path))]
    return tuple(found[:MAX_CONCERNS])


def _stands(one: Sign, spread: Spread | None, source: bytes | None) -> bool:
    if one.certain or spread is None:
        return not one.weak
    around = enclosing(source, one.concern.line)
    if one.concern.rule == SINGLE_EXAMPLE:
        return any(function.examples == 1 for function in _judged(spread.functions, one, around))
    if one.concern.rule == ONLY_TESTED:
        return any(function.outside for function in spread.functions)
    without = [spread.variants.get((one.concern.path, text), ()) for text in one.variants]
    matters = [function for functions in without for function in _judged(functions, one, around) if function.matters]
    if matters and one.weak:
        return any(function.special for function in matters)
    if matters:
        return not all(function.general and function.free_of_numbers for function in matters)
    judged = _judged(spread.functions, one, around)
    if one.weak:
        return bool(judged) and all(function.special for function in judged)
    return not any(function.general for function in judged)


def _judged(functions: Sequence[FunctionSpread], one: Sign, around: str) -> Sequence[FunctionSpread]:
    """The functions that a sign speaks of: the one around it, else those of its file, else all."""
    here = [function for function in functions if function.path == one.concern.path]
    return [function for function in here if function.qualname == around] or here or functions


def enclosing(source: bytes | None, line: int) -> str:
    """The qualified name of the outermost function around a line; empty if there is none."""
    tree = parsed(source)
    return _within(tree.body, line, "") if tree is not None else ""


def _within(body: Sequence[ast.stmt], line: int, prefix: str) -> str:
    for node in body:
        if not node.lineno <= line <= (node.end_lineno or node.lineno):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return prefix + node.name
        if isinstance(node, ast.ClassDef):
            return _within(node.body, line, f"{prefix}{node.name}.")
    return ""
