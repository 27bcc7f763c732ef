"""Functions that check and that a change binds to something else, cuts off or overrides, read from Python source."""

from __future__ import annotations

import ast
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence

from codepilot.verify.testcode import functions

MAX_SHOWN = 100
_OF_UNITTEST = frozenset(name for name in dir(unittest.TestCase) if name.startswith("assert"))
_OF_PYTEST = frozenset({"raises", "warns", "fail", "approx", "deprecated_call"})
_OF_RUNNERS = ("pytest", "collect_ignore", "load_tests", "__")
"""Names that a runner reads begin like this."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def replaced(old: ast.Module, new: ast.Module) -> Iterator[str]:
    """Functions that check and are bound to something else now, and a loader that leaves out what it is given."""
    for node in difference(_every(new), _every(old)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = [one.attr for one in targets if isinstance(one, ast.Attribute)]
        names += [name for call in ast.walk(node) if isinstance(call, ast.Call) for name in _patched(call)]
        checking = _OF_UNITTEST | (_OF_PYTEST if "pytest" in ast.unparse(node) else frozenset())
        yield from (f"`{name}` is replaced by `{first_line(node)}`" for name in names if name in checking)
    yield from (f"{name} is bound again" for name in _rebound(old, new))
    before, after = dict(functions(old.body)), dict(functions(new.body))
    classes = {node.name for node in old.body if isinstance(node, ast.ClassDef)}
    for name, function in after.items():
        owner = name.rpartition(".")[0]
        if (unreached := _unreached(function)) and name in before and not _unreached(before[name]):
            yield f"{name} ends before `{unreached}`"
        if name.startswith("pytest_") and name not in before:
            yield f"`{name}` is a new hook of pytest"
        if name not in before and owner in classes and function.name in _OF_UNITTEST:
            yield f"`{name}` replaces unittest's own"
        if name == "load_tests" and name not in before and not _uses_given_tests(function):
            yield "`load_tests` is new and leaves out the tests of the file"


def difference(one: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements that only the first has, each as often as it has it more."""
    known = Counter(ast.dump(node) for node in other)
    left = []
    for node in one:
        if known[ast.dump(node)] > 0:
            known[ast.dump(node)] -= 1
        else:
            left.append(node)
    return left


def first_line(node: ast.stmt) -> str:
    return ast.unparse(node).split("\n")[0][:MAX_SHOWN]


def _every(tree: ast.Module) -> list[ast.stmt]:
    """All statements without blocks of their own."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not hasattr(node, "body")]


def _patched(call: ast.Call) -> Iterator[str]:
    """The attributes that a call of setattr or of a patcher replaces."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("setattr", "object", "patch", "__setattr__"):
        texts = (one.value for one in call.args if isinstance(one, ast.Constant))
        yield from (text.rpartition(".")[2] for text in texts if isinstance(text, str))


def _unreached(function: _Function) -> str:
    """The first statement after an unconditional end of a function; empty if there is none.

    A `yield` after the end only makes a generator.
    """
    pairs = zip(function.body, function.body[1:], strict=False)
    ended = (after for node, after in pairs if isinstance(node, ast.Return | ast.Raise))
    return next((first_line(after) for after in ended if ast.unparse(after) != "yield"), "")


def _uses_given_tests(function: _Function) -> bool:
    given = {one.arg for one in function.args.args[1:2]}
    return any(isinstance(node, ast.Name) and node.id in given for node in ast.walk(function))


# Names that are bound again ---------------------------------------------------------------------------


def _rebound(old: ast.Module, new: ast.Module) -> Iterator[str]:
    """The file's own functions, classes and values that it binds once more than before."""
    own = {name for node in old.body for name in _names(node) if not isinstance(node, ast.Import | ast.ImportFrom)}
    defined = {name: ast.dump(node) for node in old.body if isinstance(node, _Definition) for name in _names(node)}
    bound, again = _bindings(old, own), _bindings(new, own)
    yield from (name for name in bound if again[name] > bound[name] and not _reads_the_same(name, old, new))
    kept = {ast.dump(node) for node in new.body}
    for node in difference(new.body, old.body):
        if isinstance(node, ast.For | ast.While | ast.If | ast.With | ast.Try):
            yield from sorted(name for name in _stored(node) if defined.get(name) in kept)
    methods, now = _members(old), _members(new)
    yield from sorted(name for name, times in methods.items() if now[name] > times)


def _bindings(tree: ast.Module, own: set[str]) -> Counter[str]:
    """How often a file defines, assigns or imports these names; overloads belong to the definition after them."""
    found: Counter[str] = Counter()
    overloads: Counter[str] = Counter()
    for node in tree.body:
        for name in own.intersection(_names(node)):
            if _is_overload(node):
                overloads[name] += 1
            else:
                found[name] += 1
                del overloads[name]
    return found + overloads


def _is_overload(node: ast.stmt) -> bool:
    marks = node.decorator_list if isinstance(node, _Function) else []
    return any(ast.unparse(mark).rpartition(".")[2] == "overload" for mark in marks)


def _names(node: ast.stmt) -> list[str]:
    """The names that a simple statement or a definition binds; `_` stands for nothing."""
    if isinstance(node, _Definition):
        found = [node.name]
    elif isinstance(node, ast.Assign):
        found = [one.id for one in node.targets if isinstance(one, ast.Name)]
    elif isinstance(node, ast.AnnAssign):
        found = [node.target.id] if isinstance(node.target, ast.Name) and node.value is not None else []
    elif isinstance(node, ast.Import | ast.ImportFrom):
        found = [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    else:
        found = []
    return [name for name in found if name != "_"]


def _members(tree: ast.Module) -> Counter[str]:
    """How often the methods of the classes of a file are bound: in the class, or as an attribute of it."""
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    methods = {
        f"{owner}.{one.name}" for owner, node in classes.items() for one in node.body if isinstance(one, _Function)
    }
    found = [f"{owner}.{name}" for owner, node in classes.items() for one in node.body for name in _assigned(one)]
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
        found += [ast.unparse(one) for one in targets if isinstance(one, ast.Attribute)]
    return Counter({name: found.count(name) for name in methods})


def _assigned(node: ast.stmt) -> list[str]:
    return _names(node) if isinstance(node, ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom) else []


def _stored(node: ast.stmt) -> set[str]:
    """The names that a block of a file binds, those of its functions left out."""
    found: set[str] = set()
    pending: list[ast.AST] = [node]
    while pending:
        one = pending.pop()
        if isinstance(one, ast.stmt):
            found.update(_names(one))
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            found.add(one.id)
        if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending += ast.iter_child_nodes(one)
    return found


def _reads_the_same(name: str, old: ast.Module, new: ast.Module) -> bool:
    """True if a value is bound again only after all that reads it: `cases = […]` before each test, for example."""
    if name.startswith(_OF_RUNNERS) or not all(_only_assigned(name, tree) for tree in (old, new)):
        return False
    return not _reads(name, old) - _reads(name, new)


def _only_assigned(name: str, tree: ast.Module) -> bool:
    """True if the file binds the name by assignments alone, and no function reads it when it is called."""
    binding = [node for node in tree.body if name in _names(node)]
    called = (inner for node in ast.walk(tree) if isinstance(node, _Function | ast.Lambda) for inner in _body(node))
    return all(isinstance(node, ast.Assign) for node in binding) and not any(_loads(name, node) for node in called)


def _body(node: ast.AST) -> Sequence[ast.AST]:
    return [node.body] if isinstance(node, ast.Lambda) else getattr(node, "body", [])


def _reads(name: str, tree: ast.Module) -> Counter[tuple[str, str]]:
    """The statements of a file that read a name, each with the assignment that counts there."""
    found: Counter[tuple[str, str]] = Counter()
    last = ""
    for node in tree.body:
        if _loads(name, node):
            found[ast.dump(node), last] += 1
        if name in _names(node):
            last = ast.dump(node)
    return found


def _loads(name: str, node: ast.AST) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name and isinstance(one.ctx, ast.Load) for one in ast.walk(node))
