"""Conditions in Python code that single out values, or hold those of the failing tests."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from codepilot.verify.generality.nodes import called, flat, other_value, owner_of
from codepilot.verify.generality.sign import PythonChange, Sign, sign
from codepilot.verify.generality.values import UNKNOWN, TestValues, fold, key, natural, shown

EQUALITIES = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
MEMBERSHIPS = (ast.In, ast.NotIn)
ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
COMPARING_CALLS = frozenset(
    {"startswith", "endswith", "match", "fullmatch", "search", "fnmatch", "fnmatchcase", "__eq__", "__contains__"}
    | {"eq", "is_", "issuperset", "issubset", "equals", "isclose", "index", "removeprefix", "removesuffix"}
)
FINGERPRINTS = frozenset(
    {"hash", "id", "crc32", "adler32", "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "blake2s"}
    | {"hexdigest", "digest"}
)
KINDS = frozenset({"__name__", "__module__", "name", "platform", "kind", "type", "mode", "status", "state"})
"""Attributes that are compared with words."""
NARROW = 4
"""The width of a range of numbers that singles one out."""
ALPHABET = frozenset("azAZ09")
"""The ends of ranges of characters."""


def condition_signs(change: PythonChange, tests: TestValues, names: dict[str, object]) -> Iterator[Sign]:
    """Conditions that are true for a few values only; `names` are the constants that the change binds."""
    yield from _computed(change)
    yield from _conditions(change, tests, names)
    yield from _patterns(change, tests, names)
    yield from _branches(change, names)


def _computed(change: PythonChange) -> Iterator[Sign]:
    """Comparisons with a constant that is calculated in place of being written."""
    known = _globals(change.tree)
    bound = {
        target.id
        for node in change.nodes(ast.Assign)
        if _is_computed(node.value, known)  # type: ignore[attr-defined]
        for target in node.targets  # type: ignore[attr-defined]
        if isinstance(target, ast.Name)
    }
    for node in change.nodes(ast.Compare, ast.MatchValue):
        parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else [node.value]  # type: ignore[attr-defined]
        if isinstance(node, ast.Compare) and not all(isinstance(op, EQUALITIES[:2] + MEMBERSHIPS) for op in node.ops):
            continue
        held = [one for one in parts if _is_computed(one, known) or (isinstance(one, ast.Name) and one.id in bound)]
        if held and len(held) < len(parts) + isinstance(node, ast.MatchValue):
            why = f"compares with a constant that is calculated: `{ast.unparse(held[0])[:60]}`"
            yield _condition(change, node, why)


def _globals(tree: ast.Module) -> frozenset[str]:
    """The names that every function of a file sees: those of builtins, imports and assignments at the top."""
    found = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return frozenset(found)


def _is_computed(node: ast.expr, known: frozenset[str]) -> bool:
    """True for a calculation whose result cannot be read here and that depends on no argument."""
    if fold(node) is not UNKNOWN or not any(isinstance(one, ast.Call | ast.BinOp) for one in ast.walk(node)):
        return False
    names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
    own = {one.id for one in names if isinstance(one.ctx, ast.Store)}
    own |= {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}
    return all(one.id in known or one.id in own for one in names)


def _conditions(change: PythonChange, tests: TestValues, names: dict[str, object]) -> Iterator[Sign]:
    for node in change.nodes(ast.Compare):
        assert isinstance(node, ast.Compare)
        yield from _comparison(change, node, tests, names)
    for node in change.nodes(ast.BoolOp):
        assert isinstance(node, ast.BoolOp)
        parts = [one for one in node.values if isinstance(one, ast.Compare)]
        if isinstance(node.op, ast.And) and (why := _narrow(parts, names)):
            yield _condition(change, node, why)
    for node in change.nodes(ast.Call):
        assert isinstance(node, ast.Call)
        if called(node) in COMPARING_CALLS:
            held = [value for one in (*node.args, *owner_of(node)) for value in flat(fold(one, names))]
            if copied := [value for value in held if tests.copied(value)]:
                yield _condition(change, node, f"compares with {shown(copied[0])}, a value of the failing test")
    for node in change.nodes(ast.If, ast.IfExp, ast.While):
        test = node.test  # type: ignore[attr-defined]
        if copied := _differences(test, tests, names):
            yield _condition(change, test, f"is decided by a difference from {shown(copied[0])}, a value of the test")


def _comparison(change: PythonChange, node: ast.Compare, tests: TestValues, names: dict[str, object]) -> Iterator[Sign]:
    operands = [node.left, *node.comparators]
    values = [fold(one, names) for one in operands]
    others = [one for one, value in zip(operands, values, strict=True) if value is UNKNOWN]
    held = [one for value in values for one in flat(value)]
    if any(called(part) in FINGERPRINTS for one in others for part in ast.walk(one)) and held:
        yield sign("hidden_condition", change.path, node.lineno, "compares a fingerprint of a value with a constant")
        return
    if not others:
        return
    if all(isinstance(op, EQUALITIES + MEMBERSHIPS) for op in node.ops):
        held += [one for other in others for one in _counted(other, names)]
        yield from _equality(change, node, others, held, tests)
    elif why := _narrow([node], names):
        yield _condition(change, node, why)
    elif letters := [one for one in held if _is_letter(one) and one not in ALPHABET]:
        why = f"divides texts at {shown(letters[0])}"
        yield sign("pinned_condition", change.path, node.lineno, why, certain=False, variants=_neither(change, node))
    if copied := [one for other in others for one in _differences(other, tests, names)]:
        yield _condition(change, node, f"compares a difference from {shown(copied[0])}, a value of the failing test")


def _equality(
    change: PythonChange, node: ast.Compare, others: list[ast.expr], held: list[object], tests: TestValues
) -> Iterator[Sign]:
    copied = [one for one in held if tests.copied(one)]
    if copied and names_a_kind(change, node, tests):
        return
    if copied and not _compared_before(change, node, held):
        yield _condition(change, node, f"compares with {shown(copied[0])}, a value of the failing test")
        return
    plain = all(isinstance(one, ast.Name | ast.Attribute | ast.Subscript) for one in others)
    first = [one for one in held if tests.occurs(one) and isinstance(one, int | float) and one]
    if first and plain and not isinstance(node.ops[0], ast.NotEq):
        yield _condition(change, node, f"singles out {shown(first[0])}, a value of the failing test")
        return
    pinned = [one for one in held if _is_letter(one) or ((found := key(one)) is not None and not natural(found))]
    if pinned and not _tests_a_kind(change, others) and not _compared_before(change, node, held):
        why = f"is true only for {shown(pinned[0])}"
        yield sign("pinned_condition", change.path, node.lineno, why, certain=False, variants=_neither(change, node))


def _compared_before(change: PythonChange, node: ast.Compare, held: list[object]) -> bool:
    """True if the file compared with the same texts before: the change asks more or less of the other side."""
    texts = [one for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    written = {one.value for one in texts}
    return bool(texts) and all(one in written for one in held) and not any(map(change.fresh, texts))


def names_a_kind(change: PythonChange, node: ast.AST | None, tests: TestValues) -> bool:
    """True where an attribute that the base compares with words is compared with one that other tests know too."""
    match node:
        case ast.Compare(left=ast.Attribute(attr=name), comparators=[ast.Constant(value=str() as word)]):
            return name in _kinds(change, worded=True) and key(word) in tests.others
    return False


def _kinds(change: PythonChange, *, worded: bool = False) -> set[str]:
    """The attributes that the base compares, or compares with words."""
    walked = ast.walk(change.old) if change.old is not None else iter(())
    compared = [one for one in walked if isinstance(one, ast.Compare) and isinstance(one.left, ast.Attribute)]
    found = [one for one in compared if not worded or isinstance(fold(one.comparators[0]), str)]
    return {one.left.attr for one in found if isinstance(one.left, ast.Attribute)}


def _is_letter(value: object) -> bool:
    return isinstance(value, str) and len(value) == 1 and value.isalnum()


def _tests_a_kind(change: PythonChange, others: list[ast.expr]) -> bool:
    """True where the other side is the name of a type or a state, which constants describe, also in the base."""
    known = _kinds(change)
    return all(isinstance(one, ast.Attribute) and (one.attr in KINDS or one.attr in known) for one in others)


def _counted(node: ast.AST, names: dict[str, object]) -> Iterator[object]:
    """The numbers in a range or in a set that is made on the spot."""
    if isinstance(node, ast.Call) and called(node) == "range":
        bounds = [fold(one, names) for one in node.args]
        if bounds and all(isinstance(one, int) for one in bounds):
            yield from _few(*(one for one in bounds[:3] if isinstance(one, int)))
    if isinstance(node, ast.Dict):
        yield from (value for one in node.keys if one is not None for value in flat(fold(one, names)))


def _few(first: int, last: int | None = None, step: int = 1) -> range:
    """The first numbers of a range."""
    return (range(first) if last is None else range(first, last, step or 1))[:NARROW]


def _narrow(parts: list[ast.Compare], names: dict[str, object]) -> str:
    """Why the comparisons leave only a few numbers; empty if they do not."""
    lows: dict[str, float] = {}
    highs: dict[str, float] = {}
    for part in parts:
        operands = [part.left, *part.comparators]
        for left, op, right in zip(operands, part.ops, operands[1:], strict=False):
            before, after = fold(left, names), fold(right, names)
            upward = isinstance(op, ast.Lt | ast.LtE)
            if not isinstance(op, ORDERINGS):
                continue
            if isinstance(after, int | float) and before is UNKNOWN:
                (highs if upward else lows)[ast.dump(left)] = after
            elif isinstance(before, int | float) and after is UNKNOWN:
                (lows if upward else highs)[ast.dump(right)] = before
    for one, low in lows.items():
        if one in highs and 0 <= highs[one] - low <= NARROW:
            return f"is true only between {low} and {highs[one]}"
    return ""


def _differences(node: ast.AST, tests: TestValues, names: dict[str, object]) -> list[object]:
    """The values of the tests that something is compared with by arithmetic: `x - 8`, `x ^ 8`."""
    parts = (part for part in ast.walk(node) if isinstance(part, ast.BinOp))
    sides = (
        value
        for part in parts
        if isinstance(part.op, ast.Sub | ast.BitXor)
        for value in (fold(part.left, names), fold(part.right, names))
    )
    return [value for value in sides if value is not UNKNOWN and tests.copied(value)]


def _condition(change: PythonChange, node: ast.AST, why: str) -> Sign:
    line = getattr(node, "lineno", 0)
    variants = _neither(change, node)
    return sign("copied_condition", change.path, line, f"a new condition {why}", certain=False, variants=variants)


def _neither(change: PythonChange, node: ast.AST) -> tuple[str, ...]:
    """The file with a condition that never holds, and with one that always holds."""
    if isinstance(node, ast.MatchValue):
        return change.without(node.value, other_value(fold(node.value)))
    return change.without(node, "False", "True")


def _branches(change: PythonChange, names: dict[str, object]) -> Iterator[Sign]:
    """New branches, except those for nothing, an empty value, zero or another type."""
    if change.counted(ast.If, ast.IfExp) <= 0:
        return
    for node in change.nodes(ast.If, ast.IfExp):
        test = node.test  # type: ignore[attr-defined]
        if change.fresh(test) and not _natural_guard(change, test, names):
            why = "a new branch matters only for the inputs of the failing test"
            variants = change.without(test, "False")
            yield sign("special_branch", change.path, getattr(node, "lineno", 0), why, weak=True, variants=variants)


def _natural_guard(change: PythonChange, test: ast.AST, names: dict[str, object]) -> bool:
    match test:
        case ast.Name() | ast.Attribute() | ast.UnaryOp(op=ast.Not()):
            return True
        case ast.BoolOp(values=values):
            return all(_natural_guard(change, one, names) for one in values)
        case ast.Call():
            return called(test) in ("isinstance", "issubclass", "callable", "hasattr", "any", "all", "bool")
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            sides = [one for one in (fold(left, names), fold(right, names)) if one is not UNKNOWN]
            empty = not sides or any(one is None or one in (0, "", b"", ()) for one in sides)
            words = isinstance(fold(right, names), str) and _tests_a_kind(change, [left])
            return empty or words or isinstance(op, (*ORDERINGS, *MEMBERSHIPS, ast.Is, ast.IsNot))
    return False


def _patterns(change: PythonChange, tests: TestValues, names: dict[str, object]) -> Iterator[Sign]:
    for node in change.nodes(ast.MatchValue):
        value = fold(node.value, names)  # type: ignore[attr-defined]
        if (found := key(value)) is None:
            continue
        if tests.occurs(value):
            yield _condition(change, node, f"matches {shown(value)}, a value of the failing test")
        elif not natural(found):
            why = f"matches only {shown(value)}"
            line = getattr(node, "lineno", 0)
            yield sign("pinned_condition", change.path, line, why, certain=False, variants=_neither(change, node))
