"""Names, attributes and donor expressions: the right value is often already in reach."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import lru_cache

from codepilot.repair.python.context import Context
from codepilot.repair.python.templates.template import Proposals, Template

_MOST_ATTRIBUTES = 30


def _closest(name: str, others: Iterable[str]) -> list[str]:
    """Similar spellings first, otherwise in the given order."""
    listed = [other for other in dict.fromkeys(others) if other != name]
    return sorted(listed, key=lambda other: -_likeness(name, other))


@lru_cache(maxsize=1 << 16)
def _likeness(name: str, other: str) -> float:
    return round(SequenceMatcher(None, name, other).ratio(), 1)


def _called(node: ast.AST, context: Context) -> bool:
    return isinstance(context.parent(node), ast.Call) and context.field_of(node) == "func"


def variable(node: ast.Name, context: Context) -> Proposals:
    """Another local name, names that seem to hold the same kind of thing first."""
    if isinstance(node.ctx, ast.Load) and not _called(node, context) and not _only_use(node, context):
        yield from _other_names(node, context)


def only_use(node: ast.Name, context: Context) -> Proposals:
    """Another local name where that leaves a loop without any use of its variable."""
    if isinstance(node.ctx, ast.Load) and not _called(node, context) and _only_use(node, context):
        yield from _other_names(node, context)


def _only_use(node: ast.Name, context: Context) -> bool:
    """True if a loop around the name binds it, and nothing else in that loop reads it."""
    for above in context.ancestors(node):
        targets = [part.target for part in getattr(above, "generators", ())]
        targets += [above.target] if isinstance(above, ast.For | ast.AsyncFor) else []
        if any(isinstance(part, ast.Name) and part.id == node.id for target in targets for part in ast.walk(target)):
            uses = (part for part in ast.walk(above) if isinstance(part, ast.Name) and part.id == node.id)
            return sum(isinstance(part.ctx, ast.Load) for part in uses) == 1
    return False


def _other_names(node: ast.Name, context: Context) -> list[str]:
    known = context.kinds.get(node.id, set())
    names = _closest(node.id, context.names_at(node))
    return sorted(names, key=lambda name: not (known & context.kinds.get(name, known)))


def assigned(node: ast.Name, context: Context) -> Proposals:
    """Another target for an assignment."""
    if isinstance(node.ctx, ast.Store) and isinstance(context.parent(node), ast.Assign | ast.AugAssign):
        yield from _closest(node.id, context.names_at(node))


def module_name(node: ast.Name, context: Context) -> Proposals:
    """A global of the module: a function for a function, a constant for a value."""
    if not isinstance(node.ctx, ast.Load):
        return
    functions = set(context.functions)
    if _called(node, context):
        yield from _closest(node.id, context.functions)
    else:
        yield from _closest(node.id, (name for name in context.globals if name not in functions))


def attribute(node: ast.Attribute, context: Context) -> Proposals:
    """Another attribute that the file, or the class itself, gives to the same thing; then any that the file knows."""
    if not isinstance(node.value, ast.Name):
        base = context.atom(node.value)
        for name in _closest(node.attr, _others(node, context)):
            yield f"{base}.{name}"
        return
    base, called = node.value.id, _called(node, context)
    if base == "self":
        names = [name for name, method in context.class_members if method == called]
        names += [] if called else [name for name, method in context.class_members if not method]
    else:
        names = list(context.attributes.get(base, ()))
    near = _closest(node.attr, names)
    rest = [] if base in context.globals else [name for name in _others(node, context) if name not in near]
    for name in [*near, *_closest(node.attr, rest)]:
        yield f"{base}.{name}"


def _others(node: ast.Attribute, context: Context) -> list[str]:
    """Attributes used in the same way elsewhere: in this function first, then in the file."""
    called = _called(node, context)
    found: dict[str, None] = {}
    for other in context.nodes:
        if isinstance(other, ast.Attribute) and _called(other, context) == called:
            found[other.attr] = None
    if not called:
        found.update(dict.fromkeys(name for names in context.attributes.values() for name in names))
    return [name for name in found if not name.startswith("__")][:_MOST_ATTRIBUTES]


def constant_to_name(node: ast.Constant, context: Context) -> Proposals:
    if isinstance(context.parent(node), ast.Expr | ast.JoinedStr):
        return
    names = context.names_at(node)
    if isinstance(node.value, int | float) and not isinstance(node.value, bool):
        names = tuple(name for name in names if context.may_be(name, "number"))
    yield from names


def plain(node: ast.expr, context: Context) -> Proposals:
    """A name alone in place of something longer."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or _called(node, context):
        return
    if not isinstance(context.parent(node), ast.Expr | ast.JoinedStr | ast.MatchValue):
        own = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        yield from sorted(context.names_at(node), key=lambda name: name in own)


def target(node: ast.Assign | ast.AugAssign, context: Context) -> Proposals:
    """Another element or attribute to assign to, as the function names them elsewhere."""
    places = node.targets if isinstance(node, ast.Assign) else [node.target]
    if len(places) != 1 or not isinstance(places[0], ast.Subscript | ast.Attribute | ast.Name):
        return
    for other in context.donors:
        if isinstance(other, ast.Subscript | ast.Attribute):
            yield context.replace(places[0], context.text(other), "name.target")


def negated(node: ast.expr, context: Context) -> Proposals:
    """A name with its sign turned, in place of something longer."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or _called(node, context):
        return
    if isinstance(context.parent(node), ast.Assign | ast.Return | ast.BinOp | ast.Call | ast.Compare):
        yield from (f"-{name}" for name in context.names_at(node) if context.may_be(name, "number"))


def donor(node: ast.expr, context: Context) -> Proposals:
    """Donor code (plastic surgery hypothesis): an expression of the same function, the same kind of node first."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or _called(node, context):
        return
    if isinstance(context.parent(node), ast.Expr | ast.MatchValue | ast.JoinedStr):
        return
    own = context.text(node)
    over = context.stale_at(node)
    others = [other for other in context.donors if context.text(other) != own and over.isdisjoint(_names(other))]
    for other in sorted(others, key=lambda other: type(other) is not type(node)):
        yield context.text(other)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def far_donor(node: ast.expr, context: Context) -> Proposals:
    """Donor code of the same file: an expression of another function whose names are all in scope here."""
    if not isinstance(node, ast.Call | ast.Attribute | ast.Compare | ast.BinOp | ast.Subscript):
        return
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(context.parent(node), ast.Expr):
        return
    reach = {*context.names_at(node), *context.globals, *context.parameters}
    near = {context.text(other) for other in context.donors}
    for other in context.file_donors:
        text = context.text(other)
        names = (n.id for n in ast.walk(other) if isinstance(n, ast.Name))
        if text not in near and type(other) is type(node) and reach.issuperset(names):
            yield text


_VALUES = (ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call, ast.BinOp, ast.Compare)
FAMILY = (
    Template("name.variable", (ast.Name,), variable),
    Template("name.only_use", (ast.Name,), only_use),
    Template("name.assigned", (ast.Name,), assigned),
    Template("name.module", (ast.Name,), module_name),
    Template("name.attribute", (ast.Attribute,), attribute),
    Template("name.for_constant", (ast.Constant,), constant_to_name),
    Template("name.plain", (ast.Call, ast.BinOp, ast.Subscript, ast.Attribute), plain),
    Template("name.target", (ast.Assign, ast.AugAssign), target),
    Template("name.negated", (ast.Call, ast.BinOp, ast.Subscript, ast.UnaryOp), negated),
    Template("name.donor", _VALUES, donor),
    Template("name.far_donor", _VALUES, far_donor),
)
