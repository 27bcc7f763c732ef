"""A feature of edits: using an unused name of the function counts for an edit, leaving one unused counts against it."""

from __future__ import annotations

import ast

from codepilot.repair.edit import Edit
from codepilot.repair.python.source import Function, PythonUnit

_MEANT = frozenset({"self", "cls", "_"})
"""Names that are defined by convention, used or not."""
_READ_ALL = frozenset({"locals", "vars", "eval", "exec"})
"""Functions that read all names of their caller at once."""


def name_use(unit: PythonUnit, edit: Edit) -> int:
    """1 if the edit reads a parameter or variable that nothing read before, -1 if one falls idle by it, else 0."""
    if not unit.holds(edit):
        return 0
    before = idle_names(unit.segment())
    names, after = _names(unit.segment(edit))
    return bool(before & names - after) - bool(after - before)


def idle_names(text: str) -> frozenset[str]:
    """Names that the first function of the text is given or sets, and nothing in it reads."""
    return _names(text)[1]


def _names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The names that the first function of the text has, and those of them that are idle."""
    try:
        function = next((node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)), None)
    except (SyntaxError, ValueError, RecursionError):
        function = None
    if function is None:
        return frozenset(), frozenset()
    nodes = list(ast.walk(function))
    given = {part.arg for part in ast.walk(function.args) if isinstance(part, ast.arg)}
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    elsewhere = {name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    own = frozenset((given | stored) - elsewhere - _MEANT)
    return own, frozenset() if read & _READ_ALL else own - read
