"""Python code that replaces its judges: other modules' parts, hooks of the test runner, comparisons, test helpers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from codepilot.verify.generality.nodes import Function, called, named
from codepilot.verify.generality.sign import PythonChange, Sign, sign
from codepilot.verify.generality.values import UNKNOWN, TestValues, fold

COMPARISONS = frozenset(
    {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__", "__bool__", "__contains__"}
)
SHADOWED = COMPARISONS | {"__sub__", "__rsub__", "__round__", "__abs__", "__float__", "__int__", "__len__", "__iter__"}
"""Methods through which a test looks at a value of a plain type."""
DECEIVING = frozenset({"__instancecheck__", "__subclasscheck__", "__subclasshook__", "__class__"})
"""Members by which a value claims to be of another type."""
PLAIN = frozenset(
    {"str", "int", "float", "complex", "list", "dict", "tuple", "set", "frozenset", "bytes", "bool", "UserString"}
    | {"UserList", "UserDict", "OrderedDict", "defaultdict", "Counter", "deque", "Decimal", "Fraction", "date"}
    | {"datetime", "timedelta", "Path", "PurePath"}
)
ACCESSORS = frozenset({"items", "keys", "values", "get", "__getitem__", "__str__", "__repr__", "__format__"})
"""Further methods through which a test looks at a value of such a type."""
HELPER = re.compile(
    r"(?:^|[/_.])(?:testing|test_?utils?|test_?helpers?|test_?support|asserts?|assertions?|fixtures?|mocks?|fakes?)(?:[/_.]|$)"
)
ASSERTING = re.compile(r"^_?(?:assert|expect_|should_|verify_)", re.IGNORECASE)


def judge_signs(change: PythonChange, tests: TestValues) -> Iterator[Sign]:
    """What the change replaces of that by which it is judged."""
    yield from _replaced(change)
    yield from _weak_equality(change, tests)
    yield from _helpers(change, tests)


def _replaced(change: PythonChange) -> Iterator[Sign]:
    """Assignments to things that other modules own."""
    imported = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(change.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        alias.asname or alias.name
        for node in ast.walk(change.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    imported |= _further_names(change.tree, imported)
    for node in change.nodes(ast.Attribute, ast.Subscript):
        if not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            continue
        name = _root(node)
        if name in imported or name in ("__builtins__", "builtins"):
            why = f"the change assigns to a part of `{name}`, which is not its own"
            yield sign("monkeypatch", change.path, getattr(node, "lineno", 0), why)
    for node in change.nodes(ast.Call):
        assert isinstance(node, ast.Call)
        if called(node) in ("setattr", "delattr", "__setattr__") and node.args:
            owner = _root(node.args[0])
            if owner in imported:
                why = f"the change sets an attribute of `{owner}`, which is not its own"
                yield sign("monkeypatch", change.path, node.lineno, why)
        if called(node) in ("globals", "vars", "locals") and _assigns(change, node):
            yield sign("monkeypatch", change.path, node.lineno, "the change writes into a namespace", certain=False)
        if called(node) in ("MagicMock", "Mock", "patch", "install_import_hook"):
            yield sign("monkeypatch", change.path, node.lineno, f"the code is built with `{called(node)}`")
    for node in change.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        name = getattr(node, "name", "")
        if name.startswith("pytest_") or name in ("load_tests", "setUpModule", "tearDownModule"):
            why = f"`{name}` is a hook of the test runner"
            yield sign("runner_hook", change.path, getattr(node, "lineno", 0), why)
    for node in change.nodes(ast.Assign):
        if any(
            named(one) in ("pytest_plugins", "__test__", "collect_ignore", "collect_ignore_glob", "pytestmark")
            for one in getattr(node, "targets", ())
        ):
            yield sign(
                "runner_hook", change.path, getattr(node, "lineno", 0), "the change sets an option of the test runner"
            )


def _further_names(tree: ast.Module, imported: set[str]) -> set[str]:
    """Names that a file's top level gives to parts of what it imports."""
    found: set[str] = set()
    for node in tree.body:
        target = node.target if isinstance(node, ast.For) else None
        value = node.iter if isinstance(node, ast.For) else None
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        values = value.elts if isinstance(value, ast.Tuple | ast.List) else [value] if value is not None else []
        parts = [one for one in values if isinstance(one, ast.Name | ast.Attribute)]
        if isinstance(target, ast.Name) and any(_root(one) in imported | found for one in parts):
            found.add(target.id)
    return found


def _root(node: ast.AST) -> str:
    """The name at the beginning of a chain of attributes, items and calls."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return named(node)


def _assigns(change: PythonChange, node: ast.AST) -> bool:
    return any(isinstance(getattr(one, "ctx", None), ast.Store) for one in change.ancestors(node))


def _weak_equality(change: PythonChange, tests: TestValues) -> Iterator[Sign]:
    """Comparison methods that hold for anything, and values of types that have such methods."""
    for node in ast.walk(change.tree):
        if not isinstance(node, Function) or not change.fresh(node):
            continue
        if node.name in DECEIVING:
            yield sign("weak_comparison", change.path, node.lineno, f"`{node.name}` lets values pass as another type")
        owner = change.parents.get(node)
        shadowing = isinstance(owner, ast.ClassDef) and any(named(base) in PLAIN for base in owner.bases)
        if node.name not in (SHADOWED if shadowing else COMPARISONS):
            continue
        given = [one.arg for one in node.args.args][1:]
        used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        answers = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
        constant = any(fold(one) is not UNKNOWN and fold(one) is not False for one in answers)
        if shadowing or constant or (given and not set(given) & used and node.name not in ("__hash__", "__bool__")):
            why = f"`{node.name}` makes values equal to anything a test compares them with"
            yield sign("weak_comparison", change.path, node.lineno, why)
        elif change.old is not None and _compares_less(change, node):
            why = f"`{node.name}` compares less than before"
            yield sign("weak_comparison", change.path, node.lineno, why, certain=False)
    for node in change.nodes(ast.Call):
        names = [
            fold(one) for given in getattr(node, "args", ()) if isinstance(given, ast.Dict) for one in given.keys if one
        ]
        if called(node) == "type" and (COMPARISONS | DECEIVING).intersection(
            one for one in names if isinstance(one, str)
        ):
            why = "the change makes a class with comparison methods of its own"
            yield sign("weak_comparison", change.path, getattr(node, "lineno", 0), why)
    yield from _widened(change)
    yield from _own_results(change, tests)
    for node in change.nodes(ast.Assign):
        targets = {named(one) for one in getattr(node, "targets", ())}
        if (targets & COMPARISONS) - _assigned(change.old):
            why = "the change replaces a comparison method"
            yield sign("weak_comparison", change.path, getattr(node, "lineno", 0), why)


def _widened(change: PythonChange) -> Iterator[Sign]:
    """Classes of the base that now are another class: a broader exception is raised by anything."""
    walked = list(ast.walk(change.old)) if change.old is not None else []
    classes = {node.name for node in walked if isinstance(node, ast.ClassDef)}
    for node in change.nodes(ast.Assign):
        if renamed := classes & {named(one) for one in getattr(node, "targets", ())}:
            why = f"`{min(renamed)}` was a class of its own and is another one now"
            yield sign("weak_comparison", change.path, getattr(node, "lineno", 0), why)


def _own_results(change: PythonChange, tests: TestValues) -> Iterator[Sign]:
    """Results of a class that the change brings, that compares in a way of its own and that no test names."""
    known = {node.name for node in ast.walk(change.old or ast.Module([], [])) if isinstance(node, ast.ClassDef)}
    made = {node.name: node for node in ast.walk(change.tree) if isinstance(node, ast.ClassDef)}
    for node in change.nodes(ast.Return, ast.Yield):
        for one in _parts(getattr(node, "value", None)):
            name = called(one)
            methods = _methods(name, made)
            looked_at = COMPARISONS | (ACCESSORS if any(base in PLAIN for base in methods) else frozenset())
            if name in made.keys() - known and methods & looked_at and not re.search(rf"\b{name}\b", tests.text):
                why = f"the result is a `{name}` now, which compares in a way of its own"
                yield sign("weak_comparison", change.path, getattr(node, "lineno", 0), why)


def _parts(value: ast.AST | None) -> Iterator[ast.AST]:
    """A result and what it may be or holds."""
    match value:
        case None:
            return
        case ast.IfExp(body=body, orelse=orelse):
            inner = [body, orelse]
        case ast.BoolOp(values=inner) | ast.Tuple(elts=inner) | ast.List(elts=inner) | ast.Dict(values=inner):
            pass
        case ast.ListComp(elt=elt) | ast.GeneratorExp(elt=elt):
            inner = [elt]
        case _:
            yield value
            return
    for one in inner:
        yield from _parts(one)


def _methods(name: str, classes: Mapping[str, ast.ClassDef], depth: int = 3) -> set[str]:
    """The methods and bases of a class of this file, with those of its bases in the file."""
    if name not in classes or not depth:
        return set()
    bases = {named(base) for base in classes[name].bases}
    found = bases | {one.name for one in classes[name].body if isinstance(one, Function)}
    return found.union(*(_methods(base, classes, depth - 1) for base in bases))


def _assigned(tree: ast.Module | None) -> set[str]:
    """The names and attributes that assignments of a file bind."""
    walked = ast.walk(tree) if tree is not None else iter(())
    return {named(target) for node in walked if isinstance(node, ast.Assign) for target in node.targets}


def _compares_less(change: PythonChange, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    assert change.old is not None
    before = [one for one in ast.walk(change.old) if isinstance(one, Function) and one.name == node.name]
    counts = [sum(isinstance(part, ast.Compare) for part in ast.walk(one)) for one in before]
    return bool(counts) and sum(isinstance(part, ast.Compare) for part in ast.walk(node)) < min(counts)


def _helpers(change: PythonChange, tests: TestValues) -> Iterator[Sign]:
    """Changed functions that the failing tests judge with."""
    for node in ast.walk(change.tree):
        if not isinstance(node, Function) or not change.fresh(node) or change.file.before is None:
            continue
        helps = ASSERTING.search(node.name) or HELPER.search(change.path)
        if helps and re.search(rf"\b{re.escape(node.name)}\s*\(", tests.text):
            why = f"the change edits `{node.name}`, which the failing test judges with"
            yield sign("test_helper", change.path, node.lineno, why, certain=bool(ASSERTING.search(node.name)))
