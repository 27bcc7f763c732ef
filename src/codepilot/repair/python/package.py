"""The other files of a package, for what they do in places like the suspicious one. They are read, and never edited.

Few are looked at, the nearest first: those that the file imports or that import it, then those beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from codepilot.repair.python.source import Function, PythonSource

FILES = 12
"""How many other files lend to one file."""
MAX_CHARACTERS = 400_000
"""A file of more is data, or too dear to look through."""
MAX_TEXT = 80
_TESTS = (ast.If, ast.While, ast.IfExp)


def imported_paths(source: PythonSource) -> Iterator[str]:
    """Where modules of the same package that the file imports would lie."""
    folder = PurePosixPath(source.path).parent
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder
            for _ in range(node.level - 1):
                base = base.parent
            yield from _files(base, node.module, node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            top = _top(folder, node.module)
            if top is not None:
                yield from _files(top, node.module, node.names)


def _top(folder: PurePosixPath, module: str) -> PurePosixPath | None:
    """The folder that the package of the dotted name lies in, if it is the one that the file is in."""
    first = module.partition(".")[0]
    return next((above.parent for above in (folder, *folder.parents) if above.name == first), None)


def _files(base: PurePosixPath, module: str | None, names: Iterable[ast.alias]) -> Iterator[str]:
    place = base.joinpath(*module.split(".")) if module else base
    if module:
        yield f"{place}.py"
    else:
        yield from (f"{place / alias.name}.py" for alias in names if alias.name != "*")


@dataclass(frozen=True)
class _Index:
    calls: dict[str, list[ast.Call]]
    conditions: dict[str, list[ast.expr]]
    functions: dict[str, list[Function]]


@dataclass(frozen=True, eq=False)
class Package:
    """Files that may lend to each other. Each is looked through once, when it is asked for first."""

    sources: Mapping[str, PythonSource] = field(default_factory=dict)
    _nearest: dict[str, tuple[PythonSource, ...]] = field(default_factory=dict)
    _indices: dict[str, _Index] = field(default_factory=dict)
    _imports: dict[str, frozenset[str]] = field(default_factory=dict)

    def near(self, source: PythonSource) -> tuple[PythonSource, ...]:
        """The file itself, then the others of its package, the nearest first."""
        if source.path not in self._nearest:
            self._nearest[source.path] = (source, *self._others(source))
        return self._nearest[source.path]

    def _others(self, source: PythonSource) -> list[PythonSource]:
        """Some others of the same package: those that either imports from the other first, then those beside it."""
        folder, imports = PurePosixPath(source.path).parent, self._imported_by(source)

        def distance(other: PythonSource) -> tuple[int, str]:
            related = other.path in imports or source.path in self._imported_by(other)
            return 2 - related - (PurePosixPath(other.path).parent == folder), other.path

        others = [one for path, one in self.sources.items() if path != source.path and _same_package(path, source.path)]
        return sorted((other for other in others if len(other.text) <= MAX_CHARACTERS), key=distance)[:FILES]

    def _imported_by(self, source: PythonSource) -> frozenset[str]:
        if source.path not in self._imports:
            self._imports[source.path] = frozenset(imported_paths(source))
        return self._imports[source.path]

    def _index(self, source: PythonSource) -> _Index:
        if source.path not in self._indices:
            self._indices[source.path] = _index(source)
        return self._indices[source.path]

    def calls(self, source: PythonSource, name: str) -> Iterator[tuple[PythonSource, ast.Call]]:
        """Calls of functions and methods of this name."""
        for other in self.near(source):
            yield from ((other, call) for call in self._index(other).calls.get(name, ()))

    def conditions(self, source: PythonSource, names: Sequence[str]) -> Iterator[tuple[PythonSource, ast.expr]]:
        """Conditions that ask one of these attributes or functions."""
        for other in self.near(source) if names else ():
            known = self._index(other).conditions
            found = {id(test): test for name in names for test in known.get(name, ())}
            yield from ((other, test) for test in found.values())

    def functions(self, source: PythonSource, name: str) -> Iterator[tuple[PythonSource, Function]]:
        """Functions and methods of this name."""
        for other in self.near(source):
            yield from ((other, function) for function in self._index(other).functions.get(name, ()))


def _same_package(one: str, other: str) -> bool:
    return _first_folder(one) == _first_folder(other)


def _first_folder(path: str) -> tuple[str, ...]:
    parts = PurePosixPath(path).parts[:-1]
    return parts[:2] if parts[:1] in (("src",), ("lib",)) else parts[:1]


def _index(source: PythonSource) -> _Index:
    found = _Index({}, {}, {})
    for node in source.nodes:
        if isinstance(node, ast.Call):
            found.calls.setdefault(called_name(node), []).append(node)
        elif isinstance(node, Function):
            found.functions.setdefault(node.name, []).append(node)
        tests = [node.test] if isinstance(node, _TESTS) else node.values if isinstance(node, ast.BoolOp) else []
        for test in tests:
            if len(source.segment(test)) <= MAX_TEXT:
                for name in members(test):
                    found.conditions.setdefault(name, []).append(test)
    return found


def called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def members(node: ast.AST) -> dict[str, None]:
    """Attributes that an expression asks, and functions that it calls, in their order."""
    found: dict[str, None] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute):
            found[part.attr] = None
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
            found[part.func.id] = None
    return found
