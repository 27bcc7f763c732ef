"""What is left of working on code and does not belong in it: debugging output, breakpoints, notes to self."""

from __future__ import annotations

import ast
import re
from collections import Counter

MARKERS = re.compile(
    r"""(?:\#|//|/\*|^\s{0,80}\*|<!--|\"{3}|'{3}).{0,200}?\b(TODO|FIXME|XXX|HACK)\b
    | ^\s{0,80}(TODO|FIXME|XXX|HACK):\s""",
    re.VERBOSE,
)
"""Notes to self stand in comments; elsewhere the words may be the product's own."""
SPEAKING_NAME = re.compile(
    r"(?:^|/)(?:bin|scripts|tools)/"
    r"|(?:(?:^|[/_.-])(?:log|logger|logging|cli|console|main|__main__|cmd)|Logger|Console|Main|Cli)\.\w{1,10}$"
)
SPEAKING = re.compile(
    r"\A#!|^\s{0,40}print\(|\bargparse\b|\bsys\.argv\b|__main__|^import (?:click|typer)\b|process\.argv"
    r"|static void main\s?\(",
    re.MULTILINE,
)
DEBUG_LINES = re.compile(r"\bconsole\.(?:log|debug|trace)\s*\(|\bSystem\.(?:out|err)\.print|\.printStackTrace\s*\(")
BREAKPOINTS = re.compile(r"(?:^|[;{}])\s*debugger\s*(?:;|$)")
_DEBUGGING = ("print", "breakpoint", "set_trace")
DEBUG_MODULES = frozenset({"pdb", "ipdb", "pudb", "wdb", "remote_pdb"})


def speaks(path: str, before: bytes | None, after: bytes | None) -> bool:
    """Whether a file is there to be read from, so that what it prints is no leftover.

    It is a program or a logger, has printed all along, or is a new Python file.
    """
    if SPEAKING_NAME.search(path) or (before is None and path.endswith(".py")):
        return True
    told = ((after if before is None else before) or b"").decode("utf-8", "replace")
    return bool(SPEAKING.search(told) or (before is not None and DEBUG_LINES.search(told)))


def _directed(call: ast.Call) -> bool:
    """Whether a call says where its output goes, as debugging does not."""
    return any(word.arg == "file" for word in call.keywords)


def debug_calls(tree: ast.Module) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id in _DEBUGGING and not _directed(node):
                found[called.id] += 1
            elif isinstance(called, ast.Attribute) and called.attr == "set_trace":
                found["set_trace"] += 1
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name in DEBUG_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in DEBUG_MODULES:
            found[node.module] += 1
    return found
