"""Refuses actions of a build that would run what it generates before the platform has scanned it.

The sandbox is the boundary. This keeps the order: files are written, scanned, asked about, and only then run.
"""

from __future__ import annotations

import ast
import sys

from codepilot.skills import Finding

RULE = "build.unscanned"
WHY = "programs of a build run after they were scanned, when you have given your result. Only write and read files here"
RUNNERS = frozenset(
    {"subprocess", "multiprocessing", "runpy", "importlib", "imp", "code", "codeop", "unittest", "doctest"}
)
RUNNING = frozenset({"exec", "eval", "compile", "__import__"})


def unscanned(code: str) -> tuple[Finding, ...]:
    """The places where an action imports or starts something other than the standard library."""
    try:
        tree = ast.parse(code, "<action>")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    lines = code.splitlines()
    found = []
    for node in ast.walk(tree):
        if not _runs(node):
            continue
        line = getattr(node, "lineno", 1)
        source = lines[line - 1].strip()[:300] if 0 < line <= len(lines) else ""
        found.append(Finding(RULE, line, WHY, source, True))
    return tuple(found)


def _runs(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(_is_foreign(alias.name) for alias in names)
        case ast.ImportFrom(module=module, level=level):
            return bool(level) or _is_foreign(module or "")
        case ast.Call(func=ast.Name(id=name)):
            return name in RUNNING
        case _:
            return False


def _is_foreign(module: str) -> bool:
    first = module.partition(".")[0]
    return first in RUNNERS or first not in sys.stdlib_module_names
