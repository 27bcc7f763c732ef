"""Python source files as syntax trees, and their functions."""

from __future__ import annotations

import ast
import codecs
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from codepilot.repair.edit import Edit, Source, Sources, Unit, Unreadable

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, eq=False)
class PythonSource(Source):
    tree: ast.Module = field(repr=False)

    @classmethod
    def read(cls, path: str, data: bytes) -> PythonSource:
        """Decode as Python would (PEP 263, byte order mark) and parse."""
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            encoding = "utf-8" if encoding == "utf-8-sig" else encoding
            text = cls.decoded(data, encoding)
            if text.encode(encoding) != data.removeprefix(codecs.BOM_UTF8):
                raise Unreadable(f"{path} does not survive decoding as {encoding}")
            tree = ast.parse(text)
        except (SyntaxError, ValueError, LookupError, RecursionError) as error:
            raise Unreadable(f"{path}: {error}") from error
        return cls(path, data, text, encoding, tree)

    @cached_property
    def _rows(self) -> dict[int, bytes]:
        """Lines as the parser counts their columns; empty where that is by characters."""
        return {}

    @cached_property
    def future(self) -> tuple[str, ...]:
        """The module's `__future__` imports, which code compiled alone needs as well."""
        imports = (node for node in self.tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__")
        return tuple(alias.name for node in imports for alias in node.names)

    @cached_property
    def constants(self) -> frozenset[str]:
        """The file's literals as they are written."""
        return frozenset(repr(node.value) for node in ast.walk(self.tree) if isinstance(node, ast.Constant))

    def offset(self, line: int, column: int) -> int:
        """Characters before this place; `column` counts UTF-8 bytes, as the parser does."""
        row = self._rows.get(line)
        if row is None:
            text = self.text[self.line_start(line) : self.line_end(line)]
            row = self._rows[line] = b"" if text.isascii() else text.encode()
        return self._starts[line - 1] + (len(row[:column].decode(errors="ignore")) if row else column)

    def span(self, node: ast.AST) -> tuple[int, int]:
        place = node
        assert isinstance(place, ast.expr | ast.stmt | ast.arg | ast.keyword | ast.excepthandler | ast.alias)
        assert place.end_lineno is not None and place.end_col_offset is not None
        return self.offset(place.lineno, place.col_offset), self.offset(place.end_lineno, place.end_col_offset)

    def segment(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def indentation(self, line: int) -> str:
        row = self.text[self.line_start(line) : self.line_end(line)]
        return row[: len(row) - len(row.lstrip(" \t\f"))]

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree: walking it anew for each function would take longer than trying candidates."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def attributes(self) -> dict[str, tuple[str, ...]]:
        """For each name, the attributes that the file takes of it (those called as methods included)."""
        found: dict[str, dict[str, None]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                found.setdefault(node.value.id, {})[node.attr] = None
        return {base: tuple(names) for base, names in found.items()}

    @cached_property
    def records(self) -> tuple[frozenset[str], ...]:
        """The attributes of each class that hold values: annotated in its body, set on `self`, or properties."""
        return tuple(_fields(node) for node in self.nodes if isinstance(node, ast.ClassDef))

    @cached_property
    def units(self) -> tuple[PythonUnit, ...]:
        """Every outermost function: at module level, in classes, and in blocks of those."""
        return tuple(_units(self, self.tree.body, ()))


@dataclass(frozen=True, eq=False)
class PythonUnit(Unit):
    """An outermost function: the smallest piece that can be compiled alone and put in place of the living one.

    `headers` are the lines that give its text the same place when compiled by itself: a `class X:` for each
    class around it, an `if 1:` for each other block.
    """

    source: PythonSource = field(repr=False)
    node: Function = field(repr=False)
    headers: tuple[str, ...]
    body_start: int

    @property
    def first_line(self) -> int:
        """The first line by its code object: that of its first decorator."""
        return min([self.node.lineno, *(decorator.lineno for decorator in self.node.decorator_list)])

    @property
    def lines(self) -> range:
        assert self.node.end_lineno is not None
        return range(self.node.lineno, self.node.end_lineno + 1)

    @property
    def line_shift(self) -> int:
        """The offset to add to line numbers of the compiled segment."""
        return self.node.lineno - len(self.headers) - 1

    @property
    def class_name(self) -> str | None:
        return self.qualname.rpartition(".")[0] or None

    @property
    def body_place(self) -> int:
        """The start of the body in the segment. An edit before it changes how the function is called."""
        return self.place(Edit(self.body_start, self.body_start, "", ""))[0]

    def place(self, edit: Edit) -> tuple[int, int]:
        """The edit's position in the segment."""
        before = sum(len(header) + 1 for header in self.headers) - self.start
        return edit.start + before, edit.end + before

    def segment(self, edit: Edit | None = None) -> str:
        """The function's text, with the edit made, ready to be compiled alone."""
        text = self.source.text
        if edit is None:
            body = text[self.start : self.end]
        else:
            body = text[self.start : edit.start] + edit.replacement + text[edit.end : self.end]
        return "".join(header + "\n" for header in self.headers) + body

    def message(self) -> dict[str, Any]:
        """The function as `inside/code_swap.py` takes it."""
        return {
            "path": self.source.path,
            "segment": self.segment(),
            "body": self.body_place,
            "qualname": self.qualname,
            "line": self.first_line,
            "shift": self.line_shift,
            "future": list(self.source.future),
        }


def _units(source: PythonSource, body: list[ast.stmt], around: tuple[tuple[str, str], ...]) -> Iterator[PythonUnit]:
    for node in body:
        indent = source.indentation(node.lineno)
        if isinstance(node, Function):
            classes = [name for name, _ in around if name]
            headers = tuple(f"{space}class {name}:" if name else f"{space}if 1:" for name, space in around)
            first = node.body[0]
            # The decorators of a first nested definition lie before its own line.
            nested = first.decorator_list if isinstance(first, Function | ast.ClassDef) else []
            line = min([first.lineno, *(decorator.lineno for decorator in nested)])
            own_line = bool(nested) or not source.text[source.line_start(line) : source.span(first)[0]].strip()
            assert node.end_lineno is not None
            yield PythonUnit(
                source=source,
                node=node,
                qualname=".".join([*classes, node.name]),
                headers=headers,
                start=source.line_start(node.lineno),
                end=source.line_end(node.end_lineno),
                body_start=source.line_start(line) if own_line else source.span(first)[0],
            )
        elif isinstance(node, ast.ClassDef):
            yield from _units(source, node.body, (*around, (node.name, indent)))
        else:
            for block in ("body", "orelse", "finalbody"):
                yield from _units(source, getattr(node, block, []), (*around, ("", indent)))
            for handler in getattr(node, "handlers", []):
                yield from _units(source, handler.body, (*around, ("", indent)))


def _fields(node: ast.ClassDef) -> frozenset[str]:
    found = {row.target.id for row in node.body if isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name)}
    found |= {row.name for row in node.body if isinstance(row, Function) and _is_property(row)}
    for part in ast.walk(node):
        stored = isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
        if stored and isinstance(part.value, ast.Name) and part.value.id == "self":  # type: ignore[attr-defined]
            found.add(part.attr)  # type: ignore[attr-defined]
    return frozenset(found)


def _is_property(node: Function) -> bool:
    return any(getattr(one, "id", getattr(one, "attr", "")).endswith("property") for one in node.decorator_list)


def python_sources(sources: Sources) -> dict[str, PythonSource]:
    return {path: source for path, source in sources.items() if isinstance(source, PythonSource)}
