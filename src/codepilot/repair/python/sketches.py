"""Sketch-based synthesis: edits of a function with a hole for an expression that is still to be found."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from codepilot.repair.edit import Edit
from codepilot.repair.localise import Suspicion
from codepilot.repair.python.context import LIST, NUMBER, STRING, Context
from codepilot.repair.python.precedence import AND, BARE, NOT, OR, demand, text_strength
from codepilot.repair.python.priors import PRIORS
from codepilot.repair.python.source import Function
from codepilot.repair.python.templates.documented import documented_values
from codepilot.repair.python.templates.exceptions import raises, unraised
from codepilot.repair.python.templates.guards import PLAIN, results, returned

_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return)
_UNFIT = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr, ast.Starred)
_TESTED = (ast.If, ast.While, ast.IfExp, ast.Assert)
_MOST_RETURNS, _MOST_DONORS, _MOST_TARGETS = 16, 8, 4
_MOST_ATOMS = 48
MOST = 800
Kind = Literal["condition", "value"]
PREFIX = "synthesis."


@dataclass(frozen=True)
class Sketch:
    """`before` and `after` stand around the hole. Where nothing is put in, it answers as `original` or `default`."""

    start: int
    end: int
    before: str
    after: str
    kind: Kind
    template: str
    line: int
    worth: float
    original: str = ""
    default: bool = False
    level: int = BARE
    stale: tuple[str, ...] = ()
    """Names that still hold something here, but belong to a loop that is over."""

    def edit(self, text: str) -> Edit:
        """The hole filled, in parentheses where what is around it asks for them."""
        inner = f"({text})" if text_strength(text) < self.level else text
        return Edit(self.start, self.end, f"{self.before}{inner}{self.after}", self.template)


def sketches(context: Context, suspicion: Suspicion) -> list[Sketch]:
    """The sketches of one function, the likeliest first."""
    assert context.unit is not None
    found: list[Sketch] = []
    for statement in ast.walk(context.unit.node):
        if isinstance(statement, ast.stmt) and statement is not context.unit.node:
            weight = suspicion.of(context.source.path, own_lines(statement))
            if weight > 0 and not isinstance(statement, Function | ast.ClassDef):
                found += _Maker(context, statement, weight).make()
    found = [sketch for sketch in found if context.unit.holds(sketch.edit("x"))]
    found.sort(key=lambda sketch: -sketch.worth)
    return found[:MOST]


def atoms(context: Context) -> list[str]:
    """Texts that may be parts of what fills a hole: small values, then what the function itself says."""
    numbers, words = documented_values(context, examined=False)
    found = dict.fromkeys(("0", "1", "-1", "2", "''", "[]", "True", "False", "None", "float('inf')"))
    found.update(dict.fromkeys(context.numbers[:8]))
    found.update(dict.fromkeys(context.strings[:8]))
    found.update(dict.fromkeys((*numbers[:6], *words[:6])))
    for node in context.donors:
        used = not isinstance(context.parent(node), ast.Expr) and context.field_of(node) != "func"
        if used and len(context.text(node)) <= 40:
            found[context.text(node)] = None
            found.update(dict.fromkeys(_neighbours(node, context)))
    return [text for text in found if "__" not in text][:_MOST_ATOMS]


def _neighbours(node: ast.expr, context: Context) -> list[str]:
    """The elements before and behind an element."""
    if not isinstance(node, ast.Subscript) or isinstance(node.slice, ast.Slice | ast.Constant | ast.UnaryOp):
        return []
    at = node.slice
    shifted = isinstance(at, ast.BinOp) and isinstance(at.op, ast.Add | ast.Sub) and isinstance(at.right, ast.Constant)
    if not isinstance(at, ast.Name) and not shifted:
        return []
    base, index = context.text(node.value), context.text(at.left) if isinstance(at, ast.BinOp) else context.text(at)
    return [f"{base}[{index}]", f"{base}[{index} - 1]", f"{base}[{index} + 1]"]


def own_lines(statement: ast.stmt) -> range:
    """The lines that belong to the statement itself: its head, if it has a body."""
    assert statement.end_lineno is not None
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        return range(statement.lineno, max(statement.lineno + 1, body[0].lineno))
    return range(statement.lineno, statement.end_lineno + 1)


class _Maker:
    """The sketches at one statement."""

    def __init__(self, context: Context, statement: ast.stmt, weight: float) -> None:
        self.context, self.statement, self.weight = context, statement, weight
        self.stale = tuple(sorted(context.stale_at(statement)))
        self.inner = not isinstance(context.parent(statement), Function)

    def make(self) -> Iterator[Sketch]:
        yield from self._replaced()
        yield from self._refined()
        yield from self._inserted()
        yield from self._wrapped()
        yield from self._otherwise()

    def _sketch(
        self,
        span: tuple[int, int],
        around: tuple[str, str],
        template: str,
        kind: Kind = "condition",
        *,
        share: float = 1.0,
        original: str = "",
        default: bool = False,
        level: int = BARE,
    ) -> Sketch:
        worth = self.weight * PRIORS[PREFIX + template] * share
        line = self.statement.lineno
        return Sketch(*span, *around, kind, PREFIX + template, line, worth, original, default, level, self.stale)

    # --- in place of what is there ----------------------------------------------------------------------------

    def _replaced(self) -> Iterator[Sketch]:
        for depth, node in self._expressions(self.statement, 0):
            if any(isinstance(part, _UNFIT) for part in ast.walk(node)):
                continue
            parent, field = self.context.parents[node]
            text, level = self.context.text(node), demand(parent, field)
            kind: Kind = "condition" if self._decides(node) else "value"
            share = 1 / (1 + 0.3 * depth)
            span = self.context.source.span(node)
            yield self._sketch(span, ("", ""), kind, kind, share=share, original=_joined(text), level=level)

    def _expressions(self, node: ast.AST, depth: int) -> Iterator[tuple[int, ast.expr]]:
        """Expressions whose value is used, the outer before the inner ones."""
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.stmt | ast.JoinedStr | ast.arguments) or not isinstance(child, ast.AST):
                    continue
                loads = isinstance(child, ast.expr) and isinstance(getattr(child, "ctx", ast.Load()), ast.Load)
                used = field not in ("func", "targets", "target", "annotation", "decorator_list")
                used = used and not isinstance(child, ast.Slice | ast.Starred | ast.Lambda)
                used = used and not isinstance(node, ast.Expr | ast.Attribute)
                if loads and used:
                    assert isinstance(child, ast.expr)
                    yield depth, child
                yield from self._expressions(child, depth + 1)

    def _decides(self, node: ast.expr) -> bool:
        """True if only the truth of the value matters, or it is a truth value by its form."""
        parent, field = self.context.parents[node]
        if (isinstance(parent, _TESTED) and field == "test") or field == "ifs":
            return True
        if isinstance(parent, ast.BoolOp) or (isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not)):
            return self._decides(parent)
        if isinstance(node, ast.Constant):
            return isinstance(node.value, bool)
        return isinstance(node, ast.Compare) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))

    def _refined(self) -> Iterator[Sketch]:
        """A condition with a further one, and a filter for a comprehension that has none."""
        for _, node in self._expressions(self.statement, 0):
            parent, _ = self.context.parents[node]
            if self._decides(node) and not isinstance(parent, ast.BoolOp | ast.UnaryOp | ast.Compare):
                if isinstance(node, ast.Constant):
                    continue
                span = self.context.source.span(node)
                one, other = self.context.at(node, NOT), self.context.at(node, AND)
                yield self._sketch(span, (f"{one} and ", ""), "condition", default=True, level=NOT)
                yield self._sketch(span, (f"{other} or ", ""), "condition", level=AND)
        for inner in ast.walk(self.statement):
            if isinstance(inner, ast.comprehension) and not inner.ifs and self._owns(inner):
                end = self.context.source.span(inner.iter)[1]
                yield self._sketch((end, end), (" if ", ""), "condition", default=True, level=OR)

    def _owns(self, node: ast.AST) -> bool:
        """True if the node is the statement's own, and not of a statement inside it."""
        return next((one for one in self.context.ancestors(node) if isinstance(one, ast.stmt)), None) is self.statement

    # --- next to what is there -------------------------------------------------------------------------------

    def _inserted(self) -> Iterator[Sketch]:
        context, statement = self.context, self.statement
        if not context.owns_lines(statement) or context.is_elif(statement) or _is_docstring(statement):
            return
        (start, end), block = context.lines(statement), context.block_of(statement)
        places = [start]
        ends = context.source.text[:end].endswith(("\n", "\r"))
        if block and block[-1] is statement and ends and not isinstance(statement, ast.Return | ast.Raise):
            places.append(end)
        for place in places:
            for share, row, template in self._rows():
                text = f"{self._head('if ')}", f":{self._line(1)}{row}{context.source.newline}"
                yield self._sketch((place, place), text, template, share=share)
            for share, head, tail, original in self._settings():
                text = f"{context.indent(statement)}{head}", f"{tail}{context.source.newline}"
                yield self._sketch((place, place), text, "statement", "value", share=share, original=original)

    def _head(self, word: str) -> str:
        return f"{self.context.indent(self.statement)}{word}"

    def _line(self, steps: int) -> str:
        context = self.context
        return f"{context.source.newline}{context.indent(self.statement)}{context.step * steps}"

    def _rows(self) -> Iterator[tuple[float, str, str]]:
        """Bodies for a missing branch: return something, leave the loop, or repeat another branch."""
        context, statement = self.context, self.statement
        for at, value in enumerate(self._returns()[: _MOST_RETURNS // (2 if self.inner else 1)]):
            yield (0.4 if self.inner else 1) / (1 + 0.1 * at), f"return {value}", "guard"
        for text in self._refusals():
            yield 1.0, text, "guard"
        if context.in_loop(statement):
            yield from ((1.0, "continue", "guard"), (1.0, "break", "guard"))
        for at, text in enumerate(self._donors()[: _MOST_DONORS + 8]):
            yield 1 / (1 + 0.1 * at), text, "branch"

    def _returns(self) -> list[str]:
        """Values for an early return, of the kinds that the function returns; texts of the tests are included."""
        context, function = self.context, self.context.function_of(self.statement)
        kinds = returned(function, context) if function else set()
        every = results(self.statement, context)
        if len(kinds) == 1:
            every = [text for text in every if PLAIN.get(text) in (None, *kinds)]
        if STRING in kinds:
            every[2:2] = [repr(text) for text in context.failure.expected if text.isidentifier()][:4]
        return list(dict.fromkeys(every))

    def _refusals(self) -> list[str]:
        """Exceptions that the tests miss, as the file raises them elsewhere."""
        missed = unraised(self.context.failure.messages)
        return [row for name in missed for row in raises(name, self.context)][:4]

    def _donors(self) -> list[str]:
        """Simple statements of the function, the nearest first; then counters moved on."""
        context, own = self.context, self.statement.lineno
        function = context.function_of(self.statement)
        near: list[tuple[int, str]] = []
        for node in ast.walk(function) if function else ():
            if isinstance(node, _SIMPLE[:3]) and node.lineno == node.end_lineno and not _is_docstring(node):
                near.append((abs(node.lineno - own), context.text(node)))
        numbers = [name for name in self._stored() if context.may_be(name, NUMBER)]
        moved = [f"{name} {sign}= 1" for name in numbers[:3] for sign in "+-"]
        rows = [text for _, text in sorted(near)]
        return list(dict.fromkeys([*rows[:_MOST_DONORS], *moved, *self._renamed(rows[:3])]))

    def _renamed(self, texts: list[str]) -> Iterator[str]:
        """The statements with one of their names exchanged for another of its kind."""
        kinds = self.context.kinds
        for text in texts:
            for name in self._stored()[:6]:
                for other in self._stored()[:6] if re.search(rf"\b{name}\b", text) else ():
                    if other != name and kinds.get(name, set()) & kinds.get(other, set()):
                        yield re.sub(rf"\b{name}\b", other, text)

    def _stored(self) -> list[str]:
        """Local names that the function gives values to, in reach here."""
        stored = {
            node.id
            for node in ast.walk(self.context.root)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        every = [name for name in self.context.names_at(self.statement) if name in self.context.locals]
        return [name for name in every if name in stored] + [name for name in every if name not in stored]

    def _settings(self) -> Iterator[tuple[float, str, str, str]]:
        """A name set, moved on, or a list added to."""
        for at, name in enumerate(self._stored()[:_MOST_TARGETS]):
            share = 1 / (1 + 0.2 * at)
            yield share, f"{name} = ", "", name
            if self.context.may_be(name, NUMBER):
                yield 0.7 * share, f"{name} += ", "", ""
            if LIST in self.context.kinds.get(name, ()):
                yield 0.7 * share, f"{name}.append(", ")", ""

    def _wrapped(self) -> Iterator[Sketch]:
        """The statement under a condition."""
        context, statement = self.context, self.statement
        if not isinstance(statement, _SIMPLE) or statement.lineno != statement.end_lineno or _is_docstring(statement):
            return
        if context.owns_lines(statement):
            text = f":{self._line(1)}{context.text(statement)}"
            yield self._sketch(context.source.span(statement), ("if ", text), "branch", default=True)

    def _otherwise(self) -> Iterator[Sketch]:
        """A further branch behind those that a condition has."""
        context, statement = self.context, self.statement
        if not isinstance(statement, ast.If) or statement.body[0].lineno == statement.lineno:
            return
        if statement.orelse and any(isinstance(one, ast.If) and context.is_elif(one) for one in statement.orelse):
            return
        at = context.lines(statement.body[-1])[1]
        if not context.source.text[:at].endswith(("\n", "\r")):
            return
        for share, row, template in self._rows():
            text = f":{self._line(1)}{row}{context.source.newline}"
            yield self._sketch((at, at), (self._head("elif "), text), template, share=0.8 * share)


def _joined(text: str) -> str:
    """An expression over several lines as one that can be compiled alone."""
    return f"({text})" if "\n" in text or "\r" in text else text


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
