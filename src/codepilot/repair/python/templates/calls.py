"""Calls: other functions and methods of the same kind, arguments, wrapping and unwrapping."""

from __future__ import annotations

import ast

from codepilot.repair.python.context import LIST, NUMBER, STRING, Context
from codepilot.repair.python.templates.template import Proposals, Template

_FUNCTIONS = (
    "min max sum sorted",
    "any all",
    "sorted list reversed set tuple",
    "len sum max",
    "int float round str abs bool",
    "ceil floor trunc round",
    "enumerate zip range",
    "str repr",
    "isinstance issubclass",
    "map filter",
    "dict list set",
    "chr ord",
    "ValueError TypeError KeyError IndexError RuntimeError",
)
_METHODS = (
    "append extend add insert",
    "lower upper title capitalize casefold swapcase",
    "strip lstrip rstrip",
    "startswith endswith",
    "find rfind index rindex count",
    "split rsplit partition rpartition splitlines",
    "keys values items",
    "isdigit isnumeric isalpha isalnum isdecimal",
    "isupper islower istitle isspace",
    "pop popleft popitem remove discard",
    "append appendleft",
    "extend extendleft update",
    "union intersection difference symmetric_difference",
    "issubset issuperset isdisjoint",
    "get setdefault pop",
    "ljust rjust center zfill",
    "floor ceil",
    "search match fullmatch findall",
    "copy deepcopy",
    "read readline readlines",
    "sort reverse",
    "removeprefix removesuffix lstrip rstrip",
)


def _kin(name: str, groups: tuple[str, ...]) -> list[str]:
    found = [other for group in groups if name in group.split() for other in group.split()]
    return [other for other in dict.fromkeys(found) if other != name]


def function(node: ast.Name, context: Context) -> Proposals:
    """`min` → `max` and other functions of a kind."""
    if isinstance(node.ctx, ast.Load):
        yield from _kin(node.id, _FUNCTIONS)


def method(node: ast.Attribute, context: Context) -> Proposals:
    for other in _kin(node.attr, _METHODS):
        yield f"{context.atom(node.value)}.{other}"


def swap_arguments(node: ast.Call, context: Context) -> Proposals:
    texts = [context.text(argument) for argument in node.args]
    for one in range(len(texts)):
        for other in range(one + 1, len(texts)):
            changed = list(texts)
            changed[one], changed[other] = changed[other], changed[one]
            yield _call(node, changed, context)
    if len(texts) == 1 and isinstance(node.func, ast.Attribute) and isinstance(node.args[0], ast.Name | ast.Attribute):
        yield f"{texts[0]}.{node.func.attr}({context.text(node.func.value)})"


def _call(node: ast.Call, arguments: list[str], context: Context) -> str:
    named = [context.text(keyword) for keyword in node.keywords]
    return f"{context.text(node.func)}({', '.join([*arguments, *named])})"


def drop_argument(node: ast.Call, context: Context) -> Proposals:
    texts = [context.text(argument) for argument in node.args]
    for index in range(len(texts)):
        yield _call(node, texts[:index] + texts[index + 1 :], context)
    for dropped in node.keywords:
        named = [context.text(keyword) for keyword in node.keywords if keyword is not dropped]
        yield f"{context.text(node.func)}({', '.join([*texts, *named])})"


def add_argument(node: ast.Call, context: Context) -> Proposals:
    """Options that change what well-known calls do, then names in reach."""
    texts = [context.text(argument) for argument in node.args]
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    given = {keyword.arg for keyword in node.keywords}
    options: list[str] = []
    if name in ("sorted", "sort"):
        options = ["reverse=True", "key=len", "key=str", "key=abs", "key=lambda x: x[1]", "key=lambda x: x[0]"]
        options += ["key=str.lower", "key=lambda x: -x", "key=lambda x: (x[1], x[0])", "key=lambda x: (-x[1], x[0])"]
    elif name in ("min", "max"):
        options = ["key=len", "default=None", "default=0", "key=abs"]
    elif name in ("split", "rsplit"):
        options = ["' '", "','", "None, 1"] if not texts else ["1"]
    elif name in ("pop", "enumerate", "round", "sum", "next", "strip", "print"):
        options = {"pop": ["0", "None", "-1"], "enumerate": ["1"], "round": ["1", "2"], "next": ["None"]}.get(name, [])
    for option in options:
        if option.partition("=")[0] not in given:
            yield _call(node, [*texts, option], context)
    inner = _parameters(name, context)
    for parameter in inner[len(texts) :]:
        if parameter not in given:
            for value in (parameter, *context.names_at(node), "True", "False", "1", "0"):
                if value != parameter or parameter in context.names_at(node):
                    yield _call(node, [*texts, f"{parameter}={value}"], context)


def _parameters(name: str, context: Context) -> list[str]:
    for unit in (*context.source.units, *(unit for other in context.files.values() for unit in other.units)):
        if unit.node.name == name:
            arguments = [argument.arg for argument in (*unit.node.args.posonlyargs, *unit.node.args.args)]
            return arguments[1:] if arguments[:1] in (["self"], ["cls"]) else arguments
    return []


def wrap(node: ast.expr, context: Context) -> Proposals:
    """The value passed through a builtin."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or context.field_of(node) in ("func", "targets"):
        return
    parent = context.parent(node)
    if isinstance(parent, ast.Expr | ast.Attribute | ast.JoinedStr) or isinstance(node, ast.GeneratorExp):
        return
    text, name = context.text(node), node.id if isinstance(node, ast.Name) else ""
    number = not name or context.may_be(name, NUMBER)
    many = not name or context.may_be(name, LIST)
    words = (name and context.may_be(name, STRING)) or isinstance(node, ast.Constant | ast.Call | ast.Subscript)
    if number:
        yield from (f"abs({text})", f"int({text})", f"str({text})", f"round({text})", f"float({text})")
    if many or words:
        yield from (f"len({text})", f"sorted({text})", f"list({text})", f"set({text})", f"sum({text})")
        yield from (f"max({text})", f"min({text})", f"tuple({text})", f"reversed({text})", f"len(set({text}))")
    yield f"bool({text})"


def clamp(node: ast.expr, context: Context) -> Proposals:
    parent = context.parent(node)
    loads = isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
    if (
        loads
        and isinstance(parent, ast.Return | ast.Assign | ast.Call | ast.Slice)
        and context.field_of(node) != "func"
    ):
        text = context.text(node)
        others = ["0", "1", *(name for name in context.names_at(node)[:6] if context.may_be(name, NUMBER))]
        for other in others:
            if other != text:
                yield from (f"max({text}, {other})", f"min({text}, {other})")


def unwrap(node: ast.Call, context: Context) -> Proposals:
    """`f(x)` → `x`, `x.m()` → `x`."""
    for argument in node.args:
        if not isinstance(argument, ast.Starred):
            yield context.atom(argument)
    if isinstance(node.func, ast.Attribute):
        yield context.atom(node.func.value)


def chain(node: ast.expr, context: Context) -> Proposals:
    """A method of strings or mappings added behind the value."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or context.field_of(node) == "func":
        return
    if isinstance(context.parent(node), ast.Expr):
        return
    text, name = context.atom(node), node.id if isinstance(node, ast.Name) else ""
    if not name or context.may_be(name, STRING):
        yield from (f"{text}.{m}()" for m in ("lower", "strip", "upper", "split", "rstrip", "lstrip", "capitalize"))
    if not name or context.may_be(name, "dict"):
        yield from (f"{text}.{m}()" for m in ("items", "values", "keys"))


_ASPECTS = (
    *("x", "-x", "len(x)", "-len(x)", "len(set(x))", "-len(set(x))", "x[0]", "-x[0]", "x[1]", "-x[1]", "x[-1]"),
    *("str(x)", "abs(x)", "sum(x)", "x.lower()", "x % 2", "x % 10", "bin(x).count('1')", "sum(map(int, str(x)))"),
)


def sort_key(node: ast.Call, context: Context) -> Proposals:
    """Another key to sort or choose by: one aspect of the elements, then two."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name not in ("sorted", "sort", "min", "max") or (name in ("min", "max") and len(node.args) > 1):
        return
    texts = [context.text(argument) for argument in node.args]
    rest = [context.text(keyword) for keyword in node.keywords if keyword.arg != "key"]
    keys = [*_ASPECTS, *(f"({one}, {two})" for one in _ASPECTS for two in _ASPECTS[:9] if one != two)]
    for key in keys:
        yield f"{context.text(node.func)}({', '.join([*texts, f'key=lambda x: {key}', *rest])})"


def convert(node: ast.expr, context: Context) -> Proposals:
    """A value in another form: its digits, its bits, its bytes, turned round."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or context.field_of(node) in ("func", "target"):
        return
    if isinstance(context.parent(node), ast.Expr | ast.JoinedStr | ast.MatchValue):
        return
    text, atom = context.text(node), context.atom(node)
    name = node.id if isinstance(node, ast.Name) else ""
    if not name or context.may_be(name, NUMBER):
        yield from (f"bin({text})[2:]", f"bin({text})", f"str({text})[::-1]", f"str(abs({text}))", f"ord({text})")
        yield from (f"chr({text})", f"list(map(int, str({text})))", f"sum(map(int, str({text})))", f"hex({text})[2:]")
    if not name or context.may_be(name, STRING):
        yield from (f"{atom}.encode()", f"{atom}.decode()", f"{atom}.replace(' ', '')", f"''.join({text})")
        yield from (f"' '.join({text})", f"{atom}.split(' ')", f"{atom}.swapcase()", f"''.join(sorted({text}))")
    if not name or context.may_be(name, LIST):
        yield from (f"sorted(set({text}))", f"list(set({text}))", f"list(map(int, {text}))", f"list(map(str, {text}))")
        yield from (f"sorted({text}, reverse=True)", f"enumerate({text})", f"any({text})", f"all({text})")


_VALUES = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp)
FAMILY = (
    Template("call.function", (ast.Name,), function),
    Template("call.method", (ast.Attribute,), method),
    Template("call.swap_arguments", (ast.Call,), swap_arguments),
    Template("call.drop_argument", (ast.Call,), drop_argument),
    Template("call.add_argument", (ast.Call,), add_argument),
    Template("call.wrap", (*_VALUES, ast.ListComp), wrap),
    Template("call.clamp", _VALUES, clamp),
    Template("call.unwrap", (ast.Call,), unwrap),
    Template("call.chain", (ast.Name, ast.Attribute, ast.Subscript, ast.Call), chain),
    Template("call.sort_key", (ast.Call,), sort_key),
    Template("call.convert", (*_VALUES, ast.ListComp, ast.Constant), convert),
)
