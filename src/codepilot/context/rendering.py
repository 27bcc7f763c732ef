"""The map as a model reads it: the most important files, each with its most important signatures in order."""

from __future__ import annotations

from collections.abc import Iterator

from codepilot.context.ranking import NOTHING, Focus, Ranks, graph_of, rank
from codepilot.context.repository import RepositoryMap
from codepilot.context.symbols import Symbol
from codepilot.context.tokens import BYTES_PER_TOKEN, bytes_of

_HOLDERS = ("class", "interface", "enum")


def render_map(repository: RepositoryMap, focus: Focus = NOTHING, budget_tokens: int = 2000) -> str:
    """A tree of files and signatures with their lines, the best of them that fit the budget."""
    ranks = rank(repository, graph_of(repository), focus)
    return render_ranked(repository, ranks, budget_tokens)


def render_ranked(repository: RepositoryMap, ranks: Ranks, budget_tokens: int) -> str:
    """The same from ranks that are known already."""
    room = int(budget_tokens * BYTES_PER_TOKEN)
    shown: dict[str, set[Symbol]] = {}
    for path, symbol in _by_rank(repository, ranks):
        there = shown.get(path)
        holders = _holders(repository, path, symbol)
        fresh = [one for one in (*holders, symbol) if there is None or one not in there]
        cost = sum(bytes_of(_line(one)) for one in fresh) + (bytes_of(f"{path}:\n") if there is None else 0)
        if not fresh:
            continue
        if cost > room:
            break
        room -= cost
        shown.setdefault(path, set()).update(fresh)
    order = sorted(shown, key=lambda path: (-ranks.files.get(path, 0.0), path))
    return "".join(f"{path}:\n" + "".join(map(_line, sorted(shown[path], key=_place))) for path in order)


def _by_rank(repository: RepositoryMap, ranks: Ranks) -> Iterator[tuple[str, Symbol]]:
    every = [
        (-ranks.symbols.get((path, symbol.name), 0.0), path, symbol)
        for path, file in repository.files.items()
        for symbol in file.symbols
    ]
    every.sort(key=lambda one: (one[0], one[1], one[2].line, one[2].name))
    return ((path, symbol) for _, path, symbol in every)


def _holders(repository: RepositoryMap, path: str, symbol: Symbol) -> list[Symbol]:
    """The classes around a symbol, outermost first."""
    if not symbol.parent:
        return []
    around = (one for one in repository.files[path].symbols if one.kind in _HOLDERS)
    return [
        one
        for one in around
        if one.line <= symbol.line and symbol.end <= one.end and f"{symbol.parent}.".startswith(f"{one.qualified}.")
    ]


def _line(symbol: Symbol) -> str:
    depth = symbol.parent.count(".") + 1 if symbol.parent else 0
    return f"{symbol.line:>6}: {'  ' * depth}{symbol.signature}\n"


def _place(symbol: Symbol) -> tuple[int, int, str]:
    return symbol.line, -symbol.end, symbol.name
