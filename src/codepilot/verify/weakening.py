"""What a change took from existing Python tests: assertions, the conditions under which they hold, and their data.

Source is parsed and compared, function by function; nothing is run.
"""

from __future__ import annotations

import ast
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from codepilot.verify import testcode

MAX_SHOWN = 100
_SWALLOWED = frozenset({"AssertionError", "Exception", "BaseException"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Checked(NamedTuple):
    """One assertion, and what must be true for its failure to be seen."""

    source: str
    guards: tuple[str, ...]


def weakenings(before: bytes, after: bytes) -> list[str]:
    """The ways in which a file of tests checks less than before."""
    old, new = testcode.parsed(before), testcode.parsed(after)
    if old is None or new is None:
        return []
    try:
        return list(dict.fromkeys([*_lost_checks(old, new), *_lost_data(old, new), *_replaced(old, new)]))
    except RecursionError:
        return ["it is nested too deeply to be compared"]


def _lost_checks(old: ast.Module, new: ast.Module) -> Iterator[str]:
    now = dict(_functions(new.body, ""))  # a later definition of the same name replaces an earlier one
    for name, function in dict(_functions(old.body, "")).items():
        if name not in now:
            if not function.name.startswith("test") and _checks(function):
                yield f"{name}, which asserts, was removed"
            continue
        before, after = _checks(function), _checks(now[name])
        sources = Counter(one.source for one in before) - Counter(one.source for one in after)
        yield from (f"{name} no longer has `{source[:MAX_SHOWN]}`" for source in sources)
        for one in Counter(before) - Counter(after):
            if one.source not in sources and (fresh := _new_guards(one, after)):
                yield f"{name}: `{one.source[:MAX_SHOWN]}` is now {fresh}"


def _new_guards(one: Checked, after: Sequence[Checked]) -> str:
    """What is new around an assertion that is still there; empty if it is guarded as before somewhere."""
    same = [other for other in after if other.source == one.source]
    fresh = [Counter(other.guards) - Counter(one.guards) for other in same]
    least = min(fresh, key=lambda guards: guards.total(), default=Counter())
    return ", ".join(least)[:MAX_SHOWN]


def _checks(function: _Function) -> list[Checked]:
    found: list[Checked] = []
    for mark in function.decorator_list:
        rows = mark.args[1] if isinstance(mark, ast.Call) and len(mark.args) > 1 else None
        if isinstance(rows, ast.List | ast.Tuple):
            found += [Checked(ast.unparse(row), ()) for row in rows.elts]
    _walk(function.body, (), found)
    return found


def _walk(body: Sequence[ast.stmt], guards: tuple[str, ...], found: list[Checked]) -> None:
    """Collect the assertions of a block, each with the guards around and before it."""
    for node in body:
        inner = (*guards, *_guard(node))
        own, blocks = _split(node)
        found += [Checked(source, inner) for source in _asserted(own)]
        for block, guard in blocks:
            _walk(block, (*inner, *guard), found)
        if isinstance(node, ast.Return | ast.Raise | ast.Break | ast.Continue):
            guards = (*guards, "after the test has ended")
        elif isinstance(node, ast.If) and any(isinstance(one, ast.Return) for one in ast.walk(node)):
            guards = (*guards, f"only reached unless `{ast.unparse(node.test)}`")


def _split(node: ast.stmt) -> tuple[list[ast.AST], list[tuple[list[ast.stmt], tuple[str, ...]]]]:
    """The expressions of a statement itself, and its blocks, each with what entering it depends on."""
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        return [node.test], [
            (node.body, (f"only checked if `{test}`",)),
            (node.orelse, (f"only checked unless `{test}`",)),
        ]
    if isinstance(node, ast.For | ast.AsyncFor):
        each = (f"checked for each of `{ast.unparse(node.iter)}`",)
        return [node.iter], [(node.body, each), (node.orelse, ())]
    if isinstance(node, ast.While):
        return [node.test], [(node.body, (f"only checked while `{ast.unparse(node.test)}`",)), (node.orelse, ())]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [item.context_expr for item in node.items], [(node.body, ())]
    if isinstance(node, ast.Try | ast.TryStar):
        handlers = [(one.body, ("only checked after an error",)) for one in node.handlers]
        swallowed = ("swallowed if it fails",) if any(map(_swallows, node.handlers)) else ()
        return [], [(node.body, swallowed), *handlers, (node.orelse, ()), (node.finalbody, ())]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [], [(node.body, (f"inside {node.name}",))]
    if isinstance(node, ast.Match):
        return [node.subject], [
            (case.body, (f"only checked in case `{ast.unparse(case.pattern)}`",)) for case in node.cases
        ]
    return [node], []


def _guard(node: ast.stmt) -> tuple[str, ...]:
    if isinstance(node, ast.With | ast.AsyncWith):
        names = " ".join(ast.unparse(item.context_expr) for item in node.items)
        if "suppress" in names and any(error in names for error in _SWALLOWED):
            return ("swallowed if it fails",)
    return ()


def _swallows(handler: ast.ExceptHandler) -> bool:
    """True if a handler takes failed assertions and does not raise them again."""
    named = {"BaseException"} if handler.type is None else {getattr(one, "id", "") for one in ast.walk(handler.type)}
    raised = any(isinstance(one, ast.Raise) for one in ast.walk(handler))
    failed = any("fail" in getattr(one.func, "attr", "") for one in ast.walk(handler) if isinstance(one, ast.Call))
    return bool(named & _SWALLOWED) and not raised and not failed


def _asserted(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The assertions of these nodes as source, without their messages."""
    for node in (inner for one in nodes for inner in ast.walk(one)):
        if isinstance(node, ast.Assert):
            yield f"assert {ast.unparse(node.test)}"
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if testcode.EXPECTING.match(name):
                yield ast.unparse(node)


def _functions(body: Sequence[ast.stmt], prefix: str) -> Iterator[tuple[str, _Function]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")


# The functions that check -----------------------------------------------------------------------------

_OF_UNITTEST = frozenset(name for name in dir(unittest.TestCase) if name.startswith("assert"))
_OF_PYTEST = frozenset({"raises", "warns", "fail", "approx", "deprecated_call"})


def _replaced(old: ast.Module, new: ast.Module) -> Iterator[str]:
    """Functions that check and are bound to something else now, and a loader that leaves out what it is given."""
    for node in _difference(_every(new), _every(old)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = [one.attr for one in targets if isinstance(one, ast.Attribute)]
        names += [name for call in ast.walk(node) if isinstance(call, ast.Call) for name in _patched(call)]
        checking = _OF_UNITTEST | (_OF_PYTEST if "pytest" in ast.unparse(node) else frozenset())
        yield from (f"`{name}` is replaced by `{_line(node)}`" for name in names if name in checking)
    bound, again = _bindings(old), _bindings(new)
    yield from (f"{name} is bound again" for name in bound if again[name] > bound[name])
    before, after = dict(_functions(old.body, "")), dict(_functions(new.body, ""))
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


def _unreached(function: _Function) -> str:
    """The first statement after an unconditional end of a function; empty if there is none."""
    pairs = zip(function.body, function.body[1:], strict=False)
    return next((_line(after) for node, after in pairs if isinstance(node, ast.Return | ast.Raise)), "")


def _bindings(tree: ast.Module) -> Counter[str]:
    """How often a file defines or assigns each of its own names."""
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign):
            found += [one.id for one in node.targets if isinstance(one, ast.Name) and one.id != "_"]
    return Counter(found)


def _every(tree: ast.Module) -> list[ast.stmt]:
    """All statements without blocks of their own."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and not hasattr(node, "body")]


def _patched(call: ast.Call) -> Iterator[str]:
    """The attributes that a call of setattr or of a patcher replaces."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in ("setattr", "object", "patch", "__setattr__"):
        texts = (one.value for one in call.args if isinstance(one, ast.Constant))
        yield from (text.rpartition(".")[2] for text in texts if isinstance(text, str))


def _uses_given_tests(function: _Function) -> bool:
    given = {one.arg for one in function.args.args[1:2]}
    return any(isinstance(node, ast.Name) and node.id in given for node in ast.walk(function))


# The data of tests ----------------------------------------------------------------------------------


def _lost_data(old: ast.Module, new: ast.Module) -> Iterator[str]:
    """Statements whose literals changed, and collections that lost elements, scope by scope."""
    now = dict(_scopes(new, ""))
    for name, scope in dict(_scopes(old, "")).items():
        if name not in now:
            continue
        before, after = _statements(scope), _statements(now[name])
        gone, fresh = _difference(before, after), _difference(after, before)
        for node in gone:
            where = f"{name}: " if name else ""
            alike = [other for other in fresh if _masked(other) == _masked(node)]
            grown = [other for other in fresh if _grown(node, other)]
            if grown:
                fresh.remove(grown[0])
            elif alike:
                fresh.remove(alike[0])
                yield f"{where}`{_line(node)}` became `{_line(alike[0])}`"
            elif (shrunk := _shrinks(node, fresh)) is not None:
                yield f"{where}{shrunk}"


def _scopes(tree: ast.Module, prefix: str) -> Iterator[tuple[str, Sequence[ast.stmt]]]:
    yield "", tree.body
    pending: list[tuple[str, Sequence[ast.stmt]]] = [("", tree.body)]
    while pending:
        above, body = pending.pop()
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield f"{above}{node.name}", node.body
                pending.append((f"{above}{node.name}.", node.body))


def _statements(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The simple statements of a scope, in order, those of its inner blocks included; a loop counts by its head."""
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assert):
            continue
        if isinstance(node, ast.For | ast.AsyncFor):
            found.append(ast.copy_location(ast.Expr(node.iter), node))
        own, blocks = _split(node)
        if not blocks and own and not any(True for _ in _asserted(own)) and not _is_text(node):
            found.append(node)
        for block, _ in blocks:
            found += _statements(block)
    return found


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _difference(one: Sequence[ast.stmt], other: Sequence[ast.stmt]) -> list[ast.stmt]:
    known = Counter(ast.dump(node) for node in other)
    left = []
    for node in one:
        if known[ast.dump(node)] > 0:
            known[ast.dump(node)] -= 1
        else:
            left.append(node)
    return left


class _Masking(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.copy_location(ast.Constant(value=""), node)


def _masked(node: ast.stmt) -> str:
    """A statement without the values of its literals."""
    copied = ast.parse(ast.unparse(node)).body
    return " ".join(ast.dump(_Masking().visit(one)) for one in copied)


def _elements(node: ast.stmt) -> tuple[str, Counter[str]] | None:
    """The name and the elements of a collection that a statement assigns."""
    target = _target(node)
    if target is None or not isinstance(node, ast.Assign | ast.AnnAssign):
        return None
    value = node.value
    if isinstance(value, ast.List | ast.Tuple | ast.Set):
        return target, Counter(ast.unparse(one) for one in value.elts)
    if isinstance(value, ast.Dict):
        pairs = zip(value.keys, value.values, strict=True)
        return target, Counter(f"{ast.unparse(key) if key else '**'}: {ast.unparse(one)}" for key, one in pairs)
    return None


def _grown(node: ast.stmt, other: ast.stmt) -> bool:
    """True if the other statement assigns the same collection with more elements."""
    old, new = _elements(node), _elements(other)
    if old is None or new is None or not old[1]:
        return False
    return old[0] == new[0] and not old[1] - new[1]


def _shrinks(node: ast.stmt, fresh: Sequence[ast.stmt]) -> str | None:
    """What became of the collection that a statement assigns, if it has less or is no longer empty."""
    target = _target(node)
    new = next((found for other in fresh if (found := _elements(other)) is not None and found[0] == target), None)
    if target is None or new is None:
        return None
    old = _elements(node)
    if old is None:
        return None if new[1] else f"{target} is empty now"
    if not old[1]:
        return f"{target} is no longer empty"
    lost = old[1] - new[1]
    return f"{target} lost elements, for example `{next(iter(lost))[:MAX_SHOWN]}`" if lost else None


def _target(node: ast.stmt) -> str | None:
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return None
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _line(node: ast.stmt) -> str:
    return ast.unparse(node).split("\n")[0][:MAX_SHOWN]
