"""Constants of Python code that are fitted to the failing tests: bounds, positions, factors and forgotten inputs.

Such a change spreads beyond the tests' inputs, so calling it on others says nothing about it. The signs are certain.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from codepilot.verify.generality.conditions import ALPHABET
from codepilot.verify.generality.sign import SINGLE_EXAMPLE, PythonChange, Sign, masked, sign
from codepilot.verify.generality.values import UNKNOWN, TestValues, fold, key, shown

ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
SIGNS = frozenset({-1, 0, 1})
"""Bounds that ask for a sign or for emptiness."""
LEAST_POSITION = 3
LEAST_COUNTED = 4
MAX_PATTERN = 1000
LARGE = 100
"""Numbers from here on are hardly next to each other by chance."""
LEAST_DIGITS = 3
LEAST_DECIMALS = 3
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def fitted(change: PythonChange, tests: TestValues) -> Iterator[Sign]:
    """Every constant that the change brings only because the failing test has it, or one next to it."""
    known = _constants(change.old)
    yield from _bounds(change, tests, known)
    yield from _positions(change, tests, known)
    yield from _patterns(change, tests, known)
    yield from _factors(change, tests, known)
    yield from _corrections(change, tests, known)
    yield from _forgotten(change, known)
    yield from _guessed(change)
    for node in change.nodes(ast.Constant):
        value = fold(node)
        near = [one for one in (value - 1, value + 1) if tests.occurs(one)] if type(value) is int else []
        if near and abs(near[0]) >= LARGE and value not in known:
            why = f"holds {shown(value)}, which is next to {shown(near[0])} of the failing test"
            yield sign("copied_literal", change.path, getattr(node, "lineno", 0), why)


def _constants(tree: ast.Module | None) -> frozenset[object]:
    walked = ast.walk(tree) if tree is not None else iter(())
    return frozenset(value for node in walked if key(value := fold(node)) is not None)


def _shapes(tree: ast.Module | None, kind: type[ast.AST]) -> frozenset[str]:
    """The nodes of a kind without the values of their constants: where one stood before, its constant is corrected."""
    walked = ast.walk(tree) if tree is not None else iter(())
    return frozenset(masked(node) for node in walked if isinstance(node, kind))


# Bounds ---------------------------------------------------------------------------------------------


def _bounds(change: PythonChange, tests: TestValues, known: frozenset[object]) -> Iterator[Sign]:
    """Comparisons with a number or letter that lies next to a value of the failing test."""
    before = _shapes(change.old, ast.Compare)
    for node in change.nodes(ast.Compare):
        assert isinstance(node, ast.Compare)
        sides = [node.left, *node.comparators]
        if not all(isinstance(op, ORDERINGS) for op in node.ops) or masked(node) in before:
            continue
        values = [fold(one) for one in sides]
        if all(value is not UNKNOWN for value in values):
            continue
        for value in values:
            near = _near(value, tests) if value not in known else None
            if near is not None and not tests.pinned(value):
                place = "is" if near == value else "is next to"
                why = (
                    f"the new bound {shown(value)} {place} {shown(near)} of the failing test, and no other test pins it"
                )
                yield sign("fitted_bound", change.path, node.lineno, why)


def _near(value: object, tests: TestValues) -> object | None:
    """The value of the failing test that a bound was made for."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        around: Iterable[int | float] = (value, value + 1, value - 1)
        found = (one for one in around if tests.occurs(one) or one in tests.lengths)
        return None if value in SIGNS else next(found, None)
    if isinstance(value, str) and len(value) == 1 and value not in ALPHABET:
        return next(
            (one for one in (value, chr(ord(value) + 1), chr(max(0, ord(value) - 1))) if tests.occurs(one)), None
        )
    return value if tests.copied(value) else None


# Positions ------------------------------------------------------------------------------------------


def _positions(change: PythonChange, tests: TestValues, known: frozenset[object]) -> Iterator[Sign]:
    """Slices that end at the length of a text of the failing test, or of a word of it."""
    before = _shapes(change.old, ast.Slice)
    for node in change.nodes(ast.Slice):
        assert isinstance(node, ast.Slice)
        if masked(node) in before:
            continue
        parts = [part for side in (node.lower, node.upper) if side is not None for part in ast.walk(side)]
        for value in {fold(part) for part in parts if isinstance(part, ast.Constant)} - known:
            if isinstance(value, int) and value >= LEAST_POSITION and value in tests.lengths:
                why = f"cuts at {shown(value)}, the length of a text of the failing test"
                yield sign("fitted_position", change.path, node.lineno, why)


_RUN = re.compile(r"(?:[a-zA-Z]|(?:\\[wS]|\.|\[\^?[a-zA-Z-]+\])\{\d+\})+")
_TIMES = re.compile(r"\{(\d+)\}")
_TIMED = re.compile(r"(?:\\[wS]|\.|\[\^?[a-zA-Z-]+\])\{\d+\}")


def _patterns(change: PythonChange, tests: TestValues, known: frozenset[object]) -> Iterator[Sign]:
    """Patterns that count as many letters as a text of the failing test has, or a word of it."""
    for node in change.nodes(ast.Constant):
        value = fold(node)
        if not isinstance(value, str) or value in known or "{" not in value:
            continue
        for run in _RUN.findall(value[:MAX_PATTERN]):
            counts = [int(times) for times in _TIMES.findall(run)]
            length = len(_TIMED.sub("", run)) + sum(counts)
            if counts and max(counts) >= LEAST_COUNTED and length in tests.lengths:
                why = f"counts {length} letters by {shown(run)}, as a text of the failing test has"
                yield sign("fitted_position", change.path, getattr(node, "lineno", 0), why)


# Factors --------------------------------------------------------------------------------------------


def _factors(change: PythonChange, tests: TestValues, known: frozenset[object]) -> Iterator[Sign]:
    """Fractions of many digits that stand nowhere else: what is left over divided by what is there."""
    for node in change.nodes(ast.Constant):
        assert isinstance(node, ast.Constant)
        value = node.value
        if not isinstance(value, float) or value in known or tests.occurs(value) or change.corrects(node):
            continue
        digits, _, decimals = repr(value).partition(".")
        telling = (digits + decimals).strip("0")
        if len(telling) >= LEAST_DIGITS and len(decimals) >= LEAST_DECIMALS and "e" not in decimals:
            why = f"holds {shown(value)}, a number that stands nowhere else"
            yield sign("fitted_factor", change.path, node.lineno, why)


# Corrections ----------------------------------------------------------------------------------------


def _corrections(change: PythonChange, tests: TestValues, known: frozenset[object]) -> Iterator[Sign]:
    """Constants that are added to results, or multiply them, by just what the failing test's result was off."""
    for node in change.nodes(ast.Constant, ast.Call, ast.BinOp):
        value = fold(node)
        if value not in known and tests.difference(value) and not change.corrects(node):
            why = f"holds {shown(value)}, by which the failing test's result was off"
            yield sign("fitted_correction", change.path, getattr(node, "lineno", 0), why)
    for node in change.nodes(ast.Return, ast.Assign, ast.AugAssign, ast.IfExp):
        parts = {fold(one) for one in ast.walk(node) if isinstance(one, ast.Constant)} - known
        numbers = [one for one in parts if isinstance(one, int | float) and not isinstance(one, bool) and one]
        pairs = [(one, other) for one in numbers for other in numbers if one % other and other % one]
        if found := [pair for pair in pairs if tests.correction(pair[0] / pair[1])]:
            why = f"multiplies by {found[0][0]} / {found[0][1]}, by which the failing test's result was off"
            yield sign("fitted_correction", change.path, getattr(node, "lineno", 0), why)


# Forgotten inputs -----------------------------------------------------------------------------------


def _forgotten(change: PythonChange, known: frozenset[object]) -> Iterator[Sign]:
    """A branch for the inputs that are calculated with elsewhere, whose result depends on a new number instead."""
    for node in change.nodes(ast.If, ast.IfExp):
        function = next((one for one in change.ancestors(node) if isinstance(one, _Function)), None)
        if function is None:
            continue
        given = {one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        test, body = node.test, node.body  # type: ignore[attr-defined]
        results = [body] if isinstance(body, ast.expr) else _returned(body)
        held = _names(body) if isinstance(body, ast.expr) else {name for part in body for name in _names(part)}
        lost = (given & _names(test) & _calculated(change.old, function.name)) - held
        for value in results if lost else ():
            fresh = [one for part in ast.walk(value) if key(one := fold(part)) is not None and one not in known]
            numbers = [one for one in fresh if isinstance(one, int | float) and one not in SIGNS]
            if numbers and not isinstance(value, ast.Constant):
                why = f"the result for `{ast.unparse(test)}` comes from {shown(numbers[0])} and not from {min(lost)}"
                yield sign("forgotten_input", change.path, getattr(node, "lineno", 0), why)


def _guessed(change: PythonChange) -> Iterator[Sign]:
    """A number to calculate with: where the tests hold one example, others would do."""
    for node in change.nodes(ast.BinOp, ast.AugAssign):
        parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]  # type: ignore[attr-defined]
        numbers = [value for value in map(fold, parts) if type(value) in (int, float)]
        within = any(isinstance(one, _Function) for one in change.ancestors(node))
        if len(numbers) == 1 and within and not change.corrects(node):
            why = f"calculates with {shown(numbers[0])}, and the tests call the function with one input only"
            yield sign(SINGLE_EXAMPLE, change.path, getattr(node, "lineno", 0), why, weak=True)


def _returned(body: list[ast.stmt]) -> list[ast.expr]:
    """What the statements return."""
    found = (one.value for part in body for one in ast.walk(part) if isinstance(one, ast.Return))
    return [value for value in found if value is not None]


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _calculated(tree: ast.Module | None, name: str) -> set[str]:
    """The names that a function of the base calculates with."""
    walked = ast.walk(tree) if tree is not None else iter(())
    functions = (one for one in walked if isinstance(one, _Function) and one.name == name)
    return {
        found
        for function in functions
        for part in ast.walk(function)
        if isinstance(part, ast.BinOp)
        for found in _names(part)
    }
