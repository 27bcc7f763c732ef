"""Edits that follow from one that passed: the general form of a special case, and the same edit at sibling sites."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.python.source import PythonSource, PythonUnit
from codepilot.repair.python.upstream import upstream_rivals

_EQUALITY = re.compile(r" (==|!=) (-?\d+)(?![\w.])")
_PLAIN = frozenset(map(repr, (0, 1, -1, 2, "", True, False, None)))
"""Literals that are edges in any program."""
_EDGES = frozenset(map(repr, (0, 1, "", True, False, None)))
_DOWNWARD = (ast.Eq, ast.Is, ast.Lt, ast.LtE)
_BRANCHES = (ast.If, ast.IfExp, ast.While)
_ATOMS = (ast.Name, ast.Attribute, ast.Constant)
_WHOLES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_MOST_SITES = 20
_LEAST_SITE = 4


def general_rivals(proposal: Proposal) -> Iterator[Edit]:
    """What may be meant instead of an edit that passed, as its tests cannot tell the two apart."""
    yield from _comparisons(proposal)
    yield from upstream_rivals(proposal)


def _comparisons(proposal: Proposal) -> Iterator[Edit]:
    """The edit with a comparison in place of an equality with a number that it brings in: `== -1` → `< 0`."""
    edit = proposal.edit
    old, new = proposal.source.text[edit.start : edit.end], edit.replacement
    for match in _EQUALITY.finditer(new):
        if match.group() in old:
            continue
        value = int(match[2])
        rivals = {"==": ((f"<= {value}", f"< {value + 1}"), (f">= {value}", f"> {value - 1}"))}
        rivals["!="] = ((f"> {value}", f">= {value + 1}"), (f"< {value}", f"<= {value - 1}"))
        for plain, other in rivals[match[1]]:
            text = other if other.endswith(" 0") else plain
            yield Edit(edit.start, edit.end, f"{new[: match.start()]} {text}{new[match.end() :]}", edit.template)


def same_edit_elsewhere(proposal: Proposal) -> Edit | None:
    """The edit made at every place of the file that has the same text; None if there is no other."""
    source, edit = proposal.source, proposal.edit
    assert isinstance(source, PythonSource)
    start, end = _site(source, edit)
    text = source.text[start:end]
    if len(text.strip()) < _LEAST_SITE:
        return None
    spans = {source.span(node) for node in source.nodes if isinstance(node, ast.expr | ast.stmt)}
    places = [found.start() for found in re.finditer(re.escape(text), source.text) if found.span() in spans]
    if len(places) < 2 or len(places) > _MOST_SITES or start not in places:
        return None
    new = source.text[start : edit.start] + edit.replacement + source.text[edit.end : end]
    pieces, at = [], places[0]
    for place in places:
        pieces += [source.text[at:place], new]
        at = place + len(text)
    return Edit(places[0], places[-1] + len(text), "".join(pieces), edit.template)


def _site(source: PythonSource, edit: Edit) -> tuple[int, int]:
    """The smallest expression of several parts, or statement, around the edit: the text to look for elsewhere."""
    around = [
        source.span(node)
        for node in source.nodes
        if isinstance(node, ast.expr | ast.stmt) and not isinstance(node, (*_ATOMS, *_WHOLES))
    ]
    holding = [(end - start, start, end) for start, end in around if start <= edit.start and edit.end <= end]
    _, start, end = min(holding, default=(0, edit.start, edit.end))
    return start, end


def special_case(proposal: Proposal, literals: frozenset[str]) -> str:
    """The literal of the tests for which the edit makes a special case; empty if it does not.

    That is an equality of a parameter with a literal which only the tests have, or a branch that is no edge and answers
    with such a literal.
    """
    source, unit, edit = proposal.source, proposal.unit, proposal.edit
    if not isinstance(source, PythonSource) or not isinstance(unit, PythonUnit):
        return ""
    old, new = _parsed(unit.segment()), _parsed(unit.segment(edit))
    if old is None or new is None:
        return ""
    constants = [node.value for node in source.nodes if isinstance(node, ast.Constant)]
    texts = "\n".join(value for value in constants if isinstance(value, str))
    known = {*map(repr, constants), *_PLAIN, *re.findall(r"-?\d+", texts)}
    known |= {literal for literal in literals if literal[:1] in "'\"" and literal[1:-1] in texts}
    before = {ast.dump(node) for node in ast.walk(old)}
    parameters = {argument.arg for argument in ast.walk(new) if isinstance(argument, ast.arg)}
    brought = [node for node in ast.walk(new) if isinstance(node, ast.Compare) and ast.dump(node) not in before]
    for node in brought:
        sides = [node.left, *node.comparators]
        given = any(isinstance(side, ast.Name) and side.id in parameters for side in sides)
        if given and all(isinstance(sign, ast.Eq | ast.NotEq | ast.In | ast.NotIn | ast.Is) for sign in node.ops):
            own = [text for side in sides for text in _literals(side) if text in literals - known]
            if own:
                return own[0]
    if _branches(new) <= _branches(old) or all(map(_is_edge, brought)):
        return ""
    answers = [node.value for node in ast.walk(new) if isinstance(node, ast.Return | ast.Assign) and node.value]
    answers += [side for node in ast.walk(new) if isinstance(node, ast.IfExp) for side in (node.body, node.orelse)]
    return next((text for value in answers for text in _literals(value) if text in literals - known), "")


def _is_edge(node: ast.Compare) -> bool:
    """True if the comparison selects nothing, zero, one or what is below, or compares values with each other."""
    literals = {text for side in (node.left, *node.comparators) for text in _literals(side)}
    return not literals or (literals <= _EDGES and all(isinstance(sign, _DOWNWARD) for sign in node.ops))


def _branches(tree: ast.AST) -> int:
    return sum(isinstance(node, _BRANCHES) for node in ast.walk(tree))


def literals_of(tree: ast.AST) -> frozenset[str]:
    return frozenset(_literals(tree))


def _literals(tree: ast.AST) -> Iterator[str]:
    """The constants in a tree as they are shown, negative numbers with their sign."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            yield repr(node.value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            yield f"-{node.operand.value!r}"


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
