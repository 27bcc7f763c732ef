"""What a change does to the code of existing Python tests, read from their syntax trees."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from threading import Lock

MAX_SOURCE_BYTES = 4 << 20
_WARNINGS = Lock()
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(content: bytes | None) -> ast.Module | None:
    """The syntax tree, or None if there is none to be had. Hostile nesting or size counts as no tree."""
    if content is None or len(content) > MAX_SOURCE_BYTES:
        return None
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def compile_warnings(content: bytes | None) -> Counter[str]:
    """The warnings that compiling gives, without running anything."""
    if content is None or len(content) > MAX_SOURCE_BYTES:
        return Counter()
    with _WARNINGS, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            compile(content, "<change>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return Counter()
    return Counter(str(warning.message) for warning in caught)


def test_functions(tree: ast.Module) -> dict[str, _Function]:
    """The tests of a module by qualified name; a later definition replaces an earlier one, as it does when run."""
    return {name: node for name, node in _functions(tree.body, "") if node.name.startswith("test")}


def _functions(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, _Function]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")


def is_empty(function: _Function) -> bool:
    """Whether nothing is checked before the function ends: no body, or a return or skip as its first deed."""
    for node in function.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        return isinstance(node, ast.Pass | ast.Return)
    return True


def edits(before: ast.Module, after: ast.Module) -> list[str]:
    """Statements of `before` that `after` lacks, and names it binds anew; additions are no edits."""
    try:
        return list(_scope_edits(before.body, after.body, ""))
    except RecursionError:
        return ["it is nested too deeply to be compared"]


def _scope_edits(before: Sequence[ast.stmt], after: Sequence[ast.stmt], prefix: str) -> Iterator[str]:
    fresh: dict[str, list[ast.stmt]] = {}
    for node in after:
        fresh.setdefault(ast.dump(node), []).append(node)
    lacking = [node for node in before if not _take(fresh, node)]
    kept = {name for node in before if node not in lacking for name in _bound(node)}
    added = [node for nodes in fresh.values() for node in nodes]
    imported = _imports(after)
    for node in lacking:
        successor = _successor(node, added)
        if successor is not None and isinstance(node, ast.ClassDef):
            added.remove(successor)
            yield from _scope_edits(node.body, successor.body, f"{prefix}{node.name}.")
        elif not _is_docstring(node) and not (_imports([node]) and _imports([node]) <= imported):
            yield f"{prefix}{_label(node)} was edited or removed"
    for node in added:
        for name in sorted(_bound(node) & kept):
            yield f"{prefix}{name} is bound again"


def _take(pool: dict[str, list[ast.stmt]], node: ast.stmt) -> bool:
    same = pool.get(ast.dump(node))
    if not same:
        return False
    same.pop()
    return True


def _successor(node: ast.stmt, added: Sequence[ast.stmt]) -> ast.ClassDef | None:
    """The class that continues `node`: same name, bases and decorators."""
    if not isinstance(node, ast.ClassDef):
        return None
    named = (other for other in added if isinstance(other, ast.ClassDef) and other.name == node.name)
    return next((other for other in named if _head(other) == _head(node)), None)


def _head(node: ast.ClassDef) -> list[str]:
    return [ast.dump(part) for part in (*node.bases, *node.keywords, *node.decorator_list)]


def _imports(body: Sequence[ast.stmt]) -> set[tuple[str, str, str]]:
    found = set()
    for node in body:
        if isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            found |= {(origin, alias.name, alias.asname or alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {("", alias.name, alias.asname or alias.name) for alias in node.names}
    return found


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _label(node: ast.stmt) -> str:
    names = sorted(_bound(node))
    return names[0] if names else f"the statement at line {node.lineno}"


def _bound(node: ast.stmt) -> set[str]:
    """Names that a statement gives a value in its scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {bound.split(".")[0] for _, _, bound in _imports([node])}
    stored = (part for part in ast.walk(node) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load))
    return {part.id for part in stored}
