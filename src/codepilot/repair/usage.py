"""What an edit makes of a function's own names: one that comes to use speaks for it, one that falls idle against it."""

from __future__ import annotations

import ast

from codepilot.repair.source import Edit, Function, Unit

_MEANT = frozenset({"self", "cls", "_"})
"""Names that are meant to be there whether or not anything reads them."""


def put_to_use(unit: Unit | None, edit: Edit) -> int:
    """1 if the edit reads more of the function's parameters and variables than before, -1 if fewer, else 0."""
    if unit is None or not unit.holds(edit):
        return 0
    before, after = idle_names(unit.segment()), idle_names(unit.segment(edit))
    return (len(before - after) > 0) - (len(after - before) > 0)


def idle_names(text: str) -> frozenset[str]:
    """Names that the first function of the text is given or sets, and nothing in it reads."""
    try:
        function = next((node for node in ast.walk(ast.parse(text)) if isinstance(node, Function)), None)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    if function is None or _reads_all(function):
        return frozenset()
    given = {part.arg for part in ast.walk(function.args) if isinstance(part, ast.arg)}
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    stored = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    read = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    shared = {name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    return frozenset((given | stored) - read - shared - _MEANT)


def _reads_all(function: Function) -> bool:
    """Whether it looks at its names as a whole, as `locals()` and `super()` of old do."""
    return any(
        isinstance(node, ast.Name) and node.id in ("locals", "vars", "eval", "exec") for node in ast.walk(function)
    )
