"""A template: a name, the node types it handles, and a generator of replacements for such a node."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from codepilot.repair.edit import Edit
from codepilot.repair.python.context import Context

Proposals = Iterator[str | Edit | None]
"""A text replaces the node; an edit is used as it is; None means that the template does not fit there."""


@dataclass(frozen=True)
class Template:
    """One way to change a node. Better proposals come first; each costs nothing until it is asked for."""

    name: str
    nodes: tuple[type[ast.AST], ...]
    propose: Callable[[Any, Context], Proposals]

    def edits(self, node: ast.AST, context: Context) -> Iterator[Edit]:
        original = context.source.text
        for proposal in self.propose(node, context):
            edit = context.replace(node, proposal, self.name) if isinstance(proposal, str) else proposal
            if edit is None or original[edit.start : edit.end] == edit.replacement:
                continue
            if not any(start <= edit.start and edit.end <= end for start, end in context.endless):
                yield edit
