"""Enumerates single edits in order of suspicion and prior, lazily.

Three lazy levels: a function waits with the best score anything in it could have, then its statements do, then
its templates at their nodes. The order depends on nothing but the files, the suspicion and the templates.
"""

from __future__ import annotations

import ast
import heapq
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from codepilot.repair.backend import Failure
from codepilot.repair.edit import Edit, Proposal, Source, Unit
from codepilot.repair.localise import Suspicion
from codepilot.repair.python.context import Context
from codepilot.repair.python.priors import DECAY, PRIORS, UNSEEN, penalty
from codepilot.repair.python.source import PythonSource, PythonUnit
from codepilot.repair.python.templates import TEMPLATES, Template

_BEST_PRIOR = max(PRIORS.values())
_MAY_IDLE = re.compile(r"[-+*/<>=!]|\band\b|\bor\b|^[\w.\[\]]*$")
_BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith, ast.TryStar)
_MAY_BE_IDLE = frozenset({ast.BoolOp, ast.Compare, ast.Expr, ast.BinOp})
_MAX_NODES = 1000
"""A statement of more is data: each edit of it would parse all of it, and hardly one would be right."""
_COMPOUND = (*_BLOCKS, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Match)


def candidates(
    sources: Mapping[str, PythonSource],
    suspicion: Suspicion,
    failure: Failure,
    templates: tuple[Template, ...] = TEMPLATES,
    wanted: Callable[[Source, Unit | None], bool] = lambda source, unit: True,
) -> Iterator[Proposal]:
    """Every distinct edit of the sources that parses, best first.

    Only edits within functions that are `wanted` are made; None stands for what lies outside of functions.
    """
    seen: set[int] = set()
    position = 0
    for score, context, edit, statement in _Heap(sources, suspicion, failure, templates, wanted):
        unit = context.unit or context.source.unit_at(edit.start)
        unit = unit if unit is not None and unit.holds(edit) else None
        key = _normal_form(context.source, statement, edit) if wanted(context.source, unit) else None
        if key is None or key in seen:
            continue
        seen.add(key)
        yield Proposal(position, context.source, unit, edit, score, statement.lineno, overfit_penalty=penalty(edit))
        position += 1


def _normal_form(source: PythonSource, statement: ast.stmt, edit: Edit) -> int | None:
    """Names the program that the edit gives, whatever its spelling; None if it is not one, or says nothing new."""
    start, end = _head(source, statement)
    if start <= edit.start and edit.end <= end:
        text = source.text
        tree = _parse(_alone(text[start : edit.start] + edit.replacement + text[edit.end : end]))
        if tree is not None and len(tree.body) == 1:
            idle: list[ast.AST] = []
            form = shape(tree.body[0], idle)
            if idle and _MAY_IDLE.search(edit.replacement) and len(idle) > _idles_before(source, start, end):
                return None
            return hash((source.path, start, form))
    whole = source.text[: edit.start] + edit.replacement + source.text[edit.end :]
    lines = _parse(_lines_around(source, statement, edit))
    if lines is None or not lines.body:
        unit = source.unit_at(edit.start)
        alone = unit.segment(edit) if isinstance(unit, PythonUnit) and unit.holds(edit) else whole
        if _parse(alone) is None:
            return None
    return hash((source.path, -1, whole))


def _lines_around(source: PythonSource, statement: ast.stmt, edit: Edit) -> str:
    """The lines of the statement and the edit: if they make sense alone, they do in their place. Else it takes more."""
    assert statement.end_lineno is not None
    last = source.line_of(edit.end)
    last -= last > statement.end_lineno and edit.end == source.line_start(last)
    start = source.line_start(min(statement.lineno, source.line_of(edit.start)))
    end = source.line_end(max(statement.end_lineno, last))
    text = source.text[start : edit.start] + edit.replacement + source.text[edit.end : end]
    return "if 1:\n" + text if text[:1].isspace() else text


def shape(node: ast.AST, idle: list[ast.AST] | None = None) -> tuple[object, ...]:
    """The tree without its places: the same for every spelling of a program. Takes note of what is `idle` in it."""
    kind = node.__class__
    parts: list[object] = [kind]
    if idle is not None and kind in _MAY_BE_IDLE and _idle(node):
        idle.append(node)
    for name in kind._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            parts.append(tuple([shape(one, idle) if isinstance(one, ast.AST) else one for one in value]))
        elif isinstance(value, ast.expr_context):
            continue
        elif isinstance(value, ast.AST):
            parts.append(shape(value, idle))
        else:
            # 1, 1.0 and True are equal, yet not the same program.
            parts += (value.__class__, value)
    return tuple(parts)


@lru_cache(maxsize=4096)
def _idles_before(source: PythonSource, start: int, end: int) -> int:
    tree = _parse(_alone(source.text[start:end]))
    return idle_operations(tree) if tree is not None else 0


def _head(source: PythonSource, statement: ast.stmt) -> tuple[int, int]:
    """The span of a statement without the statements inside it."""
    start, end = source.span(statement)
    body = getattr(statement, "body", None)
    if isinstance(statement, _COMPOUND) and isinstance(body, list) and body:
        end = source.text.rfind(":", start, source.span(body[0])[0]) + 1
    return start, max(start, end)


def _alone(text: str) -> str:
    text = text.removeprefix("el") if text.startswith("elif") else text
    return f"{text} pass" if text.endswith(":") else text


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def idle_operations(tree: ast.AST) -> int:
    """Operations that say nothing (`x * 1`, `x - 0`, `x - 1 + 1`, `x and x`): a plainer edit says the same."""
    idle: list[ast.AST] = []
    shape(tree, idle)
    return len(idle)


def _idle(node: ast.AST) -> bool:
    if isinstance(node, ast.BoolOp):
        return len({shape(value) for value in node.values}) < len(node.values)
    if isinstance(node, ast.Compare):
        one, other = node.left, node.comparators[0]
        return len(node.ops) == 1 and one.__class__ is other.__class__ and shape(one) == shape(other)
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Name | ast.Attribute | ast.Subscript)
    if not isinstance(node, ast.BinOp):
        return False
    right = node.right.value if isinstance(node.right, ast.Constant) else None
    if isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv | ast.Pow) and right == 1 and not isinstance(right, bool):
        return True
    if isinstance(node.op, ast.Add | ast.Sub):
        inner = node.left
        nested = isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add | ast.Sub)
        known = isinstance(right, int) and isinstance(inner, ast.BinOp) and isinstance(inner.right, ast.Constant)
        return right == 0 or (nested and known)
    return False


@dataclass
class _Entry:
    """Something waiting in the heap with the best score it could give."""

    context: Context
    statement: ast.stmt | None = None
    weight: float = 0.0
    edits: Iterator[Edit] | None = None
    count: int = 0
    prior: float = 0.0


class _Heap:
    def __init__(
        self,
        sources: Mapping[str, PythonSource],
        suspicion: Suspicion,
        failure: Failure,
        templates: tuple[Template, ...],
        wanted: Callable[[Source, Unit | None], bool],
    ) -> None:
        self._suspicion = suspicion
        self._wanted = wanted
        self._templates = templates
        self._by_kind: dict[type[ast.AST], list[Template]] = {}
        self._heap: list[tuple[float, int, _Entry]] = []
        self._pushed = 0
        for path in sorted(sources):
            source = sources[path]
            for unit in source.units:
                weight = suspicion.of(path, unit.lines)
                if weight > 0 and wanted(source, unit):
                    self._push(weight * _BEST_PRIOR, _Entry(Context(source, unit, failure, sources)))
            self._push_module(source, failure)

    def _push(self, bound: float, entry: _Entry) -> None:
        heapq.heappush(self._heap, (-bound, self._pushed, entry))
        self._pushed += 1

    def _push_module(self, source: PythonSource, failure: Failure) -> None:
        """Statements outside functions whose names the suspicious functions use, and their signatures."""
        context = Context(source, None, failure)
        weights: dict[str, float] = {}
        for unit in source.units:
            weight = self._suspicion.of(source.path, unit.lines)
            if weight > 0:
                for node in ast.walk(unit.node):
                    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)
                    if isinstance(name, str):
                        weights[name] = max(weights.get(name, 0.0), weight)
                self._push(weight * UNSEEN * 2, _Entry(context, unit.node, weight * UNSEEN * 2))
        for statement, names in _module_statements(source.tree.body) if self._wanted(source, None) else ():
            weight = max((weights.get(name, 0.0) for name in names), default=0.0)
            if weight > 0:
                self._push(weight * UNSEEN * _BEST_PRIOR, _Entry(context, statement, weight * UNSEEN))

    def __iter__(self) -> Iterator[tuple[float, Context, Edit, ast.stmt]]:
        while self._heap:
            bound, _, entry = heapq.heappop(self._heap)
            if entry.edits is not None:
                edit = next(entry.edits, None)
                if edit is not None:
                    assert entry.statement is not None
                    yield -bound, entry.context, edit, entry.statement
                    entry.count += 1
                    self._push(entry.weight * entry.prior / (1 + DECAY * entry.count), entry)
            elif entry.statement is not None:
                self._open_statement(entry.context, entry.statement, entry.weight)
            else:
                self._open_function(entry.context)

    def _open_function(self, context: Context) -> None:
        assert context.unit is not None
        for statement in ast.walk(context.unit.node):
            if isinstance(statement, ast.stmt) and statement is not context.unit.node:
                weight = self._suspicion.of(context.source.path, _own_lines(statement))
                if weight > 0:
                    self._push(weight * _BEST_PRIOR, _Entry(context, statement, weight))

    def _open_statement(self, context: Context, statement: ast.stmt, weight: float) -> None:
        own = _signature(statement) if statement in _functions(context) else _own_nodes(statement)
        nodes = list(itertools.islice(own, _MAX_NODES + 1))
        if len(nodes) > _MAX_NODES:
            return
        for node in nodes:
            for template in self._fitting(type(node)):
                prior = PRIORS[template.name]
                edits = template.edits(node, context)
                self._push(weight * prior, _Entry(context, statement, weight, edits, 0, prior))

    def _fitting(self, kind: type[ast.AST]) -> list[Template]:
        """The templates that look at such nodes."""
        if kind not in self._by_kind:
            self._by_kind[kind] = [template for template in self._templates if issubclass(kind, template.nodes)]
        return self._by_kind[kind]


def _functions(context: Context) -> set[ast.stmt]:
    return {unit.node for unit in context.source.units} if context.unit is None else set()


def _signature(function: ast.stmt) -> Iterator[ast.AST]:
    """A function's own head: defaults and decorators, not its body."""
    yield function
    arguments = getattr(function, "args", None)
    for default in [*arguments.defaults, *arguments.kw_defaults] if arguments else []:
        if default is not None:
            yield from ast.walk(default)


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The statement and its expressions in order of appearance, without the statements inside it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]
        waiting += reversed(children)


def _own_lines(statement: ast.stmt) -> range:
    """The lines that belong to the statement itself: its head, if it has a body."""
    assert statement.end_lineno is not None
    body = getattr(statement, "body", None)
    if isinstance(statement, _COMPOUND) and isinstance(body, list) and body:
        return range(statement.lineno, max(statement.lineno + 1, body[0].lineno))
    return range(statement.lineno, statement.end_lineno + 1)


def _module_statements(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, list[str]]]:
    """Assignments of modules and classes, with the names they bind."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
            yield node, names
        elif isinstance(node, ast.ClassDef):
            yield from _module_statements(node.body)
