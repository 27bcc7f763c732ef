"""Which files a file imports, told from what it writes and from the names of the files there are."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from codepilot.context.source import language_of
from codepilot.context.symbols import FileSymbols

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
        """What each file imports, without itself."""
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
    """By package, what it hands on, and what the packages among that hand on in turn."""
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
