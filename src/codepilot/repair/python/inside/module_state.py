"""What the project's modules remember (caches, registers, counters), put back between candidates that share a process.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Iterable
from typing import Any

PAIRS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
ROWS = (list, set, collections.deque)
MOST_ITEMS = 20000
DEEPEST = 3
MISSING = object()


class Memory:
    """Taken before any test has run. Only plain containers are touched, and the parts of modules, classes, objects."""

    def __init__(self) -> None:
        self.caches: list[Any] = []
        self.rows: list[tuple[Any, list[Any]]] = []
        """Things, and what they held."""
        self.pairs: list[tuple[Any, list[Any], list[Any]]] = []
        """Things, the names in them, and what those stood for."""
        self.classes: list[tuple[Any, list[Any], list[Any]]] = []
        self.names: set[str] = set()
        self.seen: set[int] = set()
        self.left = MOST_ITEMS

    def learn(self, modules: list[types.ModuleType], functions: Iterable[Any], caches: list[Any]) -> None:
        """`caches` are what `functools.lru_cache` made of the project's functions."""
        self.caches += caches
        self.names.update(module.__name__ for module in modules)
        level: list[Any] = [vars(module) for module in modules]
        for function in functions:
            named = (function.__kwdefaults__ or {}).values()
            level += self._inner([*(function.__defaults__ or ()), *named, *_enclosed(function)])
        for _ in range(DEEPEST):
            level = [inner for thing in level for inner in self._keep(thing)]

    def _keep(self, thing: Any) -> list[Any]:
        named = vars(thing) if isinstance(thing, type) else thing if type(thing) in PAIRS else None
        held = [*thing] if named is None else [*named.values()]
        if id(thing) in self.seen or len(held) > self.left:
            return []
        self.seen.add(id(thing))
        self.left -= len(held)
        if named is None:
            self.rows.append((thing, held))
        else:
            (self.pairs if named is thing else self.classes).append((thing, [*named], held))
        return self._inner(held)

    def _inner(self, values: Iterable[Any]) -> list[Any]:
        """The values that can hold state."""
        parts = (self._part(value) for value in values)
        return [part for part in parts if part is not None]

    def _part(self, value: Any) -> Any:
        kind = type(value)
        if kind in PAIRS or kind in ROWS:
            return value
        try:
            if issubclass(kind, type):
                return value if value.__module__ in self.names else None
            return value.__dict__ if kind.__module__ in self.names and type(value.__dict__) is dict else None
        except Exception:  # noqa: BLE001 - objects of the project's may fail at anything
            return None

    def restored(self) -> bool:
        """Everything is put back as it was when the project had been loaded; False if something refused."""
        try:
            self._restore()
        except Exception:  # noqa: BLE001 - keys of the project's own types may fail at anything
            return False
        return True

    def _restore(self) -> None:
        # Lists compare what they hold by identity first, several times quicker than anything else could.
        for cache in self.caches:
            cache.cache_clear()
        for thing, held in self.rows:
            if [*thing] != held:
                thing.clear()
                (thing.update if type(thing) is set else thing.extend)(held)
        for thing, names, held in self.pairs:
            if [*thing.values()] != held or [*thing] != names:
                _restore_pairs(thing, dict(zip(names, held)))  # noqa: B905 - Python 3.8 knows no `strict`
        for thing, names, held in self.classes:
            now = vars(thing)
            if [*now.values()] != held or [*now] != names:
                _restore_class(thing, dict(zip(names, held)))  # noqa: B905


def _enclosed(function: Any) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # nothing is in it yet
            continue
    return found


def _restore_pairs(thing: Any, held: dict[Any, Any]) -> None:
    for name in [name for name in thing if name not in held]:
        # A module that was imported meanwhile stays known to its package.
        if type(thing[name]) is not types.ModuleType:
            del thing[name]
    for name, value in held.items():
        if dict.get(thing, name, MISSING) is not value:
            thing[name] = value


def _restore_class(thing: Any, held: dict[str, Any]) -> None:
    now = dict(vars(thing))
    for name in now:
        if name not in held and not name.startswith("__"):
            type.__delattr__(thing, name)
    for name, value in held.items():
        if now.get(name, MISSING) is not value and not name.startswith("__"):
            type.__setattr__(thing, name, value)
