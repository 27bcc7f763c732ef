"""How skills arrive in a kernel: named at once, read when first called. Standard library only: it travels.

Reading all of them would take as long as starting the kernel does. What an action may change before a skill is read
(the working directory) is kept here as it was.
"""

from __future__ import annotations

import linecache
import os
import sys
from _thread import RLock, get_ident
from collections.abc import Callable, Iterable, Sequence
from functools import update_wrapper
from types import FunctionType, ModuleType

TYPE_CHECKING = False  # importing typing would take longer than all the rest
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
    """Leave `skills` (module, name, how a call is bounded, first line) in a namespace.

    `stubs` is the module that has the signature and documentation of each skill whose body may wait.
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
    """Have modules do what a workspace needs once."""
    for name in modules:
        sys.modules[name].prepare()


def _placed(name: str, source: str, facts: dict[str, str]) -> Callable[[], None]:
    """Place a module that is read when something of it is first asked for; gives what reads it now."""
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
            except BaseException:  # an interrupt, perhaps: the next who asks reads it again
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
    """What tracebacks call a module's source; the kernel leaves frames of such files out."""
    return f"<skills {module[8:]}>"
