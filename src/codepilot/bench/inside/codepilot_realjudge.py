"""Compares an offer with the fix, function by function, on the calls that the fix's tests make and others like them.

Runs inside the sandbox, from the top of a tree that holds the fix; prints one JSON document at its end.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import io
import json
import os
import signal
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import codepilot_judge  # type: ignore[import-not-found]  # both lie side by side inside

MOST_CALLS = 40
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


# --- where the two differ -------------------------------------------------------------------------------------


def bodies(tree: ast.Module) -> dict[str, str]:
    """Every outermost function's body, by its name; the bodies are taken out of the tree."""
    found: dict[str, str] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, _FUNCTIONS):
                name = f"{prefix}{child.name}"
                while name in found:
                    name += "+"
                found[name] = ast.dump(ast.Module(child.body, []))
                child.body = []
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.stmt):
                visit(child, prefix)

    visit(tree, "")
    return found


def differing(fix: str, offer: str) -> list[str] | None:
    """The functions whose bodies differ; None if anything else does."""
    left, right = ast.parse(fix), ast.parse(offer)
    before, after = bodies(left), bodies(right)
    if ast.dump(left) != ast.dump(right) or set(before) != set(after):
        return None
    return [name for name in before if before[name] != after[name]]


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


# --- the calls ------------------------------------------------------------------------------------------------


class Listener:
    """Notes the arguments of calls while the tests run."""

    def __init__(self, file: str, names: list[str]) -> None:
        self.calls: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
        self._file = file

    def __call__(self, frame: types.FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_qualname not in self.calls or os.path.realpath(code.co_filename) != self._file:
            return
        calls = self.calls[code.co_qualname]
        if len(calls) < MOST_CALLS:
            sys.setprofile(None)
            try:
                with contextlib.suppress(BaseException):
                    calls.append(copy.deepcopy(tuple(frame.f_locals[name] for name in parameters(code))))
            finally:
                sys.setprofile(self)


def parameters(code: types.CodeType) -> tuple[str, ...]:
    many = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + many]


def call(function: types.FunctionType, *arguments: Any) -> Any:
    """Call a function with what `parameters` names, in that order."""
    code = function.__code__
    plain, named = code.co_argcount, code.co_kwonlyargcount
    rest = list(arguments[plain + named :])
    extra = rest.pop(0) if code.co_flags & inspect.CO_VARARGS else ()
    more = rest.pop(0) if code.co_flags & inspect.CO_VARKEYWORDS else {}
    keywords = dict(zip(code.co_varnames[plain : plain + named], arguments[plain:], strict=False))
    return function(*arguments[:plain], *extra, **keywords, **more)


def find(file: str, name: str) -> types.FunctionType | None:
    """The function object behind a name of the file, without what decorates it."""
    module = next(
        (m for m in list(sys.modules.values()) if os.path.realpath(getattr(m, "__file__", None) or "/") == file), None
    )
    found: Any = module
    for part in name.split("."):
        try:
            found = inspect.getattr_static(found, part)
        except AttributeError:
            return None
    for _ in range(10):
        if isinstance(found, types.FunctionType) and found.__code__.co_qualname == name:
            return found
        inner = [getattr(found, at, None) for at in ("__func__", "fget", "__wrapped__", "func")]
        found = next((one for one in inner if one is not None), None)
    return None


# --- the verdict ----------------------------------------------------------------------------------------------


def swapped(function: types.FunctionType, others: dict[types.FunctionType, types.CodeType]) -> tuple[str, Any]:
    """In the child: put the offer's code in the fix's place."""
    for one, code in others.items():
        one.__code__ = code
    return "", partial(call, function)


def as_it_is(function: types.FunctionType) -> tuple[str, Any]:
    return "", partial(call, function)


def judge(spec: dict[str, Any], run: Callable[[Listener], None]) -> dict[str, Any]:
    fix, offer = Path(spec["source"]).read_text("utf-8"), Path(__file__).with_name("candidate.py").read_text("utf-8")
    names = differing(fix, offer)
    if names is None:
        return _no("it differs from the fix outside of functions' bodies, which cannot be compared")
    file = os.path.realpath(spec["source"])
    listener = Listener(file, names)
    run(listener)
    new = {code.co_qualname: code for code in codes(compile(offer, file, "exec"))}
    functions = {name: find(file, name) for name in names}
    others: dict[types.FunctionType, types.CodeType] = {}
    for name, function in functions.items():
        if function is None or not listener.calls[name]:
            return _no(f"the tests make no call of {name} that could be repeated")
        if new[name].co_freevars != function.__code__.co_freevars:
            return _no(f"{name} uses other variables of its surroundings, which cannot be compared")
        others[function] = new[name]
    total = 0
    for name, function in functions.items():
        assert function is not None
        inputs, examples = codepilot_judge.widened(listener.calls[name])
        unfit, kept = codepilot_judge.domain(partial(as_it_is, function), inputs, examples)
        if unfit or not kept:
            return _no(f"the fix's {name} ends on no call: {unfit}")
        total += len(kept)
        found = codepilot_judge.difference(partial(swapped, function, others), kept)
        if not found["correct"]:
            return _no(f"{name} {found['reason']}", total)
    return {"correct": True, "reason": "", "inputs": total}


def _no(reason: str, inputs: int = 0) -> dict[str, Any]:
    return {"correct": False, "reason": reason, "inputs": inputs}


def run_tests(tests: list[str], listener: Listener) -> None:
    import pytest

    class Plugin:
        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_call(self) -> Iterator[None]:
            sys.setprofile(listener)
            yield
            sys.setprofile(None)

    options = ["-q", "-p", "no:cacheprovider", "-p", "codepilot_options", "--rootdir=."]
    pytest.main([*options, *tests], plugins=[Plugin()])


def main() -> None:
    spec = json.loads(Path(__file__).with_name("spec.json").read_text("utf-8"))
    sys.path.insert(0, str(Path.cwd()))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        signal.signal(signal.SIGPROF, codepilot_judge.ring)
        verdict = judge(spec, partial(run_tests, spec["tests"]))
    sys.stdout.write("\n" + json.dumps(verdict) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
