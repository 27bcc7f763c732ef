"""Synthesises missing logic: sketches of suspicious functions, filled in the sandbox with expressions over states.

The expressions that come back are hostile input: only those made of known names become candidates.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from codepilot.repair.backend import SearchFacts
from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.localise import Suspicion
from codepilot.repair.python.context import Context
from codepilot.repair.python.priors import DECAY, penalty
from codepilot.repair.python.sketches import Sketch, atoms, sketches
from codepilot.repair.python.source import PythonSource, PythonUnit, python_sources
from codepilot.repair.selection import TestSelector
from codepilot.repair.trial import Trial

_FUNCTIONS = 4
"""How many functions are worth sketches, the most suspicious first."""
_FIRST = 0.5
"""Which share of the time the first of them has."""
_OTHERS = 20
_MAX_TEXT = 160
_SAFE = frozenset(
    (
        *("abs", "all", "any", "bin", "bool", "chr", "dict", "enumerate", "float", "int", "len", "list", "max", "min"),
        *("ord", "range", "round", "set", "sorted", "str", "sum", "tuple", "zip", "e", "bytes", "isinstance"),
    )
)
_METHODS = frozenset(
    (
        *("lower", "upper", "strip", "split", "isdigit", "isalpha", "isupper", "islower", "isalnum", "isspace"),
        *("swapcase", "rstrip", "lstrip", "capitalize", "title", "join", "values", "keys", "items", "get", "copy"),
        *("count", "find", "startswith", "endswith"),
    )
)
_UNFIT = (ast.Lambda, ast.NamedExpr, ast.JoinedStr, ast.Await, ast.Yield, ast.YieldFrom)


def synthesise(
    trial: Trial, facts: SearchFacts, seconds: float, position: int, enough: Callable[[], bool]
) -> Iterator[Proposal]:
    """Filled sketches that make the near tests pass; positions count on from `position`."""
    left = seconds
    suspects = _suspects(python_sources(facts.sources), facts.suspicion)
    for unit in suspects:
        if left <= 0.5 or enough():
            return
        context = Context(unit.source, unit, facts.failure)
        drawn = sketches(context, facts.suspicion)
        share = left * _FIRST if left > 2 and len(suspects) > 1 else left
        if not drawn:
            continue
        left -= share
        counts: dict[int, int] = {}
        seen: set[tuple[int, int, str]] = set()
        for number, text in trial.synthesise(unit, _request(context, drawn, facts.selector, share), share):
            sketch = drawn[number] if 0 <= number < len(drawn) else None
            if sketch is not None and is_known(text, context):
                edit = sketch.edit(text)
                counts[number] = counts.get(number, 0) + 1
                score = sketch.worth / (1 + DECAY * counts[number])
                if (edit.start, edit.end, edit.replacement) not in seen:
                    seen.add((edit.start, edit.end, edit.replacement))
                    yield Proposal(position, unit.source, unit, edit, score, sketch.line, overfit_penalty=penalty(edit))
                    position += 1


def _suspects(sources: Mapping[str, PythonSource], suspicion: Suspicion) -> list[PythonUnit]:
    """The most suspicious functions; of equals, the one with more suspicious lines."""
    found = []
    for path, source in sorted(sources.items()):
        for unit in source.units:
            lines = [suspicion.of(path, [line]) for line in unit.lines]
            found.append((max(lines, default=0.0), sum(lines), unit))
    found.sort(key=lambda row: (-row[0], -row[1]))
    return [unit for weight, _, unit in found[:_FUNCTIONS] if weight > 0]


def _request(context: Context, drawn: list[Sketch], selector: TestSelector, seconds: float) -> dict[str, Any]:
    unit = context.unit
    assert unit is not None
    some = Proposal(0, unit.source, unit, Edit(unit.end, unit.end, "", ""), 0.0, unit.node.lineno)
    selection = selector.near(some)
    attributes = dict.fromkeys(name for names in context.attributes.values() for name in names)
    rows = []
    for number, sketch in enumerate(drawn):
        start, end = unit.place(Edit(sketch.start, sketch.end, "", ""))
        row = {"n": number, "start": start, "end": end, "before": sketch.before, "after": sketch.after}
        rows.append({**row, "kind": sketch.kind, "original": sketch.original, "default": sketch.default})
        rows[-1]["stale"] = list(sketch.stale)
    return {
        "sketches": rows,
        "tests": [*selection.targets, *selection.few(_OTHERS)],
        "atoms": atoms(context),
        "attributes": [name for name in attributes if not name.startswith("_")][:20],
        "seconds": seconds,
    }


def is_known(text: str, context: Context) -> bool:
    """True if it is one expression of names that the function can see, and of harmless functions."""
    if len(text) > _MAX_TEXT:
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    within = {node.id for node in context.nodes if isinstance(node, ast.Name)}
    names = _SAFE | set(context.locals) | set(context.globals) | within
    members = _METHODS | {name for group in context.attributes.values() for name in group}
    members |= {node.attr for node in context.nodes if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, _UNFIT) or (isinstance(node, ast.Name) and node.id not in names):
            return False
        if isinstance(node, ast.Attribute) and node.attr not in members:
            return False
    return True
