"""Values as a test writes them: plain literals, and classes called by their names.

What comes from inside is read as hostile input. `read` takes only what can do nothing but build a value;
`CodeStyle.written` gives it back in a file's own quotes and letters.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_TEXT = 400
MAX_POSITIONAL = 3
INHERENT = frozenset({"set", "frozenset", "bytearray", "range", "complex"})


def read(text: str) -> ast.expr | None:
    """The expression, or None if it is more than a literal, a container of such, or a class called with them."""
    if len(text) > MAX_TEXT:
        return None
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_value(tree) else None


def _is_value(node: ast.expr) -> bool:
    match node:
        case ast.Constant():
            return node.value is not Ellipsis
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            return all(map(_is_value, items))
        case ast.Dict(keys=keys, values=values):
            return all(key is not None and _is_value(key) for key in keys) and all(map(_is_value, values))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() | complex())):
            return True
        case ast.Attribute(value=ast.Name()):
            return True
        case ast.Call(func=ast.Name(), args=items, keywords=named):
            return all(map(_is_value, items)) and all(one.arg and _is_value(one.value) for one in named)
        case _:
            return False


def named(node: ast.expr) -> frozenset[str]:
    """The names that the value needs and that Python does not bring along."""
    return frozenset(part.id for part in ast.walk(node) if isinstance(part, ast.Name)) - INHERENT


def positional(node: ast.expr) -> ast.expr:
    """The same with short calls' keywords given by place, as people write them; whether it means the same is tried."""
    changed = _ByPlace().visit(ast.parse(ast.unparse(node), mode="eval").body)
    assert isinstance(changed, ast.expr)
    return ast.fix_missing_locations(changed)


class _ByPlace(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        if len(node.args) + len(node.keywords) <= MAX_POSITIONAL:
            node.args, node.keywords = [*node.args, *(one.value for one in node.keywords)], []
        return node


@dataclass(frozen=True)
class CodeStyle:
    """How a file writes: its quotes, whether it can hold letters beyond ASCII, and what it calls things."""

    quote: str = "'"
    wide: bool = True
    calls: Mapping[str, str] = field(default_factory=dict)

    def written(self, node: ast.expr) -> str:
        """The value as one line of source."""
        match node:
            case ast.Constant(value=str() as text):
                return self._text(text)
            case ast.Constant(value=bytes() as data):
                return "b" + _quoted(repr(data)[1:], self.quote)
            case ast.List(elts=items):
                return f"[{self._listed(items)}]"
            case ast.Set(elts=items):
                return "{" + ", ".join(sorted(map(self.written, items))) + "}"
            case ast.Tuple(elts=[one]):
                return f"({self.written(one)},)"
            case ast.Tuple(elts=items):
                return f"({self._listed(items)})"
            case ast.Dict(keys=keys, values=values):
                pairs = zip((key for key in keys if key is not None), values, strict=True)
                return "{" + ", ".join(f"{self.written(key)}: {self.written(value)}" for key, value in pairs) + "}"
            case ast.Call(func=func, args=items, keywords=keywords):
                given = [*map(self.written, items), *(f"{one.arg}={self.written(one.value)}" for one in keywords)]
                return f"{self.written(func)}({', '.join(given)})"
            case ast.Attribute(value=value, attr=name):
                return f"{self.written(value)}.{name}"
            case ast.Name(id=name):
                return self.calls.get(name, name)
            case _:
                return ast.unparse(node)

    def _listed(self, items: list[ast.expr]) -> str:
        return ", ".join(map(self.written, items))

    def _text(self, text: str) -> str:
        return _quoted(repr(text) if self.wide else ascii(text), self.quote)


def _quoted(shown: str, quote: str) -> str:
    """The same literal in the quotes that the file prefers, where that takes no escaping."""
    body = shown[1:-1]
    return shown if quote in body or "\\'" in body or '\\"' in body else f"{quote}{body}{quote}"
