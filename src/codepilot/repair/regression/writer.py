"""Writes one more test into a file of tests, as its neighbours are written. Pure: bytes in, bytes out.

Promises: every byte that was there is still there, in its order; what is added parses, binds no name that the file
already has, and asserts something. The new test stands behind the one that failed: as a function, as a method of its
class, or with a table of its own where that one has a table.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from codepilot.repair.edit import Edit, Unreadable
from codepilot.repair.python.source import Function, PythonSource
from codepilot.repair.regression.literals import CodeStyle

MAX_LINE = 120
TABLE_ROWS = 3
_RESERVED = frozenset({"request", "self", "expected"})


class Unwritable(Exception):
    """No test can be added here; the message says why."""


@dataclass(frozen=True)
class Place:
    """The test behind which the new one goes."""

    path: str
    scope: str
    """Its classes, outermost first, with dots; empty for a function."""
    name: str
    is_unittest: bool
    test: str = ""
    """The same as its runner names it."""

    def sibling(self, name: str) -> str:
        """How the runner names a test of the same class or module."""
        file = self.path if self.test.startswith(self.path) else ""
        node = file + self.test.removeprefix(file).partition("[")[0]
        return node[: len(node) - len(self.name)] + name


@dataclass(frozen=True)
class Thing:
    """A function or class that the test needs: where it is defined, and by what expressions the file has it already."""

    name: str
    module: str
    bound: tuple[str, ...] = ()


@dataclass(frozen=True)
class Example:
    """One call with what it must give: a value, or (by its name) the exception that it must raise."""

    arguments: tuple[ast.expr, ...]
    keywords: tuple[tuple[str, ast.expr], ...]
    result: ast.expr | None
    raises: str = ""

    @property
    def shape(self) -> tuple[int, tuple[str, ...]]:
        return len(self.arguments), tuple(name for name, _ in self.keywords)


@dataclass(frozen=True)
class Subject:
    """The function under test."""

    thing: Thing
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Written:
    content: bytes
    name: str


def write_test(
    data: bytes, place: Place, subject: Subject, examples: Sequence[Example], things: Mapping[str, Thing]
) -> Written:
    """The file with one more test, for the first of the examples (a table takes more of them); or `Unwritable`."""
    try:
        source = PythonSource.read(place.path, data)
    except Unreadable as error:
        raise Unwritable(f"{place.path} cannot be edited safely") from error
    return _Page(source, place, subject, things).write(examples)


class _Page:
    """One file of tests and what is known of its ways."""

    def __init__(self, source: PythonSource, place: Place, subject: Subject, things: Mapping[str, Thing]) -> None:
        self._source, self._place, self._subject = source, place, subject
        self._things = {**things, subject.thing.name: subject.thing}
        self._body, self._node = self._find()
        self._taken = frozenset(re.findall(r"\w+", source.text))
        self._imports: list[str] = []
        self._local: list[str] = []
        self._style = CodeStyle(
            quote='"' if source.text.count('"') > source.text.count("'") else "'",
            wide=source.encoding.replace("_", "-").lower() in ("utf-8", "utf8"),
        )

    def _find(self) -> tuple[list[ast.stmt], Function | None]:
        """The body in which the failing test stands, and the test; a class may have it from elsewhere."""
        body = self._source.tree.body
        for part in self._place.scope.split(".") if self._place.scope else ():
            classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == part]
            if not classes:
                raise Unwritable(f"the class of the failing test is not written in {self._place.path}")
            body = classes[-1].body
            if body[0].lineno == classes[-1].lineno:
                raise Unwritable(f"the class of the failing test is written in one line of {self._place.path}")
        tests = [node for node in body if isinstance(node, Function) and node.name == self._place.name]
        if not tests and not self._place.scope:
            raise Unwritable(f"the failing test is not written as a function in {self._place.path}")
        return body, tests[-1] if tests else None

    # --- the text ---------------------------------------------------------------------------------------------

    def write(self, examples: Sequence[Example]) -> Written:
        name = self._name()
        rows = [one for one in examples if one.shape == examples[0].shape and not one.raises][:TABLE_ROWS]
        mark = self._table_mark() if not examples[0].raises and self._can_be_table(examples[0]) else None
        calls = {needed: self._expression(needed) for needed in sorted(self._needed(rows if mark else examples[:1]))}
        self._style = replace(self._style, calls=calls)
        lines = self._table(name, mark, rows) if mark else self._single(name, examples[0])
        if any(len(line) > MAX_LINE for line in lines):
            raise Unwritable("it would be too long to be read")
        return Written(self._placed(lines), name)

    def _needed(self, examples: Sequence[Example]) -> Iterator[str]:
        yield self._subject.thing.name
        for one in examples:
            values = [*one.arguments, *(value for _, value in one.keywords), *([one.result] if one.result else [])]
            for value in values:
                yield from (
                    part.id for part in ast.walk(value) if isinstance(part, ast.Name) and part.id in self._things
                )
            if one.raises in self._things:
                yield one.raises

    def _single(self, name: str, example: Example) -> list[str]:
        given = [*map(self._style.written, example.arguments)]
        given += [f"{key}={self._style.written(value)}" for key, value in example.keywords]
        call = f"{self._style.calls[self._subject.thing.name]}({', '.join(given)})"
        if example.result is None:
            exception = self._style.calls.get(example.raises, example.raises)
            raising = "self.assertRaises" if self._place.is_unittest else f"{self._pytest()}.raises"
            body = [f"with {raising}({exception}):", self._unit + call]
        else:
            body = self._assertion(call, example.result)
        return self._function(name, ["self"] if self._place.scope else [], body)

    def _assertion(self, call: str, result: ast.expr) -> list[str]:
        """One line; two where one would be too long."""
        short = self._asserted(call, result, self._style.written(result))
        if len(self._indent + self._unit + short) <= MAX_LINE:
            return [short]
        return [f"expected = {self._style.written(result)}", self._asserted(call, None, "expected")]

    def _asserted(self, call: str, result: ast.expr | None, shown: str) -> str:
        single = isinstance(result, ast.Constant) and (result.value is None or isinstance(result.value, bool))
        sides = (shown, call) if self._expects_first and not single else (call, shown)
        if not self._place.is_unittest:
            return f"assert {sides[0]} {'is' if single else '=='} {sides[1]}"
        if single and isinstance(result, ast.Constant) and result.value is None:
            return f"self.assertIsNone({call})"
        return f"self.{'assertIs' if single else 'assertEqual'}({', '.join(sides)})"

    def _table(self, name: str, mark: tuple[str, bool], rows: Sequence[Example]) -> list[str]:
        """A function with a table of its own, in the way the failing test has one."""
        decorator, as_text = mark
        count, keywords = rows[0].shape
        names = [*self._subject.parameters[:count], *keywords, "expected"]
        listed = ", ".join(names if as_text else [self._style.written(ast.Constant(one)) for one in names])
        heads = self._style.written(ast.Constant(listed)) if as_text else f"({listed})"
        table = []
        for row in rows:
            assert row.result is not None
            values = [*row.arguments, *(value for _, value in row.keywords), row.result]
            table.append(self._style.written(ast.Tuple(values, ast.Load())))
        given = [*names[:count], *(f"{key}={key}" for key in keywords)]
        call = f"{self._style.calls[self._subject.thing.name]}({', '.join(given)})"
        sides = ("expected", call) if self._expects_first else (call, "expected")
        lines = self._function(
            name, [*(["self"] if self._place.scope else []), *names], [f"assert {sides[0]} == {sides[1]}"]
        )
        start = f"{self._indent}@{decorator}("
        if len(table) == 1 and len(f"{start}{heads}, [{table[0]}])") <= MAX_LINE:
            return [f"{start}{heads}, [{table[0]}])", *lines]
        inner = self._indent + self._unit
        return [
            start,
            f"{inner}{heads},",
            f"{inner}[",
            *(f"{inner}{self._unit}{row}," for row in table),
            f"{inner}],",
            f"{self._indent})",
            *lines,
        ]

    def _function(self, name: str, parameters: Sequence[str], body: Sequence[str]) -> list[str]:
        gives = " -> None" if self._node is not None and self._node.returns is not None else ""
        inner = self._indent + self._unit
        head = f"{self._indent}def {name}({', '.join(parameters)}){gives}:"
        return [head, *(inner + line for line in (*self._local, *body))]

    # --- the ways of the file ---------------------------------------------------------------------------------

    @property
    def _first(self) -> ast.stmt:
        return self._node or self._body[0]

    @property
    def _indent(self) -> str:
        return self._source.indentation(self._first.lineno)

    @property
    def _unit(self) -> str:
        """One step of indentation, as the failing test has it, or some other block of the file."""
        blocks = [self._node] if self._node is not None else []
        blocks += [node for node in ast.walk(self._source.tree) if isinstance(node, Function)]
        for block in blocks:
            outer, inner = (self._source.indentation(line) for line in (block.lineno, block.body[0].lineno))
            if inner != outer and inner.startswith(outer):
                return inner[len(outer) :]
        return "    "

    def _name(self) -> str:
        """A name like its neighbours' that stands nowhere in the file."""
        words = self._subject.thing.name.strip("_") or "function"
        if re.match(r"test[A-Z]", self._place.name):
            plain = "test" + "".join(part[:1].upper() + part[1:] for part in words.split("_")) + "Regression"
        elif self._place.name.startswith("test"):
            plain = f"test_{words}_regression"
        else:
            raise Unwritable("the tests of the file are named in a way of their own")
        numbered = (plain if number == 1 else f"{plain}_{number}" for number in range(1, len(self._taken) + 3))
        return next(name for name in numbered if name not in self._taken)

    @property
    def _expects_first(self) -> bool:
        """True if the file's tests name what is expected before what is called."""
        votes = 0
        for node in ast.walk(self._source.tree):
            sides: tuple[ast.expr, ast.expr] | None = None
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
                sides = node.left, node.comparators[0]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "assertEqual" and len(node.args) > 1:
                sides = node.args[0], node.args[1]
            if sides is not None:
                votes += isinstance(sides[1], ast.Call) and not isinstance(sides[0], ast.Call)
                votes -= isinstance(sides[0], ast.Call) and not isinstance(sides[1], ast.Call)
        return votes > 0

    def _table_mark(self) -> tuple[str, bool] | None:
        """The failing test's own mark for a table, and whether that takes its names in one text."""
        if self._place.is_unittest or self._node is None:
            return None
        for mark in self._node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("parametrize") and mark.args:
                return self._source.segment(mark.func), isinstance(mark.args[0], ast.Constant)
        return None

    def _can_be_table(self, example: Example) -> bool:
        """True if the arguments' names can be a test's own."""
        count, keywords = example.shape
        names = [*self._subject.parameters[:count], *keywords]
        roots = {thing.name for thing in self._things.values()}
        roots |= {bound.split(".")[0] for thing in self._things.values() for bound in thing.bound}
        apart = len(set(names)) == len(names) == count + len(keywords) and not set(names) & (_RESERVED | roots)
        return apart and bool(names)

    # --- imports ----------------------------------------------------------------------------------------------

    def _expression(self, name: str) -> str:
        """By what the test calls a thing: as the file has it, or by an import that is added for it."""
        thing, known = self._things[name], self._bound_names()
        found = [bound for bound in thing.bound if bound.split(".")[0] in known or "*" in known]
        if found:
            return min(found, key=lambda bound: (bound.count("."), bound.startswith("_"), len(bound), bound))
        line = f"from {thing.module} import {thing.name}"
        anchored = self._anchor() is not None and not self._imports_within(thing.module)
        if thing.name in known or not anchored or hasattr(builtins, thing.name):
            self._local.append(line)
        elif line not in self._imports:
            self._imports.append(line)
        return thing.name

    def _pytest(self) -> str:
        for node in self._source.tree.body:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name == "pytest":
                        return alias.asname or "pytest"
        if "pytest" in self._bound_names() or self._anchor() is None:
            self._local.append("import pytest")
        else:
            self._imports.append("import pytest")
        return "pytest"

    def _bound_names(self) -> set[str]:
        found = set()
        for node in ast.walk(self._source.tree):
            if isinstance(node, Function | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.alias):
                found.add((node.asname or node.name).split(".")[0])
        return found

    def _imports_within(self, module: str) -> bool:
        """True if the file's tests import from this module by themselves, in their bodies."""
        functions = (node for node in ast.walk(self._source.tree) if isinstance(node, Function))
        inner = (part for function in functions for part in ast.walk(function))
        return any(isinstance(part, ast.ImportFrom) and part.module == module for part in inner)

    def _anchor(self) -> ast.stmt | None:
        """The import after which another can be added on a line of its own."""
        body = self._source.tree.body
        imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        if not imports:
            return None
        last = imports[-1]
        shares = any(
            other.lineno == last.end_lineno for other in body if other is not last and other.lineno >= last.lineno
        )
        before_tests = body.index(last) < body.index(self._outermost())
        return last if before_tests and not shares else None

    def _outermost(self) -> ast.stmt:
        """The statement of the module in which the failing test lies."""
        line = self._first.lineno
        return next(node for node in self._source.tree.body if node.lineno <= line <= (node.end_lineno or line))

    # --- the bytes --------------------------------------------------------------------------------------------

    def _placed(self, lines: Sequence[str]) -> bytes:
        """The test first, and what it needs before it: what stands in front of an edit keeps its place."""
        pieces = [(self._end(self._node or self._body[-1]), [*[""] * self._gap(), *lines])]
        if self._imports:
            anchor = self._anchor()
            assert anchor is not None and anchor.end_lineno is not None
            pieces.append((self._source.line_end(anchor.end_lineno), self._imports))
        source = self._source
        for at, added in pieces:
            missing = source.newline if at and source.text[at - 1] not in "\r\n" else ""
            text = missing + "".join(line + source.newline for line in added)
            content = source.apply(Edit(at, at, text, ""))
            if content is None:
                raise Unwritable(f"{self._place.path} has no letters for it in its encoding")
            try:
                source = PythonSource.read(source.path, content)
            except Unreadable as error:
                raise Unwritable(f"{self._place.path} would not parse with the test in it") from error
        return source.data

    def _end(self, node: ast.stmt) -> int:
        """Behind the statement and the comments that are indented like its body."""
        assert node.end_lineno is not None
        line, own = node.end_lineno, len(self._indent)
        while line < len(self._rows) and self._rows[line].lstrip().startswith("#"):
            if len(self._source.indentation(line + 1)) <= own:
                break
            line += 1
        return self._source.line_end(line)

    @cached_property
    def _rows(self) -> list[str]:
        return re.split(r"\r\n|\r|\n", self._source.text)

    def _gap(self) -> int:
        """How many blank lines stand between the functions of the body."""
        usual = 1 if self._place.scope else 2
        for one, other in zip(self._body, self._body[1:], strict=False):
            if isinstance(one, Function) and isinstance(other, Function):
                begins = min([other.lineno, *(mark.lineno for mark in other.decorator_list)])
                between = self._rows[one.end_lineno or 0 : begins - 1]
                if between and not any(row.strip() for row in between):
                    return min(len(between), 3)
        return usual
