"""References between files, and a PageRank over them that leans towards what a task is about."""

from __future__ import annotations

import math
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from codepilot.context.repository import RepositoryMap
from codepilot.context.symbols import FileSymbols, language_of

DAMPING, ROUNDS, NEAR = 0.85, 40, 1e-5
AMBIGUOUS = 4
"""A name with more homes than this, none of them imported or nearby, says nothing."""
MENTIONED = 8.0
IMPORT_WEIGHT, GUESSED = 0.3, 0.2
MAX_EDGES = 1_000_000
"""At most this many references are resolved; a larger repository is ranked by these."""
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
    """The files by number, and the references between them."""

    paths: tuple[str, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Focus:
    """The files that a task names, with weights, and its names."""

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
    """Every reference that can be resolved, from the file that makes it to the file it means."""
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
        siblings = together.get(posixpath.dirname(path), {}) if families[number] == "java" else {}
        edges.extend(Edge(number, other, "", IMPORT_WEIGHT) for other in sorted(near))
        for key, lines in repository.files[path].references.items():
            name = key.removeprefix(".")
            there, plain = known.get(key, _NOWHERE), known.get(name, _NOWHERE)
            if number in there or number in plain:
                continue
            weight = 1.0
            meant: Set[int] = {other for reach in (near, *behind) for other in (there & reach) | (plain & reach)}
            meant = meant or siblings.get(key, _NOWHERE)
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
    """True for a name that is unlikely by chance: more than one word, or a type's."""
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
    """The restart distribution: mostly on what the task names, a little everywhere."""
    total = sum(max(0.0, focus.paths.get(path, 0.0)) for path in paths)
    if total < NEAR:
        return [1.0 / len(paths)] * len(paths)
    even = (1.0 - FOCUSED) / len(paths)
    return [even + FOCUSED * max(0.0, focus.paths.get(path, 0.0)) / total for path in paths]


FAMILIES = {"python": "python", "java": "java", "javascript": "script", "typescript": "script", "tsx": "script"}
_SCRIPT_ENDINGS = ("", ".ts", ".tsx", ".js", ".jsx", ".mjs", ".cjs", ".d.ts", "/index.ts", "/index.tsx", "/index.js")
_SPOKEN_ENDINGS = ((".js", ".ts"), (".js", ".tsx"), (".mjs", ".mts"), (".cjs", ".cts"), (".jsx", ".tsx"))
"""TypeScript imports what it will be compiled to."""
MAX_MEANT = 500
"""A name that means more files than this, by a wildcard or by chance, means the first of them."""
MAX_HANDED = 1_000_000
"""Imports that are looked through for all packages of a repository; what lies beyond is not seen."""


def family_of(path: str) -> str:
    """Files of one family can refer to one another."""
    return FAMILIES.get(language_of(path) or "", "")


@dataclass(frozen=True)
class Imports:
    """Which files each file imports; and by package, those that importing its own file stands for as well."""

    direct: Mapping[str, set[str]]
    handed_on: Mapping[str, frozenset[str]]

    def packages(self, path: str) -> list[str]:
        """The packages whose contents a file can name by what it imports."""
        return sorted(self.direct[path] & self.handed_on.keys())


class Links:
    """Finds files by the dotted or relative names that sources call them by."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._dotted: dict[str, str] = {}
        self._by_last: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._packages: defaultdict[str, list[str]] = defaultdict(list)
        self._known: dict[tuple[str, str], list[str]] = {}
        for path in sorted(self._paths):
            family = family_of(path)
            if family in ("python", "java"):
                dotted = _dotted(path)
                self._dotted[path] = dotted
                self._by_last[family, dotted.rpartition(".")[2]].append(path)
                if family == "java":
                    self._packages[dotted.rpartition(".")[0].rpartition(".")[2]].append(path)

    def imported(self, files: Mapping[str, FileSymbols]) -> Imports:
        """The imports of each file, without itself."""
        direct = {path: self._direct(path, file.imports) - {path} for path, file in files.items()}
        return Imports(direct, handed_on(direct))

    def _direct(self, path: str, modules: Iterable[str]) -> set[str]:
        family = family_of(path)
        return {found for module in modules for found in self._meant(path, family, module)}

    def _meant(self, path: str, family: str, module: str) -> list[str]:
        """The files that `module` means where it is written in the file at `path`."""
        if family == "script":
            return self._script(path, module)
        if family == "python" and module.startswith("."):
            return self._relative(path, module)
        found = self._known.get((family, module))
        if found is None:
            found = self.named(family, module)
            if not found and family == "java":
                found = self._package(module) or self.named(family, module.rpartition(".")[0])
            self._known[family, module] = found
        return found

    def named(self, family: str, dotted: str) -> list[str]:
        """The files whose dotted path is, or ends in, this name: the nearest to the root."""
        if not dotted:
            return []
        places = self._by_last.get((family, dotted.rpartition(".")[2]), ())
        fitting = [path for path in places if f".{self._dotted[path]}".endswith(f".{dotted}")]
        least = min((path.count("/") for path in fitting), default=0)
        return [path for path in fitting if path.count("/") == least][:MAX_MEANT]

    def _package(self, dotted: str) -> list[str]:
        places = self._packages.get(dotted.rpartition(".")[2], ())
        fitting = [path for path in places if f".{self._dotted[path].rpartition('.')[0]}".endswith(f".{dotted}")]
        return fitting[:MAX_MEANT]

    def _relative(self, path: str, module: str) -> list[str]:
        name = module.lstrip(".")
        folder = path
        for _ in range(len(module) - len(name)):
            folder = posixpath.dirname(folder)
        base = posixpath.join(folder, name.replace(".", "/")) if name else folder
        return [place for place in (f"{base}.py", posixpath.join(base, "__init__.py")) if place in self._paths]

    def _script(self, path: str, module: str) -> list[str]:
        if not module.startswith("."):
            return []
        base = posixpath.normpath(posixpath.join(posixpath.dirname(path), module))
        places = [base + ending for ending in _SCRIPT_ENDINGS]
        places += [base.removesuffix(old) + new for old, new in _SPOKEN_ENDINGS if base.endswith(old)]
        return [place for place in places if place in self._paths][:1]


def handed_on(direct: Mapping[str, set[str]]) -> dict[str, frozenset[str]]:
    """By package, the files it re-exports, those of re-exported packages included."""
    found: dict[str, frozenset[str]] = {}
    left = MAX_HANDED
    for package in filter(_hands_on, direct):
        every: set[str] = set()
        waiting = [package]
        while waiting and left > 0:
            imports = direct.get(waiting.pop(), set())
            left -= len(imports)
            fresh = imports - every
            every |= fresh
            waiting.extend(filter(_hands_on, fresh))
        found[package] = frozenset(every)
    return found


def _hands_on(path: str) -> bool:
    return posixpath.basename(path).partition(".")[0] in ("__init__", "index")


def _dotted(path: str) -> str:
    name = path.rpartition(".")[0].replace("/", ".")
    return name.removesuffix(".__init__")
