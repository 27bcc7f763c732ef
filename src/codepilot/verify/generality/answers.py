"""Answers and tables in Python code that hold the values of the failing tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codepilot.verify.generality.conditions import names_a_kind
from codepilot.verify.generality.nodes import Function, called, flat, other_value, owner_of
from codepilot.verify.generality.sign import PythonChange, Sign, sign
from codepilot.verify.generality.values import TestValues, fold, key, shown

DECODERS = frozenset(
    {"b64decode", "b32decode", "b16decode", "a85decode", "b85decode", "unhexlify", "fromhex", "decompress", "decode"}
    | {"loads", "literal_eval", "eval", "exec", "compile", "__import__", "from_bytes", "maketrans"}
)
"""Calls that turn one constant into another."""
CHANGING_CALLS = frozenset({"get", "setdefault", "append", "add", "extend", "insert", "replace", "sub", "pop", "next"})
"""Calls whose constant arguments end up in results."""
COMMON_NUMBERS = frozenset(
    {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 24, 26, 30, 31, 32, 60, 64, 90, 100, 127, 128, 180, 255, 256, 360, 365}
    | {366, 400, 1000, 1024, 3600, 0.5, 0.1}
)
"""Numbers that say nothing by themselves; in a condition or as an answer they do."""
MAX_PATTERN = 1000
SPECIAL = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\(\?(?:P?<\w+>|\w+)?")
"""What a regular expression does not spell out: escapes, classes, names and flags."""


def answer_signs(change: PythonChange, tests: TestValues, names: dict[str, object]) -> Iterator[Sign]:
    """Results, literals and tables with the tests' values; `names` are the constants that the change binds."""
    yield from _answers(change, tests, names)
    yield from _tables(change, tests, names)
    yield from _single_rows(change)
    yield from _hidden(change)


def _answers(change: PythonChange, tests: TestValues, names: dict[str, object]) -> Iterator[Sign]:
    for place, value in _results(change):
        held = flat(fold(value, names))
        copied = [one for one in held if tests.copied(one)]
        if not copied or not all(tests.occurs(one) or key(one) is None for one in held):
            continue
        if isinstance(place, ast.Assign | ast.AnnAssign) and change.corrects(value):
            continue
        guard = _guard(change, place)
        certain = guard is not None and any(tests.copied(one) for one in _compared(guard, names))
        blind = isinstance(place, ast.Return) and _ignores_its_input(change, place)
        why = f"answers {shown(copied[0])}, a value of the failing test"
        if certain or blind:
            why += ", without using its input" if blind else " for an input of that test"
        variants = change.without(value, "None")
        yield sign("copied_answer", change.path, value.lineno, why, certain=certain or blind, variants=variants)
    for node in change.nodes(ast.Constant):
        assert isinstance(node, ast.Constant)
        if names_a_kind(change, change.parents.get(node), tests):
            continue
        if tests.copied(node.value) and _distinctive(node.value) and not change.corrects(node):
            why = f"holds {shown(node.value)}, a value of the failing test"
            yield _literal(change, node, why)
        elif tests.fragment(node.value) and not _is_part_of_a_name(change, node):
            yield _literal(change, node, f"holds {shown(node.value)}, a part of a value of the failing test")
        elif words := [one for one in _pattern_words(change, node) if tests.contains(one)]:
            why = f"looks for {shown(words[0])}, a part of a value of the failing test"
            yield sign("copied_literal", change.path, node.lineno, why, certain=False)
        elif tests.correction(node.value) and not change.corrects(node):
            yield _literal(change, node, f"holds {shown(node.value)}, by which the failing test's result was off")


def _pattern_words(change: PythonChange, node: ast.Constant) -> list[str]:
    """The words that a regular expression spells out, without those of the base."""
    above = change.parents.get(node)
    if not isinstance(node.value, str) or not isinstance(above, ast.Call) or above.args[:1] != [node]:
        return []
    if not isinstance(above.func, ast.Attribute) or getattr(above.func.value, "id", "") not in ("re", "regex"):
        return []
    before = (change.file.before or b"").decode("utf-8", "replace")
    return [
        word for word in re.findall(r"[^\W\d_]{3,}", SPECIAL.sub(" ", node.value[:MAX_PATTERN])) if word not in before
    ]


def _literal(change: PythonChange, node: ast.Constant, why: str) -> Sign:
    variants = change.without(node, other_value(node.value))
    return sign("copied_literal", change.path, node.lineno, why, certain=False, variants=variants)


def _is_part_of_a_name(change: PythonChange, node: ast.AST) -> bool:
    return isinstance(change.parents.get(node), ast.Expr)


def _results(change: PythonChange) -> Iterator[tuple[ast.AST, ast.expr]]:
    """The expressions of the change that may become results, each with the node that it belongs to."""
    for node in ast.walk(change.tree):
        values: list[ast.expr | None] = []
        match node:
            case ast.Return() | ast.Yield() | ast.Assign() | ast.AnnAssign():
                values = [node.value]
            case ast.IfExp():
                values = [node.body, node.orelse]
            case ast.Lambda():
                values = [node.body]
            case ast.BoolOp():
                values = [*node.values]
            case ast.Call() if called(node) in CHANGING_CALLS:
                values = [*node.args, *(one.value for one in node.keywords)]
            case ast.arguments():
                values = [*node.defaults, *node.kw_defaults]
            case _:
                continue
        yield from ((node, one) for one in values if one is not None and (change.fresh(one) or change.fresh(node)))


def _guard(change: PythonChange, node: ast.AST) -> ast.AST | None:
    """The condition nearest above a node, within its function."""
    if isinstance(node, ast.IfExp):
        return node.test
    for above in change.ancestors(node):
        if isinstance(above, Function | ast.Lambda | ast.Module):
            return None
        if isinstance(above, ast.If | ast.IfExp | ast.While):
            return above.test
        if isinstance(above, ast.match_case):
            return above.pattern
    return None


def _compared(guard: ast.AST, names: dict[str, object]) -> Iterator[object]:
    for part in ast.walk(guard):
        if isinstance(part, ast.expr):
            yield from flat(fold(part, names))
        elif isinstance(part, ast.MatchValue):
            yield from flat(fold(part.value, names))


def _ignores_its_input(change: PythonChange, node: ast.AST) -> bool:
    """True if the function of a return statement takes parameters and uses none of them, and none before."""
    function = next((one for one in change.ancestors(node) if isinstance(one, Function)), None)
    if function is None:
        return False
    given = function.args
    names = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)} - {"self", "cls"}
    used = {one.id for one in ast.walk(function) if isinstance(one, ast.Name)}
    return bool(names) and not names & used


def _distinctive(value: object) -> bool:
    """True for values that are hardly shared by chance."""
    if isinstance(value, str | bytes):
        return len(value.strip()) > 1
    return value not in COMMON_NUMBERS


# Tables and hidden values ---------------------------------------------------------------------------


def _tables(change: PythonChange, tests: TestValues, names: dict[str, object]) -> Iterator[Sign]:
    for node in ast.walk(change.tree):
        for first, second in _entries(node):
            if not (change.fresh(first) or change.fresh(second) or change.fresh(node)) or change.corrects(node):
                continue
            keys, answers = (flat(fold(one, names)) for one in (first, second))
            if not keys or not all(tests.occurs(one) or key(one) is None for one in keys):
                continue
            copied = [one for one in (*keys, *answers) if tests.copied(one)]
            if copied and answers and all(tests.occurs(one) or key(one) is None for one in answers):
                why = f"a table maps {shown(keys[0])} to {shown(answers[0])}, both values of the failing test"
            elif any(tests.copied(one) for one in keys):
                why = f"a table is keyed on {shown(keys[0])}, a value of the failing test"
            else:
                continue
            line, variants = getattr(first, "lineno", 0), change.without(first, other_value(""))
            yield sign("copied_lookup", change.path, line, why, certain=False, variants=variants)


def _single_rows(change: PythonChange) -> Iterator[Sign]:
    """Tables with one row, which are conditions."""
    for node in change.nodes(ast.Dict):
        assert isinstance(node, ast.Dict)
        above = change.parents.get(node)
        looked_up = isinstance(above, ast.Subscript | ast.Attribute) and above.value is node
        if looked_up and len(node.keys) == 1 and node.keys[0] is not None:
            why = f"a table has one row, for {ast.unparse(node.keys[0])[:40]}"
            yield sign("single_row", change.path, node.lineno, why)


def _entries(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The pairs of a table: of a dictionary, of pairs in a list, or set one by one."""
    match node:
        case ast.Dict():
            yield from ((one, other) for one, other in zip(node.keys, node.values, strict=True) if one is not None)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            pairs = (one for one in items if isinstance(one, ast.Tuple | ast.List) and len(one.elts) >= 2)
            yield from ((one.elts[0], one.elts[-1]) for one in pairs)
        case ast.Assign(targets=[ast.Subscript(slice=index)], value=value):
            yield index, value


def _hidden(change: PythonChange) -> Iterator[Sign]:
    """Constants that are decoded into other constants."""
    for node in change.nodes(ast.Call):
        assert isinstance(node, ast.Call)
        given = [*node.args, *owner_of(node)]
        name = called(node)
        pattern = name == "compile" and isinstance(node.func, ast.Attribute)
        if name in DECODERS and not pattern and any(isinstance(fold(one), str | bytes) for one in given):
            why = f"`{name}` turns a constant into something that cannot be read here"
            yield sign("hidden_value", change.path, node.lineno, why, certain=name not in ("loads", "decode"))
