"""Whole statements: deleted, doubled, moved, exchanged, taken out of a block or into one."""

from __future__ import annotations

import ast

from codepilot.repair.edit import Edit
from codepilot.repair.python.context import Context
from codepilot.repair.python.source import Function
from codepilot.repair.python.templates.template import Proposals, Template

_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.Raise, ast.Break, ast.Continue)
_MOVABLE = (*_SIMPLE, ast.If, ast.For, ast.While, ast.Delete)


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def delete(node: ast.stmt, context: Context) -> Proposals:
    if not context.owns_lines(node) or context.is_elif(node) or _docstring(node):
        return
    start, end = context.lines(node)
    if len(context.block_of(node)) == 1:
        yield Edit(*context.source.span(node), "pass", "statement.delete")
    else:
        yield Edit(start, end, "", "statement.delete")


def _shifted(rows: str, old: str, new: str) -> str | None:
    """Lines moved to another indentation; None if a line (inside a string, say) does not have the old one."""
    moved = []
    for row in rows.splitlines(keepends=True):
        if row.strip() and not row.startswith(old):
            return None
        moved.append(new + row[len(old) :] if row.strip() else row)
    return "".join(moved)


def swap_next(node: ast.stmt, context: Context) -> Proposals:
    """A statement and the one after it, exchanged."""
    block = context.block_of(node)
    at = block.index(node) if node in block else len(block)
    if at + 1 < len(block) and all(context.owns_lines(s) and not context.is_elif(s) for s in block[at : at + 2]):
        other = block[at + 1]
        (start, middle), (second, end) = context.lines(node), context.lines(other)
        text = context.source.text
        if text[second:end].endswith(("\n", "\r")):
            yield Edit(start, end, text[second:end] + text[middle:second] + text[start:middle], "statement.swap")


def move_out(node: ast.stmt, context: Context) -> Proposals:
    """The last statement of a block moved behind it: an indentation too many."""
    parent = context.parent(node)
    block = context.block_of(node)
    if not isinstance(parent, ast.For | ast.While | ast.If | ast.With) or not block or block[-1] is not node:
        return
    if len(block) < 2 or not context.owns_lines(node) or context.is_elif(node) or context.is_elif(parent):
        return
    last = parent.end_lineno == node.end_lineno
    start, end = context.lines(node)
    rows = _shifted(context.source.text[start:end], context.indent(node), context.indent(parent))
    if rows is not None and last:
        yield Edit(start, end, rows, "statement.move_out")
    elif rows is not None:
        tail = context.source.text[end : context.lines(parent)[1]]
        if tail.endswith(("\n", "\r")):
            yield Edit(start, context.lines(parent)[1], tail + rows, "statement.move_out")


def move_in(node: ast.stmt, context: Context) -> Proposals:
    """A statement moved to the end of the block before it: an indentation too few."""
    block = context.block_of(node)
    at = block.index(node) if node in block else 0
    before = block[at - 1] if at else None
    if not isinstance(before, ast.For | ast.While | ast.If | ast.With) or not context.owns_lines(node):
        return
    if len(block) == 1 or not context.owns_lines(before):
        return
    start, end = context.lines(node)
    places: list[ast.stmt] = [before]
    while (
        isinstance(places[-1], ast.For | ast.While | ast.If | ast.With)
        and not getattr(places[-1], "orelse", None)
        and places[-1].body[-1].lineno > places[-1].lineno
    ):
        places.append(places[-1].body[-1])
    for place in places[1:]:
        rows = _shifted(context.source.text[start:end], context.indent(node), context.indent(place))
        if rows is not None:
            yield Edit(start, end, rows, "statement.move_in")


def move_before(node: ast.stmt, context: Context) -> Proposals:
    """A statement of a block moved in front of the whole block: done once, not each time."""
    parent = context.parent(node)
    block = context.block_of(node)
    if not isinstance(parent, ast.For | ast.While | ast.If) or not block or len(block) < 2:
        return
    if not context.owns_lines(node) or not context.owns_lines(parent) or context.is_elif(parent):
        return
    start, end = context.lines(node)
    head = context.lines(parent)[0]
    rows = _shifted(context.source.text[start:end], context.indent(node), context.indent(parent))
    if rows is not None and rows.endswith(("\n", "\r")):
        yield Edit(head, end, rows + context.source.text[head:start], "statement.move_before")


def insert_copy(node: ast.stmt, context: Context) -> Proposals:
    """A simple statement of the function once more, before or behind this one."""
    function = context.function_of(node)
    if function is None:
        return
    found: dict[str, None] = {}
    for inner in ast.walk(function):
        if isinstance(inner, _SIMPLE) and inner.lineno == inner.end_lineno and not _docstring(inner):
            found[context.text(inner)] = None
    for text in found:
        yield context.before(node, [text], "statement.copy")
        yield context.after(node, [text], "statement.copy")


def jump(node: ast.Break | ast.Continue | ast.Pass, context: Context) -> Proposals:
    words = ("break", "continue") if context.in_loop(node) else ()
    for word in (*words, "pass", "return"):
        yield Edit(*context.source.span(node), word, "statement.jump")


def return_value(node: ast.Expr, context: Context) -> Proposals:
    """A value computed and dropped, where it should be returned."""
    plain = not isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom | ast.Await)
    if plain and context.function_of(node) is not None:
        yield Edit(*context.source.span(node), f"return {context.text(node.value)}", "statement.return_value")
        for name in context.names_at(node):
            yield Edit(*context.source.span(node), f"{name} = {context.text(node.value)}", "statement.keep_value")


def missing_return(node: ast.stmt, context: Context) -> Proposals:
    """A function that ends without saying what it found."""
    parent, block = context.parent(node), context.block_of(node)
    if isinstance(parent, Function) and block and block[-1] is node and not isinstance(node, ast.Return | ast.Raise):
        names = context.names_at(node)
        for value in (*reversed(names), "True", "False", "self", "None", "0", "[]"):
            yield context.after(node, [f"return {value}"], "statement.missing_return")


def return_other(node: ast.Return, context: Context) -> Proposals:
    """Another value to return."""
    values = [*context.names_at(node), "True", "False", "None", "0", "[]", "''", "1", "-1"]
    for value in values:
        yield Edit(*context.source.span(node), f"return {value}", "statement.return_other")


def set_before(node: ast.stmt, context: Context) -> Proposals:
    """A name brought to a normal form, or moved on by one, in front of a statement."""
    for name in context.names_at(node):
        if context.may_be(name, "number"):
            for value in (f"abs({name})", f"{name} + 1", f"{name} - 1", f"int({name})", "0"):
                yield context.before(node, [f"{name} = {value}"], "statement.set")
        if context.may_be(name, "list"):
            for value in (f"sorted({name})", f"list({name})", "[]", f"{name}[::-1]"):
                yield context.before(node, [f"{name} = {value}"], "statement.set")
        if context.may_be(name, "string"):
            for value in (f"{name}.lower()", f"{name}.strip()", f"str({name})"):
                yield context.before(node, [f"{name} = {value}"], "statement.set")


def normalise(node: ast.stmt, context: Context) -> Proposals:
    """A parameter brought to its normal form at the start of the function: `name = name.strip()`."""
    function = context.parent(node)
    body = [row for row in function.body if not _docstring(row)] if isinstance(function, Function) else []
    if not isinstance(function, Function) or body[:1] != [node]:
        return
    arguments = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    for name in arguments:
        if name not in ("self", "cls"):
            for value in _normal_forms(name, function, context):
                yield context.before(node, [f"{name} = {value}"], "statement.normalise")


def _normal_forms(name: str, function: Function, context: Context) -> list[str]:
    words = ("strip()", "lower()", "strip().lower()", "upper()", "strip().upper()", "casefold()", "rstrip()")
    found = [f"{name}.{word}" for word in words if context.may_be(name, "string")]
    units = [unit.node for unit in context.source.units if "." not in unit.qualname and unit.node is not function]
    found += [f"{unit.name}({name})" for unit in units if _takes_one(unit)]
    if context.may_be(name, "list"):
        found += [f"list({name})", f"sorted({name})", f"{name} or []"]
    if context.may_be(name, "number"):
        found += [f"abs({name})", f"int({name})", f"float({name})"]
    return [*found, f"str({name})"]


def _takes_one(function: Function) -> bool:
    given = function.args
    return len(given.posonlyargs) + len(given.args) - len(given.defaults) == 1 and not given.kwonlyargs


def leave(node: ast.If, context: Context) -> Proposals:
    """A branch in a loop that should end the round, or the loop."""
    for block in (node.body, node.orelse) if context.in_loop(node) else ():
        if block and not isinstance(block[-1], ast.Return | ast.Raise | ast.Break | ast.Continue | ast.If):
            yield context.after(block[-1], ["continue"], "statement.leave")
            yield context.after(block[-1], ["break"], "statement.leave")


def step_on(node: ast.stmt, context: Context) -> Proposals:
    """A counter or sum that should have moved: one more, one less, or by another name, behind or before this."""
    numbers = [name for name in context.names_at(node) if context.may_be(name, "number")]
    stored = [name for name in numbers if name in context.locals]
    for name in stored:
        for change in (f"{name} += 1", f"{name} -= 1"):
            yield context.after(node, [change], "statement.step")
            yield context.before(node, [change], "statement.step")
    for name in stored:
        for other in numbers:
            if other != name:
                for change in (f"{name} += {other}", f"{name} = {other}", f"{name} -= {other}", f"{name} *= {other}"):
                    yield context.after(node, [change], "statement.step")
                    yield context.before(node, [change], "statement.step")


def progress(node: ast.While, context: Context) -> Proposals:
    """Advance the loop's condition at the end of its body, for a loop that never ends."""
    last = node.body[-1]
    own = [part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)]
    names = [name for name in dict.fromkeys(own) if name in context.names_at(node)]
    steps = [f"{name} {step}" for step in ("-= 1", "+= 1", "//= 2", "//= 10") for name in names]
    for part in context.nodes:
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in names:
            steps.append(f"{part.value.id} = {context.text(part)}")
    steps += [f"{name} = {name}[1:]" for name in names if context.may_be(name, "list")]
    for step in dict.fromkeys(steps):
        yield context.after(last, [step], "statement.progress")
        yield context.before(node.body[0], [step], "statement.progress")


def remember(node: ast.If, context: Context) -> Proposals:
    """A collection that is asked whether it holds something, yet never gets anything: put it in."""
    for part in ast.walk(node.test):
        if not (isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.In | ast.NotIn)):
            continue
        where, what = part.comparators[0], context.text(part.left)
        made = _made_empty(where.id, context) if isinstance(where, ast.Name) else ""
        if not made or not isinstance(where, ast.Name) or _filled(where.id, context):
            continue
        row = {"set": f"{where.id}.add({what})", "list": f"{where.id}.append({what})"}.get(made, "")
        rows = [row] if row else [f"{where.id}[{what}] = {value}" for value in ("True", *context.names_at(node)[:4])]
        firsts = [block[0] for inner in _chain(node, context) for block in (inner.body, inner.orelse) if block]
        for text in rows:
            for first in firsts:
                yield context.before(first, [text], "statement.remember")
            yield context.after(node, [text], "statement.remember")
            yield context.before(node, [text], "statement.remember")


def _chain(node: ast.If, context: Context) -> list[ast.If]:
    """The condition and those that follow it by `elif`; the last branch of all comes first."""
    found = [node]
    while found[-1].orelse and isinstance(found[-1].orelse[0], ast.If) and context.is_elif(found[-1].orelse[0]):
        found.append(found[-1].orelse[0])
    return found[::-1]


def _made_empty(name: str, context: Context) -> str:
    """The kind of empty collection that the name starts as, if it does."""
    kinds = {"set()": "set", "[]": "list", "list()": "list", "{}": "dict", "dict()": "dict"}
    for part in context.nodes:
        if isinstance(part, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in part.targets):
            return kinds.get(context.text(part.value), "")
    return ""


def _filled(name: str, context: Context) -> bool:
    """True if anything is put into the collection, or it is passed to a function that may do so."""
    for part in context.nodes:
        if isinstance(part, ast.Name) and part.id == name:
            above = context.parent(part)
            stored = isinstance(above, ast.Subscript) and isinstance(above.ctx, ast.Store)
            method = above.attr if isinstance(above, ast.Attribute) else ""
            if stored or method in _FILLING or isinstance(above, ast.AugAssign | ast.Call | ast.keyword | ast.Return):
                return True
    return False


_FILLING = ("add", "append", "update", "extend", "insert", "setdefault", "appendleft", "push")


def append_missing(node: ast.stmt, context: Context) -> Proposals:
    """Add the last piece after a loop that leaves it out."""
    lists = [name for name, kinds in context.kinds.items() if "list" in kinds and name in context.locals]
    for name in lists[:3]:
        for value in context.names_at(node)[:6]:
            if value != name:
                yield context.after(node, [f"{name}.append({value})"], "statement.append")
                yield context.before(node, [f"{name}.append({value})"], "statement.append")


def branch(node: ast.If, context: Context) -> Proposals:
    """`elif` ↔ `if`, `if` ↔ `while`, and the two branches exchanged."""
    start = context.source.span(node)[0]
    text = context.source.text
    if context.is_elif(node):
        yield Edit(start, start + 4, "if", "statement.branch")
        return
    block = context.block_of(node)
    at = block.index(node) if node in block else 0
    if at and isinstance(block[at - 1], ast.If) and not block[at - 1].orelse:  # type: ignore[attr-defined]
        yield Edit(start, start + 2, "elif", "statement.branch")
    if not node.orelse:
        yield Edit(start, start + 2, "while", "statement.branch")
    elif not any(isinstance(other, ast.If) and context.is_elif(other) for other in node.orelse):
        (a, b), (c, d) = _body_span(node.body, context), _body_span(node.orelse, context)
        if text[a:b].endswith("\n") and text[c:d].endswith("\n"):
            yield Edit(a, d, text[c:d] + text[b:c] + text[a:b], "statement.branch")


def _body_span(body: list[ast.stmt], context: Context) -> tuple[int, int]:
    return context.lines(body[0])[0], context.lines(body[-1])[1]


FAMILY = (
    Template("statement.delete", _MOVABLE, delete),
    Template("statement.swap", _MOVABLE, swap_next),
    Template("statement.move_out", _MOVABLE, move_out),
    Template("statement.move_in", _MOVABLE, move_in),
    Template("statement.move_before", _MOVABLE, move_before),
    Template("statement.copy", _MOVABLE, insert_copy),
    Template("statement.jump", (ast.Break, ast.Continue, ast.Pass), jump),
    Template("statement.return_value", (ast.Expr,), return_value),
    Template("statement.missing_return", _MOVABLE, missing_return),
    Template("statement.return_other", (ast.Return,), return_other),
    Template("statement.set", _MOVABLE, set_before),
    Template("statement.normalise", (*_MOVABLE, ast.With, ast.Try), normalise),
    Template("statement.leave", (ast.If,), leave),
    Template("statement.step", _MOVABLE, step_on),
    Template("statement.remember", (ast.If,), remember),
    Template("statement.progress", (ast.While,), progress),
    Template("statement.append", (ast.For, ast.While, ast.If, ast.Return, ast.AugAssign), append_missing),
    Template("statement.branch", (ast.If,), branch),
)
