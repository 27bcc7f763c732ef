"""Defines skills in a kernel: named at once, compiled on the first call. Standard library only: it is shipped.

Compiling all of them takes as long as starting the kernel. The working directory is kept here because an action may
change it before a skill is compiled.
"""

from __future__ import annotations

import linecache
import os
import sys
from _thread import RLock, get_ident
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from types import FunctionType, ModuleType

TYPE_CHECKING = False  # importing typing takes longer than everything else here
if TYPE_CHECKING:
    from typing import Any

FOLDER = os.getcwd()  # noqa: PTH109  (pathlib is not needed yet)
THREAD = get_ident()

_lock = RLock()


def load(
    into: dict[str, Any],
    modules: Iterable[tuple[str, str]],
    stubs: tuple[str, str],
    skills: Iterable[tuple[str, str, Sequence[float], int]],
    calls: str,
    facts: dict[str, str],
    at_once: Iterable[str],
) -> None:
    """Define `skills` (module, name, bounds of a call, first line) in a namespace.

    `stubs` is the module with the signature and documentation of each skill that is compiled later.
    """
    reads = {name: _placed(name, source, facts) for name, source in (*modules, stubs)}
    for name in at_once:
        reads[name]()
    for module, name, bounds, line in skills:
        body = sys.modules[module]
        stub = getattr(sys.modules[stubs[0]], name, None)
        if stub is None:
            into[name] = sys.modules[calls].called(getattr(body, name), *bounds)
            continue
        if body.__name__ != stubs[0]:
            stub.__module__ = module
            stub.__code__ = stub.__code__.replace(co_filename=_file(module), co_firstlineno=line)
        into[name] = _shown(stub, body, sys.modules[calls], bounds)


def have_prepared(modules: Sequence[str]) -> None:
    """Let modules set up the workspace once."""
    for name in modules:
        sys.modules[name].prepare()


def _placed(name: str, source: str, facts: dict[str, str]) -> Callable[[], None]:
    """Add a module that is compiled on its first use. Returns a function that compiles it now."""
    module = sys.modules[name] = ModuleType(name)
    space = module.__dict__
    empty = dict(space)
    linecache.cache[_file(name)] = (len(source), None, source.splitlines(keepends=True), _file(name))

    def read() -> None:
        with _lock:
            if space.pop("__getattr__", None) is None:
                return
            try:
                exec(compile(source, _file(name), "exec"), space)
            except BaseException:  # perhaps an interrupt: the next use compiles it again
                space.clear()
                space.update(empty, __getattr__=missing)
                raise
            space.update((key, value) for key, value in facts.items() if key in space)

    def missing(asked: str) -> Any:
        if not asked.startswith("__"):
            read()
        if asked in space:
            return space[asked]
        raise AttributeError(f"module {name!r} has no attribute {asked!r}")

    space["__getattr__"] = missing
    return read


def _shown(stub: FunctionType, body: ModuleType, calls: ModuleType, bounds: Sequence[float]) -> Callable[..., Any]:
    """The skill as code actions see it, before and after its body is read."""
    ready: Any = None

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal ready
        if ready is None:
            with _lock:
                function = getattr(body, stub.__name__)
                ready = calls.called(function, *bounds)
            update_wrapper(call, function)
        return ready(*args, **kwargs)

    return update_wrapper(call, stub)


def _file(module: str) -> str:
    """The file name in tracebacks; the kernel leaves out frames of such files."""
    return f"<skills {module[8:]}>"
