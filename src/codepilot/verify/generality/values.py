"""Values of the failing tests, and constants of the code: what a special case would compare with or answer.

Expressions that are made of constants alone are evaluated by a small interpreter. No code is run.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from codepilot.verify import testcode

Key = tuple[str, object]
"""A value that can be compared with others: its kind and itself."""


class _Unknown:
    """The result of an expression that is not constant."""


UNKNOWN: Final = _Unknown()
NATURAL_NUMBERS = frozenset({-1, 0, 1, 2})
"""Numbers that any code may hold: identities, steps and first cases."""
MAX_TEXT = 10_000
FRAGMENT = 2
MAX_LINES = 500
PART = 4
"""The length of a part of a text that is hardly shared by chance."""
MAX_POWER = 64
TEXT_METHODS = frozenset(
    {"upper", "lower", "title", "capitalize", "swapcase", "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines"}
    | {"index", "find", "rfind", "count", "removeprefix", "removesuffix"}
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_LITERAL = re.compile(
    r"""(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`$\\]*`)|(?<![\w.])(?P<number>\d[\d_]*(?:\.\d+)?)"""
)
_FLOAT = r"-?\d{1,30}(?:\.\d{1,30})?(?:e[-+]?\d{1,3})?"
_UNEQUAL = re.compile(rf"(?<![\w.])(?P<actual>{_FLOAT}) (?:==|!=) (?P<expected>{_FLOAT})(?![\w.])")
_NEXT_TEST = re.compile(r"@(?:Test|ParameterizedTest|RepeatedTest)\b|(?<![.\w$])(?:it|test)(?:\.\w+)*\s*\(")


def key(value: object) -> Key | None:
    """The value as a key; None for what no test would copy: truth values, None, objects."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return ("number", value)
    if isinstance(value, str):
        return ("text", value)
    return ("bytes", value) if isinstance(value, bytes) else None


def natural(one: Key) -> bool:
    """True for values that code may hold without having them from a test."""
    kind, value = one
    if kind == "number":
        return value in NATURAL_NUMBERS
    return isinstance(value, str | bytes) and len(value.strip()) <= 1


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclass(frozen=True)
class TestValues:
    """The literals of the failing tests, natural ones included, and the names of those tests."""

    __test__ = False

    values: frozenset[Key] = frozenset()
    names: frozenset[str] = frozenset()
    text: str = ""
    """The source of the tests."""
    corrections: frozenset[float] = frozenset()
    """By how much the results were off before the change: differences and ratios of expected and actual numbers."""
    differences: frozenset[float] = frozenset()
    """The differences alone."""
    others: frozenset[Key] = frozenset()
    """The literals of the other tests in the same files."""
    data: frozenset[str] = frozenset()
    """The lines of the data files that the tests name."""

    @cached_property
    def lengths(self) -> frozenset[int]:
        """The lengths of the failing tests' texts and of their words."""
        texts = [value for kind, value in self.values if kind == "text" and isinstance(value, str)]
        return frozenset(len(part) for text in texts for part in (text, *re.findall(r"[^\W_]+", text)))

    def pinned(self, bound: object) -> bool:
        """True if the tests have a number on either side of a bound, and not the failing ones alone."""
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            return False
        sides = [{key(low), key(low + 1)} for low in (bound - 1, bound)]
        every = self.values | self.others
        return any(pair <= every and pair & self.others for pair in sides)

    def fragment(self, value: object) -> bool:
        """True for a short text with digits that is a part of a text of the tests."""
        plain = value.strip("^$\\ ").casefold() if isinstance(value, str) else ""
        return len(plain) >= FRAGMENT and any(map(str.isdigit, plain)) and any(plain in held for held in self._texts)

    def correction(self, value: object) -> bool:
        """True if the number makes up for what the failing tests' results were off by."""
        if isinstance(value, bool) or not isinstance(value, int | float) or natural(("number", value)):
            return False
        return any(math.isclose(value, one, rel_tol=1e-9) for one in self.corrections)

    def difference(self, value: object) -> bool:
        """True if the number is the difference of an expected and an actual result, and no natural one."""
        if isinstance(value, bool) or not isinstance(value, int | float) or natural(("number", abs(value))):
            return False
        return any(math.isclose(value, one, rel_tol=1e-9) for one in self.differences)

    def copied(self, value: object) -> bool:
        """True if the value is one of the tests', or a telling part of a text of theirs, and no natural one."""
        one = key(value)
        if one is None or natural(one):
            return False
        return one in self.values or (isinstance(value, str) and self._part(value))

    def contains(self, word: str) -> bool:
        """True if a text of the tests has this word."""
        return any(word.casefold() in held for held in self._texts)

    def _part(self, text: str) -> bool:
        """True for a number of the tests that is written as text, and for a part of a text in any case."""
        plain = text.strip().casefold()
        return plain in self._written or (len(plain) >= PART and any(plain in held for held in self._texts))

    @cached_property
    def _texts(self) -> frozenset[str]:
        texts = (value for _, value in self.values if isinstance(value, str))
        return frozenset(value.casefold() for value in (*texts, *self.data))

    @cached_property
    def _written(self) -> frozenset[str]:
        """The tests' numbers as text."""
        return frozenset(str(one[1]) for one in self.values if one[0] == "number" and not natural(one))

    def occurs(self, value: object) -> bool:
        """True if the value is one of the tests', be it natural."""
        one = key(value)
        return one is not None and one in self.values


# Constants of Python code ---------------------------------------------------------------------------


def fold(node: ast.AST, names: Mapping[str, object] | None = None) -> object:
    """The value of a constant expression, UNKNOWN for any other. `names` are constants of the file."""
    try:
        return _fold(node, names or {})
    except (ArithmeticError, AttributeError, IndexError, LookupError, TypeError, ValueError, RecursionError):
        return UNKNOWN


def _fold(node: ast.AST, names: Mapping[str, object]) -> object:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return names.get(name, UNKNOWN)
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return _all([_fold(item, names) for item in items])
        case ast.UnaryOp(op=op, operand=operand):
            return _unary(op, _fold(operand, names))
        case ast.BinOp(left=left, op=op, right=right):
            return _binary(op, _fold(left, names), _fold(right, names))
        case ast.JoinedStr(values=parts):
            pieces = _all(
                [_fold(part.value if isinstance(part, ast.FormattedValue) else part, names) for part in parts]
            )
            return "".join(map(str, pieces)) if isinstance(pieces, tuple) else UNKNOWN
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step)):
            held = _fold(value, names)
            first, last = (None if one is None else _index(_fold(one, names)) for one in (lower, upper))
            by = None if step is None else _whole(_fold(step, names))
            return held[first:last:by] if isinstance(held, str | tuple) else UNKNOWN
        case ast.Subscript(value=value, slice=index):
            held = _fold(value, names)
            return held[_index(_fold(index, names))] if isinstance(held, str | tuple) else UNKNOWN
        case ast.Call(func=ast.Name(id=called), args=args, keywords=[]):
            return _called(called, [_fold(one, names) for one in args])
        case ast.Call(func=ast.Attribute(value=owner, attr="join"), args=[items]):
            mark, held = _fold(owner, names), _fold(items, names)
            return mark.join(map(str, held)) if isinstance(mark, str) and isinstance(held, tuple) else UNKNOWN
        case ast.Call(func=ast.Attribute(value=owner, attr=attr), args=args, keywords=[]):
            held = _fold(owner, names)
            given = _all([_fold(one, names) for one in args])
            known = isinstance(held, str) and isinstance(given, tuple)
            return _method(held, attr, given) if known else UNKNOWN  # type: ignore[arg-type]
    return UNKNOWN


def _index(value: object) -> int:
    if isinstance(value, int):
        return value
    raise ValueError


def _method(text: str, name: str, args: tuple[object, ...]) -> object:
    """The result of a harmless method of a text."""
    if any(isinstance(one, str) and len(one) > MAX_TEXT for one in (text, *args)):
        return UNKNOWN
    if name == "format" and not re.search(r"[:!.\[]", text):
        return text.format(*args)[:MAX_TEXT]
    if name not in TEXT_METHODS or not all(isinstance(one, str) or one is None for one in args):
        return UNKNOWN
    result: object = getattr(text, name)(*args)
    return tuple(result) if isinstance(result, list) else result


def _all(parts: list[object]) -> object:
    return UNKNOWN if any(part is UNKNOWN for part in parts) else tuple(parts)


def _whole(value: object) -> int:
    if isinstance(value, int) and value:
        return value
    raise ValueError


def _unary(op: ast.unaryop, value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(op, ast.USub):
            return -value
        if isinstance(op, ast.UAdd):
            return value
        if isinstance(op, ast.Invert) and isinstance(value, int):
            return ~value
    return UNKNOWN


def _binary(op: ast.operator, left: object, right: object) -> object:
    if isinstance(left, str | tuple) and isinstance(op, ast.Add) and type(left) is type(right):
        return left + right  # type: ignore[operator]
    if isinstance(left, str) and isinstance(op, ast.Mod) and not re.search(r"%[^sd%]", left):
        return (left % right)[:MAX_TEXT]
    if isinstance(left, str) and isinstance(op, ast.Mult) and isinstance(right, int):
        return left * right if len(left) * right <= MAX_TEXT else UNKNOWN
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return UNKNOWN
    match op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return left // right
        case ast.Mod():
            return left % right
        case ast.Pow() if abs(right) <= MAX_POWER and abs(left) <= MAX_TEXT:
            return left**right
    if isinstance(left, int) and isinstance(right, int) and 0 <= right <= MAX_POWER:
        match op:
            case ast.LShift():
                return left << right
            case ast.RShift():
                return left >> right
            case ast.BitOr():
                return left | right
            case ast.BitXor():
                return left ^ right
            case ast.BitAnd():
                return left & right
    return UNKNOWN


def _called(name: str, args: list[object]) -> object:
    match name, args:
        case "chr", [int() as value]:
            return chr(value)
        case "ord", [str() as value]:
            return ord(value)
        case "len", [str() | tuple() as value]:
            return len(value)
        case "int", [str() | int() | float() as value]:
            return int(value)
        case "int", [str() as value, int() as base]:
            return int(value, base)
        case "float", [str() | int() | float() as value]:
            return float(value)
        case "str", [str() | int() | float() as value]:
            return str(value)
        case "pow", [int() as value, int() as power] if 0 <= power <= MAX_POWER and abs(value) <= MAX_TEXT:
            return value**power
        case "abs", [int() | float() as value]:
            return abs(value)
        case "round", [int() | float() as value]:
            return round(value)
        case "divmod", [int() as value, int() as other]:
            return divmod(value, other)
        case (("min" | "max"), [tuple() as value]):
            return _extreme(name, value)
        case (("min" | "max"), [int() | float(), *_]):
            return _extreme(name, tuple(args))
        case "range", [int(), *_] if len(args) <= 3:
            numbers = range(*(one for one in args if isinstance(one, int)))
            return tuple(numbers) if len(numbers) <= MAX_TEXT else UNKNOWN
        case "sum", [tuple() as value]:
            return sum(value)
        case (("tuple" | "list" | "set" | "frozenset"), [tuple() | str() as value]):
            return tuple(value)
    return UNKNOWN


def _extreme(name: str, given: tuple[object, ...]) -> object:
    numbers = [one for one in given if isinstance(one, int | float)]
    return (max if name == "max" else min)(numbers) if numbers else UNKNOWN


# The failing tests ----------------------------------------------------------------------------------


def corrections(messages: Iterable[str]) -> tuple[frozenset[float], frozenset[float]]:
    """Differences, and ratios, of the two numbers that failing comparisons show."""
    differences: set[float] = set()
    ratios: set[float] = set()
    for message in messages:
        for match in _UNEQUAL.finditer(message[:MAX_TEXT]):
            one, other = (float(match[side]) for side in ("actual", "expected"))
            differences |= {one - other, other - one}
            ratios |= {one / other, other / one} if one and other else set()
    return frozenset(filter(math.isfinite, differences)), frozenset(filter(math.isfinite, ratios))


def test_values(sources: Mapping[str, bytes], tests: Sequence[str], messages: Iterable[str] = ()) -> TestValues:
    """The literals of the named tests, with those of the fixtures, helpers and constants that they use.

    `messages` are those with which the tests failed before the change.
    """
    tokens = {token for test in tests for token in re.split(r"::|[.#/\[\]$ >(),-]+", test) if token}
    documents = {test.partition("::")[0] for test in tests}
    values: set[Key] = set()
    others: set[Key] = set()
    data: set[str] = set()
    texts = []
    for path, content in sources.items():
        tree = testcode.parsed(content) if path.endswith(testcode.PYTHON) else None
        text = content.decode("utf-8", "replace")
        if not path.endswith((*testcode.PYTHON, *testcode.JVM, *testcode.SCRIPT)) and path not in documents:
            data.update(line.strip() for line in text.splitlines()[:MAX_LINES])
            continue
        documented = any(testcode.is_documented(test) for test in tests if test.startswith(f"{path}::"))
        if tree is not None and documented:
            shown_as = "\n".join(part for pair in testcode.examples(tree) for part in pair)
            values.update(_python_literals([one for one in map(_expression, shown_as.splitlines()) if one is not None]))
            text = shown_as
        elif tree is not None:
            used = _used_by(tree, tokens)
            values.update(_python_literals(used))
            others.update(_python_literals([one for one in _tests(tree) if one not in used]))
        else:
            text = _parts_of_text(text, tests)
            values.update(_text_literals(text))
        texts.append(text)
    names = {
        token for token in tokens if re.search(r"test|spec", token, re.IGNORECASE) and token not in ("test", "tests")
    }
    differences, ratios = corrections(messages)
    return TestValues(
        frozenset(values),
        frozenset(names),
        "\n".join(texts),
        differences | ratios,
        differences,
        frozenset(others),
        frozenset(data),
    )


def _expression(line: str) -> ast.AST | None:
    """A line of an example as an expression; None if it is none."""
    try:
        return ast.parse(line.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return None


def _tests(tree: ast.Module) -> list[ast.AST]:
    """The functions and methods of a file of tests."""
    inner = [one for statement in tree.body if isinstance(statement, ast.ClassDef) for one in statement.body]
    return [one for one in (*tree.body, *inner) if isinstance(one, _Function)]


def _python_literals(nodes: Iterable[ast.AST]) -> Iterator[Key]:
    for node in nodes:
        docstrings = set(_docstrings(node))
        for part in ast.walk(node):
            if isinstance(part, ast.Constant | ast.UnaryOp | ast.BinOp) and part not in docstrings:
                one = key(fold(part))
                if one is not None:
                    yield one


def _docstrings(node: ast.AST) -> Iterator[ast.AST]:
    for part in ast.walk(node):
        body = getattr(part, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            yield body[0].value


def _used_by(tree: ast.Module, tokens: set[str]) -> list[ast.AST]:
    """The named tests and everything of the file that they use by name; the whole file if none is found."""
    top: dict[str, ast.AST] = {}
    wanted: list[ast.AST] = []
    for statement in tree.body:
        for name in _bound(statement):
            top[name] = statement
        inside = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        found = [one for one in inside if isinstance(one, _Function) and one.name in tokens]
        wanted += found
        if found and isinstance(statement, ast.ClassDef):
            wanted += [one for one in inside if not (isinstance(one, _Function) and one.name.startswith("test"))]
            wanted += statement.decorator_list
    if not wanted:
        return [tree]
    seen = {id(node) for node in wanted}
    for node in wanted:  # grows while it is read
        for part in ast.walk(node):
            name = part.id if isinstance(part, ast.Name) else part.arg if isinstance(part, ast.arg) else ""
            used = top.get(name)
            if used is not None and id(used) not in seen and not isinstance(used, ast.ClassDef):
                seen.add(id(used))
                wanted.append(used)
    return wanted


def _bound(statement: ast.stmt) -> Iterable[str]:
    if isinstance(statement, _Function | ast.ClassDef):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _parts_of_text(text: str, tests: Sequence[str]) -> str:
    """The source of the named tests in a language that is not parsed; everything if none is found."""
    found = []
    for test in tests:
        name = re.split(r"::|#| > |\.(?=\w+(?:\(\))?$)", test)[-1].strip().removesuffix("()")
        at = text.find(name) if len(name) > 1 else -1
        if at >= 0:
            following = _NEXT_TEST.search(text, at + len(name))
            found.append(text[at : following.start() if following else len(text)])
    return "\n".join(found) or text


def _text_literals(text: str) -> Iterator[Key]:
    for match in _LITERAL.finditer(text):
        if match["text"] is not None:
            yield ("text", match["text"][1:-1])
        else:
            digits = match["number"].replace("_", "")
            yield ("number", float(digits) if "." in digits else int(digits[:30]))
