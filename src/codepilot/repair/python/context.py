"""The context of the place that a template edits: its text, the names in scope, and their likely kinds."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from codepilot.repair.backend import Failure
from codepilot.repair.edit import Edit
from codepilot.repair.python.kinds import BOOL, DICT, LIST, NUMBER, STRING, kinds_of
from codepilot.repair.python.precedence import ATOM, demand, strength, text_strength
from codepilot.repair.python.source import Function, PythonSource, PythonUnit

_MOST_OPERANDS = 24
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

__all__ = ["BOOL", "DICT", "LIST", "NUMBER", "STRING", "Context"]


@dataclass(frozen=True, eq=False)
class Context:
    """One outermost function (or, without a unit, the module's own statements) as templates see it."""

    source: PythonSource
    unit: PythonUnit | None
    failure: Failure = field(default_factory=Failure)
    files: Mapping[str, PythonSource] = field(default_factory=dict)
    """All files that the failing tests run."""

    @property
    def root(self) -> ast.AST:
        return self.unit.node if self.unit else self.source.tree

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.root))

    @cached_property
    def parents(self) -> dict[ast.AST, tuple[ast.AST, str]]:
        found: dict[ast.AST, tuple[ast.AST, str]] = {}
        for node in self.nodes:
            for name, value in ast.iter_fields(node):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        found[child] = (node, name)
        return found

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.parents[node][0] if node in self.parents else None

    def field_of(self, node: ast.AST) -> str:
        return self.parents[node][1] if node in self.parents else ""

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self.parents:
            node = self.parents[node][0]
            yield node

    def function_of(self, node: ast.AST) -> Function | None:
        return next((a for a in (node, *self.ancestors(node)) if isinstance(a, Function)), None)

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        parent = self.parents.get(statement)
        block = getattr(parent[0], parent[1]) if parent else []
        return block if isinstance(block, list) else []

    def in_loop(self, node: ast.AST) -> bool:
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, ast.For | ast.While | ast.AsyncFor):
                return True
            if isinstance(ancestor, Function):
                return False
        return False

    @cached_property
    def endless(self) -> tuple[tuple[int, int], ...]:
        """A final `while True` in a function that returns values: with another condition it would return None."""
        found = []
        for function in self.nodes:
            last = function.body[-1] if isinstance(function, Function) else None
            if not (isinstance(last, ast.While) and isinstance(last.test, ast.Constant) and last.test.value):
                continue
            if any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(last)):
                found.append(self.source.span(last.test))
        return tuple(found)

    # --- text -------------------------------------------------------------------------------------------------

    def text(self, node: ast.AST) -> str:
        return self.source.segment(node)

    def atom(self, node: ast.AST) -> str:
        """The node's text, in parentheses unless it binds as tightly as a name."""
        return self.at(node, ATOM)

    def at(self, node: ast.AST, level: int) -> str:
        """The node's text, in parentheses if it binds looser than `level`."""
        text = self.text(node)
        if isinstance(node, ast.Tuple) and text.startswith("("):
            return text
        return f"({text})" if strength(node) < level else text

    def replace(self, node: ast.AST, text: str, template: str) -> Edit:
        """Put an expression in place of another, in parentheses where what is around it asks for them."""
        start, end = self.source.span(node)
        if isinstance(node, ast.expr) and node in self.parents:
            needed = demand(*self.parents[node])
            if strength(node) >= needed and text_strength(text) < needed:
                text = f"({text})"
            if strength(node) < needed <= text_strength(text) and not text[0].isdigit():
                start, end = self._with_parentheses(start, end)
        return Edit(start, end, text, template)

    def _with_parentheses(self, start: int, end: int) -> tuple[int, int]:
        """The span with the parentheses that group it, if they touch it and no word touches them."""
        text = self.source.text
        grouped = text[start - 1 : start] == "(" and text[end : end + 1] == ")"
        joined = text[start - 2 : start - 1].isidentifier() or text[end + 1 : end + 2].isidentifier()
        return (start - 1, end + 1) if grouped and not joined else (start, end)

    def owns_lines(self, statement: ast.stmt) -> bool:
        """True if nothing else shares the statement's lines."""
        start, end = self.source.span(statement)
        first, last = self.first_line(statement), self.source.line_of(max(start, end - 1))
        after = self.source.text[end : self.source.line_end(last)].strip()
        before = self.source.text[self.source.line_start(self.source.line_of(start)) : start].strip()
        return not before and (not after or after.startswith("#")) and first > 0

    def first_line(self, statement: ast.stmt) -> int:
        decorators = statement.decorator_list if isinstance(statement, Function | ast.ClassDef) else []
        return min([statement.lineno, *(decorator.lineno for decorator in decorators)])

    def lines(self, statement: ast.stmt) -> tuple[int, int]:
        """The span of the statement's whole lines, newline included."""
        assert statement.end_lineno is not None
        return self.source.line_start(self.first_line(statement)), self.source.line_end(statement.end_lineno)

    def indent(self, statement: ast.stmt) -> str:
        return self.source.indentation(statement.lineno)

    @cached_property
    def step(self) -> str:
        """One level of indentation, as this function writes it."""
        for node in self.nodes:
            body = getattr(node, "body", None)
            if isinstance(node, ast.stmt) and isinstance(body, list) and body and body[0].lineno > node.lineno:
                outer, inner = self.source.indentation(node.lineno), self.source.indentation(body[0].lineno)
                if inner.startswith(outer) and inner != outer:
                    return inner[len(outer) :]
        return "    "

    def before(self, statement: ast.stmt, rows: Iterable[str], template: str) -> Edit | None:
        """Insert rows in front of a statement, at its indentation."""
        if not self.owns_lines(statement) or self.is_elif(statement):
            return None
        at = self.lines(statement)[0]
        text = "".join(self.indent(statement) + row + self.source.newline for row in rows)
        return Edit(at, at, text, template)

    def after(self, statement: ast.stmt, rows: Iterable[str], template: str) -> Edit | None:
        """Insert rows behind a statement, at its indentation."""
        if not self.owns_lines(statement) or self.is_elif(statement):
            return None
        at = self.lines(statement)[1]
        ended = self.source.text[:at].endswith(("\n", "\r"))
        text = "".join(self.indent(statement) + row + self.source.newline for row in rows)
        return Edit(at, at, text if ended else self.source.newline + text, template)

    def is_elif(self, statement: ast.stmt) -> bool:
        if not isinstance(statement, ast.If):
            return False
        start = self.source.span(statement)[0]
        return self.source.text.startswith("elif", start)

    # --- names ------------------------------------------------------------------------------------------------

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        node = self.unit.node if self.unit else None
        if node is None:
            return ()
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [extra for extra in (arguments.vararg, arguments.kwarg) if extra]
        return tuple(argument.arg for argument in every)

    @cached_property
    def locals(self) -> tuple[str, ...]:
        """Parameters and assigned names in order of appearance, comprehension variables left out."""
        if self.unit is None:
            return ()
        found = dict.fromkeys(self.parameters)
        for node in self.nodes:
            stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            if stored and not any(isinstance(a, _COMPREHENSIONS) for a in self.ancestors(node)):
                found[node.id] = None  # type: ignore[attr-defined]
            elif isinstance(node, Function) and node is not self.root:
                found.update(dict.fromkeys([node.name, *(a.arg for a in node.args.args)]))
            elif isinstance(node, ast.ExceptHandler) and node.name:
                found[node.name] = None
        return tuple(found)

    def names_at(self, node: ast.AST) -> tuple[str, ...]:
        """Local names in reach of a node, the nearest binding first, never `self`."""
        near: dict[str, None] = {}
        for ancestor in self.ancestors(node):
            if isinstance(ancestor, _COMPREHENSIONS):
                for generator in ancestor.generators:
                    near.update({n.id: None for n in ast.walk(generator.target) if isinstance(n, ast.Name)})
            elif isinstance(ancestor, ast.Lambda):
                near.update({argument.arg: None for argument in ancestor.args.args})
        near.update(dict.fromkeys(self.locals))
        over = self.stale_at(node)
        return tuple(name for name in sorted(near, key=over.__contains__) if name not in ("self", "cls"))

    @cached_property
    def _loops(self) -> tuple[tuple[ast.AST, frozenset[str]], ...]:
        """Each `for` loop with the names it binds and nothing else does."""
        loops = [node for node in self.nodes if isinstance(node, ast.For | ast.AsyncFor)]
        targets = [{one.id for one in ast.walk(loop.target) if isinstance(one, ast.Name)} for loop in loops]
        every = {one for loop in loops for one in ast.walk(loop.target)}
        other = {
            node.id
            for node in self.nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in every
        }
        known = other | set(self.parameters)
        return tuple((loop, frozenset(names - known)) for loop, names in zip(loops, targets, strict=True))

    def stale_at(self, node: ast.AST) -> frozenset[str]:
        """Names that may still hold something here, but belong to a loop that the node is not in."""
        around = {node, *self.ancestors(node)}
        inside = [names for loop, names in self._loops if loop in around]
        outside = [names for loop, names in self._loops if loop not in around]
        return frozenset().union(*outside) - frozenset().union(*inside)

    @cached_property
    def globals(self) -> tuple[str, ...]:
        """Names the module binds at its top level."""
        found: dict[str, None] = {}
        for node in self.source.tree.body:
            if isinstance(node, Function | ast.ClassDef):
                found[node.name] = None
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found.update({(alias.asname or alias.name).partition(".")[0]: None for alias in node.names})
            else:
                stores = (n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
                found.update({name.id: None for name in stores})
        return tuple(found)

    @cached_property
    def functions(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.source.tree.body if isinstance(node, Function))

    @property
    def attributes(self) -> dict[str, tuple[str, ...]]:
        return self.source.attributes

    def operands_at(self, node: ast.AST) -> list[str]:
        """Attributes of the names in reach that may be operands, those of the node's own object first."""
        used: dict[str, set[str]] = {}
        for part in self.nodes:
            value = part.value if isinstance(part, ast.Attribute) else None
            if isinstance(value, ast.Name) and not isinstance(self.parent(part), ast.Call):
                used.setdefault(value.id, set()).add(part.attr)  # type: ignore[attr-defined]
        own = node.value.id if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""
        records = [record for source in {self.source, *self.files.values()} for record in source.records]
        found: dict[str, None] = {}
        for name in sorted({own, *self.names_at(node)} & used.keys(), key=lambda name: name != own):
            known = used[name].union(*(record for record in records if used[name] <= record))
            found.update({f"{name}.{part}": None for part in sorted(known) if not part.startswith("__")})
        return list(found)[:_MOST_OPERANDS]

    @cached_property
    def class_members(self) -> tuple[tuple[str, bool], ...]:
        """Members of the class around this function, each with whether it is a method."""
        if self.unit is None or self.unit.class_name is None:
            return ()
        last = self.unit.class_name.rpartition(".")[2]
        found: dict[str, bool] = {}
        for node in self.source.nodes:
            if isinstance(node, ast.ClassDef) and node.name == last:
                for inner in ast.walk(node):
                    if isinstance(inner, Function):
                        plain = not inner.decorator_list
                        found.setdefault(inner.name, plain)
                    elif _sets_member(inner):
                        found.setdefault(inner.attr, False)  # type: ignore[attr-defined]
        return tuple((name, method) for name, method in found.items() if not name.startswith("__"))

    @cached_property
    def kinds(self) -> dict[str, set[str]]:
        """The likely kinds of names, by annotations and uses."""
        found: dict[str, set[str]] = {}
        for node in self.nodes:
            for name, kind in kinds_of(node):
                found.setdefault(name, set()).add(kind)
        return found

    def may_be(self, name: str, kind: str) -> bool:
        known = self.kinds.get(name)
        return not known or kind in known

    # --- pieces that could be used again ----------------------------------------------------------------------

    @cached_property
    def donors(self) -> tuple[ast.expr, ...]:
        """Expressions of this function worth using elsewhere in it, each text once, small ones first."""
        return self._expressions(self.root)

    @cached_property
    def file_donors(self) -> tuple[ast.expr, ...]:
        return self._expressions(self.source.tree)

    def _expressions(self, root: ast.AST) -> tuple[ast.expr, ...]:
        found: dict[str, ast.expr] = {}
        for node in ast.walk(root):
            wanted = isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.BinOp | ast.Compare | ast.UnaryOp)
            if wanted and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
                assert isinstance(node, ast.expr)
                text = self.text(node)
                if len(text) <= 60 and "\n" not in text:
                    found.setdefault(text, node)
        return tuple(sorted(found.values(), key=lambda node: (len(self.text(node)), node.lineno, node.col_offset)))

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """Conditions this function already tests, and their parts."""
        found: dict[str, None] = {}
        for node in self.nodes:
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                text = self.text(node.test)
                found[f"({text})" if isinstance(node.test, ast.NamedExpr) else text] = None
            if isinstance(node, ast.BoolOp):
                found.update({self.text(value): None for value in node.values})
            elif isinstance(node, ast.Compare):
                found[self.text(node)] = None
        return tuple(text for text in found if "\n" not in text and len(text) <= 80)

    @cached_property
    def strings(self) -> tuple[str, ...]:
        """String literals as the file writes them, this function's own first."""
        found: dict[str, None] = {}
        for nodes in (self.nodes, self.source.nodes):
            for node in nodes:
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= 40:
                    if isinstance(self.parents.get(node, (None,))[0], ast.Expr | ast.JoinedStr):
                        continue
                    found[repr(node.value)] = None
        return tuple(found)

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Number literals of this function, then of the file; hexadecimal and binary ones as they are written."""
        found: dict[str, str] = {}
        for nodes in (self.nodes, self.source.nodes):
            for node in nodes:
                if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                    text, plain = self.text(node), repr(node.value)
                    found.setdefault(plain, text if text.isalnum() and text[:2] in ("0x", "0b", "0o") else plain)
        return tuple(found.values())


def _sets_member(node: ast.AST) -> bool:
    stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    return stored and isinstance(node.value, ast.Name) and node.value.id == "self"  # type: ignore[attr-defined]
