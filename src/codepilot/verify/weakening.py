"""What a change took from existing Python tests: assertions, the conditions under which they hold, and their data.

Source is parsed and compared, function by function; nothing is run.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from codepilot.verify import testcode
from codepilot.verify.replaced import difference, first_line, replaced

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
    for node in (one for tree in (old, new) for one in ast.walk(tree) if isinstance(one, ast.Constant)):
        node.kind = None  # u"" says no more than ""
    try:
        return list(dict.fromkeys([*_lost_checks(old, new), *_lost_data(old, new), *replaced(old, new)]))
    except RecursionError:
        return ["it is nested too deeply to be compared"]


def _lost_checks(old: ast.Module, new: ast.Module) -> Iterator[str]:
    now = dict(testcode.functions(new.body))  # a later definition of the same name replaces an earlier one
    known = dict(testcode.functions(old.body))
    added = {name: node for name, node in now.items() if name not in known and node.name.startswith("test")}
    for name, function in known.items():
        if name not in now:
            if not function.name.startswith("test") and _checks(function):
                yield f"{name}, which asserts, was removed"
            continue
        before, after = _checks(function), _checks(now[name])
        sources = Counter(one.source for one in before) - Counter(one.source for one in after)
        fresh = Counter(one.source for one in after) - Counter(one.source for one in before)
        near = [node for other, node in added.items() if other.rpartition(".")[0] == name.rpartition(".")[0]]
        sources = Counter(
            {
                source: times
                for source, times in _taken_over(sources, [*fresh.elements()]).items()
                if not any(_moved(source, function, node) for node in near)
            }
        )
        yield from (f"{name} no longer has `{source[:MAX_SHOWN]}`" for source in sources)
        for one in Counter(before) - Counter(after):
            if one.source not in sources and (guards := _new_guards(one, after)):
                yield f"{name}: `{one.source[:MAX_SHOWN]}` is now {guards}"


def _taken_over(lost: Counter[str], fresh: list[str]) -> Counter[str]:
    """The lost assertions for which no stricter one of the same came."""
    left: Counter[str] = Counter()
    for source in lost.elements():
        stricter = next((one for one in fresh if _is_stricter(source, one)), None)
        if stricter is None:
            left[source] += 1
        else:
            fresh.remove(stricter)
    return left


def _moved(source: str, function: _Function, test: _Function) -> bool:
    """True if an assertion that depends on no local name is now in a test of its own."""
    if test.decorator_list or Checked(source, ()) not in _checks(test):
        return False
    names = {one.id for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Name)} - {"self"}
    return not names & (_locals(function) | _locals(test))


def _locals(function: _Function) -> set[str]:
    """The names that a function binds."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return found - {"self"}


def _is_stricter(source: str, other: str) -> bool:
    """True if the other one expects the same error, and more of it: its message, or fewer kinds of it."""
    old, new = (ast.parse(one, mode="eval").body if not one.startswith("assert ") else None for one in (source, other))
    if not isinstance(old, ast.Call) or not isinstance(new, ast.Call) or not old.args or not new.args:
        return False
    name, now = (ast.unparse(one.func) for one in (old, new))
    rest = [ast.unparse(one) for one in (*old.args[1:], *old.keywords)]
    more = [ast.unparse(one) for one in (*new.args[1:], *new.keywords)]
    extra = [one for one in more if one not in rest]
    if not name.endswith(("raises", "warns", "assertRaises", "assertWarns")) or not set(rest) <= set(more):
        return False
    if not _kinds(new.args[0]) <= _kinds(old.args[0]):
        return False
    if now == f"{name}Regex":
        return not rest and len(extra) == 1
    return now == name and all(one.startswith("match=") for one in extra)


def _kinds(errors: ast.expr) -> set[str]:
    elements = errors.elts if isinstance(errors, ast.Tuple) and errors.elts else [errors]
    return {ast.unparse(one) for one in elements}


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
        elif isinstance(node, ast.If) and _leaves([node]):
            guards = (*guards, f"only reached unless `{ast.unparse(node.test)}`")


def _leaves(body: Sequence[ast.stmt], *, in_loop: bool = False) -> bool:
    """True if a block may end its function, or the round of the loop around it."""
    for node in body:
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break | ast.Continue) and not in_loop):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        inner = in_loop or isinstance(node, ast.For | ast.AsyncFor | ast.While)
        blocks = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
        blocks += [one.body for one in (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))]
        if any(_leaves(block, in_loop=inner) for block in blocks):
            return True
    return False


def _split(node: ast.stmt) -> tuple[list[ast.AST], list[tuple[list[ast.stmt], tuple[str, ...]]]]:
    """The expressions of a statement itself, and its blocks, each with what entering it depends on."""
    if isinstance(node, ast.If):
        test = ast.unparse(node.test)
        return [node.test], [
            (node.body, (f"only checked if `{test}`",)),
            (node.orelse, (f"only checked unless `{test}`",)),
        ]
    if isinstance(node, ast.For | ast.AsyncFor):
        each = () if _is_never_empty(node.iter) else (f"checked for each of `{ast.unparse(node.iter)}`",)
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


def _is_never_empty(rows: ast.expr) -> bool:
    """True for the rows of a loop that are written out, or a range up to a number."""
    if isinstance(rows, ast.List | ast.Tuple | ast.Set):
        return any(not isinstance(one, ast.Starred) for one in rows.elts)
    named = rows.func.id if isinstance(rows, ast.Call) and isinstance(rows.func, ast.Name) else ""
    given = rows.args if isinstance(rows, ast.Call) else []
    if named == "range" and len(given) == 1 and isinstance(given[0], ast.Constant):
        return isinstance(given[0].value, int) and given[0].value > 0
    return named == "enumerate" and bool(given) and _is_never_empty(given[0])


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
                yield _asserted_call(node)


_RENAMED = {
    "assertEquals": "assertEqual",
    "assertNotEquals": "assertNotEqual",
    "assertAlmostEquals": "assertAlmostEqual",
    "assertItemsEqual": "assertCountEqual",
    "assertRegexpMatches": "assertRegex",
    "assertRaisesRegexp": "assertRaisesRegex",
    "assert_": "assertTrue",
}


def _asserted_call(call: ast.Call) -> str:
    """A call that asserts, by the present name of unittest's method and without its message."""
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in _RENAMED:
        function = ast.Attribute(function.value, _RENAMED[function.attr], function.ctx)
    return ast.unparse(ast.Call(function, call.args, [one for one in call.keywords if one.arg != "msg"]))


# The data of tests ----------------------------------------------------------------------------------


def _lost_data(old: ast.Module, new: ast.Module) -> Iterator[str]:
    """Statements whose literals changed, and collections that lost elements, scope by scope."""
    now = dict(_scopes(new, ""))
    for name, scope in dict(_scopes(old, "")).items():
        if name not in now:
            continue
        before, after = _statements(scope), _statements(now[name])
        gone, fresh = difference(before, after), difference(after, before)
        for node in gone:
            where = f"{name}: " if name else ""
            alike = [other for other in fresh if _masked(other) == _masked(node)]
            grown = [other for other in fresh if _grown(node, other)]
            if grown:
                fresh.remove(grown[0])
            elif alike:
                fresh.remove(alike[0])
                yield f"{where}`{first_line(node)}` became `{first_line(alike[0])}`"
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
