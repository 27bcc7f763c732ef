"""References between files, and a PageRank over them that leans towards what a task is about."""

from __future__ import annotations

import math
import posixpath
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from codepilot.context.linking import Links, family_of
from codepilot.context.repository import RepositoryMap

DAMPING, ROUNDS, NEAR = 0.85, 40, 1e-5
AMBIGUOUS = 4
"""A name with more homes than this, none of them imported or nearby, says nothing."""
MENTIONED = 8.0
IMPORT_WEIGHT, GUESSED = 0.3, 0.2
MAX_EDGES = 1_000_000
"""So many references are told apart; a repository with more of them is ranked by these."""
FOCUSED = 0.9
"""How much of the surfer's restarts goes to the focus, where there is one."""


class Edge(NamedTuple):
    """`source` uses `name`, which `target` defines. An edge without a name is an import alone."""

    source: int
    target: int
    name: str
    weight: float


@dataclass(frozen=True)
class Graph:
    """The files by number, and who refers to whom."""

    paths: tuple[str, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Focus:
    """What a task names: files with weights, and names."""

    paths: Mapping[str, float]
    names: frozenset[str] = frozenset()


NOTHING = Focus({})
_NOWHERE: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Ranks:
    """How important files and symbols are; each sums to about one."""

    files: Mapping[str, float]
    symbols: Mapping[tuple[str, str], float]
    """By path and name."""


def graph_of(repository: RepositoryMap) -> Graph:
    """Every reference that can be told apart, from the file that makes it to the one it means."""
    paths = tuple(repository.files)
    numbers = {path: number for number, path in enumerate(paths)}
    imported = Links(paths).imported(repository.files)
    handed = {
        package: {numbers[other] for other in others if other in numbers}
        for package, others in imported.handed_on.items()
    }
    homes = _homes(repository, paths)
    families = [family_of(path) for path in paths]
    together = _together(homes["java"], paths)
    edges: list[Edge] = []
    for number, path in enumerate(paths):
        known = homes[families[number]]
        near = {numbers[other] for other in imported.direct[path]}
        behind = [handed[package] for package in imported.packages(path)]
        beside = together.get(posixpath.dirname(path), {}) if families[number] == "java" else {}
        edges.extend(Edge(number, other, "", IMPORT_WEIGHT) for other in sorted(near))
        for key, lines in repository.files[path].references.items():
            name = key.removeprefix(".")
            there, plain = known.get(key, _NOWHERE), known.get(name, _NOWHERE)
            if number in there or number in plain:
                continue
            weight = 1.0
            meant: Set[int] = {other for reach in (near, *behind) for other in (there & reach) | (plain & reach)}
            meant = meant or beside.get(key, _NOWHERE)
            if not meant and 0 < len(there) <= AMBIGUOUS and _distinct(name):
                meant, weight = there, GUESSED
            if meant:
                weight *= math.sqrt(lines.count(",") + 1) / len(meant)
                edges.extend(Edge(number, other, name, weight) for other in sorted(meant))
        if len(edges) > MAX_EDGES:
            break
    return Graph(paths, tuple(edges))


def _homes(repository: RepositoryMap, paths: tuple[str, ...]) -> dict[str, dict[str, set[int]]]:
    """By family, the files that define a name: methods as `.name`, all else as it is."""
    homes: defaultdict[str, dict[str, set[int]]] = defaultdict(dict)
    for number, path in enumerate(paths):
        known = homes[family_of(path)]
        for symbol in repository.files[path].symbols:
            if symbol.name.startswith("__"):
                continue
            key = f".{symbol.name}" if symbol.kind == "method" else symbol.name
            known.setdefault(key, set()).add(number)
    return homes


def _together(homes: Mapping[str, Set[int]], paths: tuple[str, ...]) -> dict[str, dict[str, set[int]]]:
    """By folder, the files in it that define a name: in Java they need no import."""
    found: dict[str, dict[str, set[int]]] = {}
    for key, numbers in homes.items():
        for number in numbers:
            found.setdefault(posixpath.dirname(paths[number]), {}).setdefault(key, set()).add(number)
    return found


def _distinct(name: str) -> bool:
    """Whether a name is one that nobody uses by chance: more than one word, or a type's."""
    plain = name.rstrip("_")
    return len(plain) > 4 and not plain.startswith("_") and ("_" in plain or not plain.islower())


def rank(repository: RepositoryMap, graph: Graph, focus: Focus = NOTHING) -> Ranks:
    """Files by PageRank, and symbols by what flows into them."""
    count = len(graph.paths)
    if not count:
        return Ranks({}, {})
    weights = [edge.weight * (MENTIONED if edge.name in focus.names else 1.0) for edge in graph.edges]
    out = [0.0] * count
    for edge, weight in zip(graph.edges, weights, strict=True):
        out[edge.source] += weight
    start = _start(graph.paths, focus)
    ranks = _page_rank(graph, weights, out, start)
    symbols: defaultdict[tuple[str, str], float] = defaultdict(float)
    for edge, weight in zip(graph.edges, weights, strict=True):
        if edge.name:
            symbols[graph.paths[edge.target], edge.name] += ranks[edge.source] * weight / out[edge.source]
    for path, held in zip(graph.paths, ranks, strict=True):
        own = repository.files[path].symbols
        for symbol in own:
            share = held * (1.0 if symbol.name in focus.names else 0.1) / len(own)
            symbols[path, symbol.name] += share
    return Ranks(dict(zip(graph.paths, ranks, strict=True)), dict(symbols))


def _page_rank(graph: Graph, weights: list[float], out: list[float], start: list[float]) -> list[float]:
    flows: defaultdict[tuple[int, int], float] = defaultdict(float)
    for edge, weight in zip(graph.edges, weights, strict=True):
        flows[edge.source, edge.target] += DAMPING * weight / out[edge.source]
    steps = [(source, target, share) for (source, target), share in flows.items()]
    loose = [number for number, total in enumerate(out) if not total]
    ranks = start
    for _ in range(ROUNDS):
        rest = 1.0 - DAMPING + DAMPING * sum(ranks[number] for number in loose)
        following = [rest * share for share in start]
        for source, target, share in steps:
            following[target] += ranks[source] * share
        moved = sum(abs(new - old) for new, old in zip(following, ranks, strict=True))
        ranks = following
        if moved < NEAR:
            break
    return ranks


def _start(paths: tuple[str, ...], focus: Focus) -> list[float]:
    """Where the surfer begins: mostly at what the task names, a little everywhere."""
    total = sum(max(0.0, focus.paths.get(path, 0.0)) for path in paths)
    if total < NEAR:
        return [1.0 / len(paths)] * len(paths)
    even = (1.0 - FOCUSED) / len(paths)
    return [even + FOCUSED * max(0.0, focus.paths.get(path, 0.0)) / total for path in paths]
