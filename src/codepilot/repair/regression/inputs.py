"""Finds the input of the regression test: one on which the repaired function differs from the base's.

One process in the sandbox varies the inputs of the tests and keeps those on which the two functions differ. Others,
with other hash seeds, another home and another time zone, evaluate them again. An input is offered if all agree and the
call uses nothing but its arguments. An input is left out if

- an existing test has it already,
- the call does not end on the base,
- its value or result has no plain source that evaluates to an equal value, or names a place of this machine,
- most other repairs that pass the same tests give another result.

An exception is expected only if a statement of the repaired function raises it. The smallest input comes first. Answers
of the processes are read as hostile input.
"""

from __future__ import annotations

import ast
import builtins
import json
import keyword
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from codepilot.core.artifacts import TestStatus
from codepilot.executor import Executor, RunCommand
from codepilot.project import Project, SuiteRun, environment
from codepilot.repair.edit import Unreadable
from codepilot.repair.python.bootstrap import BOOT, DISTINGUISH, bundle
from codepilot.repair.python.source import PythonSource, PythonUnit
from codepilot.repair.regression.literals import INHERENT, CodeStyle, named, positional, read
from codepilot.repair.regression.writer import Example, Place, Subject, Thing
from codepilot.repair.selection import resolve
from codepilot.sandbox import Limits

MAX_TESTS = 60
MAX_ROWS = 40
MAX_CASES = 24
SEEDS = ("4711", "1", "2", "3", "4", "5", "6")
MAX_ANSWER = 4 << 20
_TOO_LONG = "the search for an input took too long"
VALUES = frozenset({"collections", "datetime", "decimal", "fractions", "pathlib", "uuid"})


def nearby_tests(targets: Sequence[str], baseline: SuiteRun, path: str) -> tuple[tuple[str, ...], int]:
    """Tests that may call what a file holds, the failing ones first; and how many of them those are."""
    failing = resolve(targets, baseline)
    ended = baseline.having(TestStatus.PASSED, TestStatus.FAILED, TestStatus.ERROR)
    stem, files = PurePosixPath(path).stem, {_file(test) for test in failing}

    def distance(test: str) -> int:
        return 0 if test in baseline.red else 1 if stem in _file(test) else 2 if _file(test) in files else 3

    others = sorted((test for test in ended if test not in failing), key=distance)
    return (*failing, *(test for test in others if distance(test) < 3))[:MAX_TESTS], len(failing)


def _file(test: str) -> str:
    """The file of a test, or its module where the runner names that."""
    return test.partition("::")[0] if "::" in test else test.rpartition(".")[0].rpartition(".")[0]


@dataclass(frozen=True)
class DistinguishingRequest:
    """The repair and the base that inputs must distinguish, in a workspace that holds the base."""

    executor: Executor
    workspace: str
    project: Project
    tests: tuple[str, ...]
    """The failing ones first; then others that may call the same functions."""
    targets: int
    """How many of them fail."""
    path: str
    original: bytes
    patched: bytes
    others: tuple[bytes, ...] = ()
    """The same file by other repairs that pass the tests."""
    seconds: float = 20.0
    """For finding inputs and all the checks of them."""
    raise_if_stopped: Callable[[], None] = lambda: None
    """Raises where nobody waits for an answer any more."""


@dataclass(frozen=True)
class DistinguishingInputs:
    """Examples that tell base and repair apart, smallest first; or none, and why."""

    examples: tuple[Example, ...] = ()
    place: Place | None = None
    subject: Subject | None = None
    things: Mapping[str, Thing] | None = None
    reason: str = ""
    path: tuple[str, ...] = ()
    """The module search path inside the sandbox."""


def find_distinguishing_inputs(request: DistinguishingRequest) -> DistinguishingInputs:
    """Look for inputs. The workspace is left as it was."""
    versions = [_differing(request.path, request.original, one) for one in (request.patched, *request.others)]
    if not versions[0]:
        return DistinguishingInputs(reason="the repair lies outside of any function")
    spec: dict[str, Any] = {
        "runner": request.project.runner,
        "tests": list(request.tests[:MAX_TESTS]),
        "targets": request.targets,
        "versions": [version for version in versions if version],
    }
    snapshot = request.executor.snapshot(request.workspace).snapshot
    deadline = time.monotonic() + request.seconds
    try:
        found = _read(_ask(request, {**spec, "op": "find"}, "0", deadline))
        request.raise_if_stopped()
        if not found.examples or found.subject is None:
            return found
        return _checked(request, spec, found, deadline)
    finally:
        request.executor.restore(request.workspace, snapshot)


def _differing(path: str, original: bytes, patched: bytes) -> list[dict[str, Any]]:
    """The functions that a repair changes, as they become; empty if it changes something else as well."""
    try:
        before, after = PythonSource.read(path, original), PythonSource.read(path, patched)
    except Unreadable:
        return []
    old, new = ([(unit.qualname, unit) for unit in source.units] for source in (before, after))
    if [name for name, _ in old] != [name for name, _ in new] or _around(before) != _around(after):
        return []
    pairs = [(was, now) for (_, was), (_, now) in zip(old, new, strict=True) if was.segment() != now.segment()]
    if any(_signature(was) != _signature(now) for was, now in pairs):
        return []
    return [
        {
            "path": path,
            "segment": now.segment(),
            "qualname": now.qualname,
            "line": was.first_line,
            "shift": now.line_shift,
            "future": list(after.future),
        }
        for was, now in pairs
    ]


def _around(source: PythonSource) -> list[str]:
    """The file without its functions."""
    pieces, at = [], 0
    for unit in source.units:
        pieces.append(source.text[at : unit.start])
        at = unit.end
    return [*pieces, source.text[at:]]


def _signature(unit: PythonUnit) -> str:
    """The expressions that are evaluated when the function is defined and are not part of its code object."""
    return ast.dump(unit.node.args) + "".join(map(ast.dump, unit.node.decorator_list))


# --- speaking with the inside -----------------------------------------------------------------------------------------


def _ask(request: DistinguishingRequest, spec: Mapping[str, Any], seed: str, deadline: float) -> dict[str, Any]:
    """One process, one question. Whatever goes wrong in there is an answer without anything in it."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        return {"reason": _TOO_LONG}
    done = request.executor.run_command(
        RunCommand(
            workspace=request.workspace,
            argv=(request.project.interpreter.executable, "-c", BOOT),
            stdin=bundle(DISTINGUISH) + json.dumps(spec).encode() + b"\n",
            env={**environment(request.project), "PYTHONHASHSEED": seed},
            timeout_sec=seconds,
            limits=Limits(wall_sec=seconds, output_bytes=MAX_ANSWER),
        )
    )
    line = done.stdout.partition(b"\n")[0]
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    ended = _TOO_LONG if done.status == "timeout" else "the search for an input failed"
    return answer if isinstance(answer, dict) else {"reason": ended}


def _read(answer: Mapping[str, Any]) -> DistinguishingInputs:
    place, subject, rows = answer.get("place"), answer.get("subject"), answer.get("rows")
    if not (isinstance(place, dict) and isinstance(subject, dict) and isinstance(rows, list)):
        return DistinguishingInputs(reason=_line(answer.get("reason")) or "no input was found")
    try:
        return _understood(answer, place, subject, rows)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return DistinguishingInputs(reason="the search for an input failed")


def _understood(
    answer: Mapping[str, Any], place: Mapping[str, Any], subject: Mapping[str, Any], rows: list[Any]
) -> DistinguishingInputs:
    value = answer.get("names")
    things = {name: _thing(one) for name, one in value.items() if _is_plain(one)} if isinstance(value, dict) else {}
    main = Subject(_thing(subject), tuple(map(_identifier, subject["parameters"])))
    if main.thing.name in INHERENT:
        raise ValueError(f"{main.thing.name} means something else in a value")
    where, path = _place(place), tuple(map(_text, answer["path"]))
    agreed = sorted(filter(_agreed, rows[:MAX_ROWS]), key=lambda row: int(row["against"]))
    known = {**things, main.thing.name: main.thing}
    examples = tuple(islice((one for row in agreed for one in _examples(row, known)), MAX_CASES))
    if rows and not agreed:
        return DistinguishingInputs(reason="repairs that pass the same tests do not agree on any further input")
    reason = "" if examples else "no such input can be written as plain source"
    return DistinguishingInputs(examples, where, main, things, reason, path)


def _place(value: Mapping[str, Any]) -> Place:
    test, path, scope, name = (_text(value[key]) for key in ("test", "file", "scope", "name"))
    return Place(path, scope, name, value["unittest"] is True, test)


def _agreed(row: Any) -> bool:
    """True if at most half of the other repairs do something else."""
    against, others = row["against"], row["others"]
    if type(against) is not int or type(others) is not int:
        raise ValueError("no numbers")
    return 2 * against <= others


def _thing(value: Mapping[str, Any]) -> Thing:
    name, module, bound = _identifier(value["name"]), _text(value["module"]), tuple(map(_text, value["bound"]))
    for dotted in (*bound, module):
        list(map(_identifier, dotted.split(".")))
    return Thing(name, module, bound)


def _is_plain(value: Mapping[str, Any]) -> bool:
    """True if a value may name it: a class of the project, or of the library's modules that hold nothing but values."""
    root = _text(value["module"]).partition(".")[0]
    return not hasattr(builtins, value["name"]) and (root not in sys.stdlib_module_names or root in VALUES)


def _identifier(name: object) -> str:
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is no name")
    return name


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _line(text: object) -> str:
    return " ".join(str(text).split())[:200] if isinstance(text, str) else ""


def _examples(row: Mapping[str, Any], things: Mapping[str, Thing]) -> Iterator[Example]:
    """The row as source, by place where that is shorter; nothing if it is more than values."""
    call, result = read(f"f({_text(row['args'])})"), read(_text(row["result"])) if "result" in row else None
    raises = _identifier(row["raises"]) if "raises" in row else ""
    if not isinstance(call, ast.Call) or (result is None) == (not raises):
        return
    if raises and raises not in things and not hasattr(builtins, raises):
        return
    arguments, keywords = tuple(call.args), tuple((str(one.arg), one.value) for one in call.keywords)
    plain = Example(arguments, keywords, result, raises)
    values = [*arguments, *(value for _, value in keywords), *([result] if result is not None else [])]
    if any(name not in things for value in values for name in named(value)):
        return
    placed = Example(
        tuple(map(positional, arguments)),
        tuple((name, positional(value)) for name, value in keywords),
        positional(result) if result is not None else None,
        raises,
    )
    if _texts(placed, "f") != _texts(plain, "f"):
        yield placed
    yield plain


def _texts(example: Example, name: str) -> dict[str, str]:
    """The example as the inside evaluates it."""
    style = CodeStyle()
    given = [*map(style.written, example.arguments), *(f"{key}={style.written(one)}" for key, one in example.keywords)]
    call = {"call": f"{name}({', '.join(given)})"}
    return (
        {**call, "raises": example.raises}
        if example.result is None
        else {**call, "result": style.written(example.result)}
    )


def _checked(
    request: DistinguishingRequest, spec: Mapping[str, Any], found: DistinguishingInputs, deadline: float
) -> DistinguishingInputs:
    """Those of the examples that hold in other processes with other hash seeds, written as a test would.

    Under all seeds always: what a function keeps in a set need not be in its arguments.
    """
    assert found.subject is not None
    main, things = found.subject.thing, found.things or {}
    cases = [_texts(example, main.name) for example in found.examples]
    names = {one.name: one.module for one in (*things.values(), main)}
    asked = {**spec, "op": "check", "tests": [], "cases": cases, "names": names, "path": list(found.path)}
    kept, why = list(found.examples), "what the repair gives on further inputs is not the same each time and everywhere"
    for seed in SEEDS:
        request.raise_if_stopped()
        answer = _ask(request, asked, seed, deadline)
        value = answer.get("held")
        if not isinstance(value, list) or len(value) != len(cases):
            return replace(found, examples=(), reason=_line(answer.get("reason")) or why)
        held = [one for one, holds in zip(found.examples, value, strict=True) if holds is True]
        kept = [one for one in kept if one in held]
        if not kept:
            return replace(found, examples=(), reason=why)
    return replace(found, examples=tuple(kept))
