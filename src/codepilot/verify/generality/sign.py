"""A sign that a change answers its tests instead of the task."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from codepilot.core.artifacts import Concern
from codepilot.verify.review_checks import ChangedFile
from codepilot.verify.testcode import parsed

SINGLE_EXAMPLE = "single_example"
"""The rule of a sign that counts only if the tests call the function with one input."""
ONLY_TESTED = "only_when_tested"
"""The rule of a sign that counts only if the changed functions act otherwise where nothing tests them."""


class Sign(NamedTuple):
    """One finding.

    One that is not `certain` is dropped if the changed behaviour turns out to be general. A `weak` one counts only if
    the behaviour turns out to be special.
    """

    concern: Concern
    certain: bool
    weak: bool = False
    variants: tuple[str, ...] = ()
    """The file with what the sign speaks of taken out, in each way that leaves a program."""


def sign(
    rule: str,
    path: str,
    line: int,
    why: str,
    *,
    certain: bool = True,
    weak: bool = False,
    variants: tuple[str, ...] = (),
) -> Sign:
    return Sign(Concern(rule=rule, path=path, line=line, why=why), certain and not weak, weak, variants)


@dataclass
class PythonChange:
    """A Python file of the change: its trees, and which nodes the change brought."""

    file: ChangedFile
    tree: ast.Module
    old: ast.Module | None
    _counts: dict[tuple[bool, type[ast.AST]], Counter[str]] = field(default_factory=dict)

    @staticmethod
    def of(file: ChangedFile) -> PythonChange | None:
        tree = parsed(file.after)
        return None if tree is None else PythonChange(file, tree, parsed(file.before))

    @property
    def path(self) -> str:
        return self.file.path

    @cached_property
    def _source(self) -> tuple[bytes, list[int]]:
        """The text of the file and where each of its lines begins."""
        lines = (self.file.after or b"").splitlines(keepends=True)
        return b"".join(lines), list(accumulate((len(line) for line in lines), initial=0))

    def without(self, node: ast.AST, *texts: str) -> tuple[str, ...]:
        """The file with each of `texts` in the place of an expression, as far as that gives another program."""
        source, starts = self._source
        first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
        if first is None or last is None or last >= len(starts):
            return ()
        begin, end = starts[first - 1] + node.col_offset, starts[last - 1] + node.end_col_offset  # type: ignore[attr-defined]
        found = (source[:begin] + f"({text})".encode() + source[end:] for text in texts)
        return tuple(text.decode("utf-8", "replace") for text in found if self._differs(text))

    def _differs(self, text: bytes) -> bool:
        tree = parsed(text)
        return tree is not None and ast.dump(tree) != ast.dump(self.tree)

    @cached_property
    def lines(self) -> frozenset[int]:
        """The lines that the change wrote."""
        return frozenset(number for number, _ in self.file.added)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above

    def fresh(self, node: ast.AST) -> bool:
        """True if the change brought this node: it is on a changed line, and the file has more like it than before."""
        first = getattr(node, "lineno", None)
        if first is None or not self.lines.intersection(range(first, (getattr(node, "end_lineno", None) or first) + 1)):
            return False
        text = ast.dump(node)
        return self._count(type(node), new=True)[text] > self._count(type(node), new=False)[text]

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        """The nodes of these kinds that the change brought."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds) and self.fresh(node))

    def counted(self, *kinds: type[ast.AST]) -> int:
        """How many more nodes of these kinds there are than before."""
        old = ast.walk(self.old) if self.old is not None else iter(())
        return sum(isinstance(one, kinds) for one in ast.walk(self.tree)) - sum(isinstance(one, kinds) for one in old)

    def _count(self, kind: type[ast.AST], *, new: bool) -> Counter[str]:
        if (new, kind) not in self._counts:
            tree = self.tree if new else self.old
            walked = ast.walk(tree) if tree is not None else iter(())
            self._counts[new, kind] = Counter(ast.dump(node) for node in walked if type(node) is kind)
        return self._counts[new, kind]

    @cached_property
    def statements_before(self) -> frozenset[str]:
        """The simple statements of the base without the values of their constants."""
        walked = ast.walk(self.old) if self.old is not None else iter(())
        return frozenset(masked(node) for node in walked if isinstance(node, ast.stmt) and not hasattr(node, "body"))

    def corrects(self, node: ast.AST) -> bool:
        """True if the statement around `node` stood there before with other constants."""
        statement = next((one for one in (node, *self.ancestors(node)) if isinstance(one, ast.stmt)), None)
        return statement is not None and not hasattr(statement, "body") and masked(statement) in self.statements_before


def masked(node: ast.AST) -> str:
    """The shape of a node: its dump with the kind of each constant in place of its value."""
    if isinstance(node, ast.Constant):
        return type(node.value).__name__
    parts = (masked(child) for child in ast.iter_child_nodes(node))
    names = (str(getattr(node, name, "")) for name in ("id", "attr", "name", "arg"))
    return f"{type(node).__name__}{','.join(names)}({' '.join(parts)})"
