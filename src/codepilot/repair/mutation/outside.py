"""Mutants of changed lines outside of functions: tables, class bodies, constants. Each loads its module anew."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping

from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.python.source import PythonSource

MAX_EDITS = 60
UNTESTED = frozenset({"__all__", "__version__", "__author__", "__slots__"})
"""Names whose values tests rarely look at."""
_FLIPPED: Mapping[type[ast.AST], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.BitOr: "&",
    ast.BitAnd: "|",
    ast.Lt: ">=",
    ast.Gt: "<=",
    ast.Eq: "!=",
    ast.NotEq: "==",
}


def outside(
    sources: Mapping[str, PythonSource], before: Mapping[str, PythonSource], lines: Mapping[str, set[int]]
) -> list[Proposal]:
    """Changed blocks taken back, elements taken out, and literals replaced, on `lines` outside of functions.

    What the base does not have comes first.
    """
    found: list[Proposal] = []
    for path, source in sources.items():
        inside = {line for unit in source.units for line in range(unit.first_line, unit.lines.stop)}
        wanted = lines.get(path, set()) - inside
        known = before[path].text if path in before else ""
        edits = dict.fromkeys([*_taken_back(source, before.get(path), wanted), *_edits(source, wanted)])
        for edit in sorted(edits, key=lambda one: source.text[one.start : one.end] in known)[:MAX_EDITS]:
            if edit.replacement != source.text[edit.start : edit.end] and _parses(source, edit):
                found.append(Proposal(len(found), source, None, edit, 1.0, source.line_of(edit.start)))
    return found


def _taken_back(source: PythonSource, before: PythonSource | None, wanted: set[int]) -> Iterator[Edit]:
    """The base's lines in the place of each block of changed ones."""
    if before is None or not wanted:
        return
    old, new = before.text.splitlines(keepends=True), source.text.splitlines(keepends=True)
    for kind, first, last, start, end in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if kind != "equal" and set(range(start + 1, end + 1)) & wanted:
            begin = source.line_start(start + 1)
            yield Edit(begin, begin + len("".join(new[start:end])), "".join(old[first:last]), "outside.take_back")


def _edits(source: PythonSource, wanted: set[int]) -> Iterator[Edit]:
    aside = {id(part) for node in source.nodes for one in _aside(node) for part in ast.walk(one)}
    for node in source.nodes:
        if getattr(node, "lineno", 0) not in wanted or id(node) in aside:
            continue
        if isinstance(node, ast.Constant):
            yield from (Edit(*source.span(node), text, "outside.literal") for text in _others(node.value))
        elif isinstance(node, ast.BinOp | ast.Compare):
            op = node.op if isinstance(node, ast.BinOp) else node.ops[0]
            right = node.right if isinstance(node, ast.BinOp) else node.comparators[0]
            begin, end = source.span(node.left)[1], source.span(right)[0]
            if type(op) in _FLIPPED and "(" not in source.text[begin:end] and ")" not in source.text[begin:end]:
                yield Edit(begin, end, f" {_FLIPPED[type(op)]} ", "outside.operator")
        elif isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            yield from _without(source, node, wanted)


def _aside(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that tests cannot notice: documentation, types, lists of names."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return [node.value]
    if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
        return [node.annotation]
    if isinstance(node, ast.Assign) and any(getattr(one, "id", "") in UNTESTED for one in node.targets):
        return [node.value]
    return []


def _without(source: PythonSource, node: ast.expr, wanted: set[int]) -> Iterator[Edit]:
    """A collection without each of its elements on the changed lines."""
    elements: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(node, ast.Dict):
        elements = [(one, value) for one, value in zip(node.keys, node.values, strict=True) if one is not None]
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        elements = [(one, one) for one in node.elts]
    for first, last in elements if len(elements) > 1 else ():
        if first.lineno in wanted:
            begin, end = source.span(first)[0], source.span(last)[1]
            after = source.text[end : end + 1]
            yield Edit(begin, end + (after == ","), "", "outside.element")


def _others(value: object) -> list[str]:
    if isinstance(value, bool):
        return [repr(not value)]
    if isinstance(value, int):
        return [repr(value + 1), repr(value - 1)]
    if isinstance(value, float):
        return [repr(value * 2 + 1)]
    if isinstance(value, str):
        return [repr(value[:-1]), repr(value[1:])] if len(value) > 1 else [repr("mutant")]
    if isinstance(value, bytes):
        return [repr(value[:-1] or b"mutant")]
    return ["0"] if value is None else []


def _parses(source: PythonSource, edit: Edit) -> bool:
    content = source.apply(edit)
    try:
        return content is not None and ast.dump(ast.parse(content)) != ast.dump(source.tree)
    except (SyntaxError, ValueError, RecursionError):
        return False
