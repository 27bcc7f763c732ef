"""Compares programs with the right one on the same inputs; runs inside the sandbox and prints one JSON document.

Each program runs in a child of its own. Steps are counted, not seconds, so that the answer is the same every time; a
clock only catches what a single step can do to last for ever.
"""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import json
import math
import os
import random
import re
import resource
import select
import signal
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import codepilot_inputs  # type: ignore[import-not-found]  # both lie side by side inside

SEED = 20_240_229
WANTED = 1_000
OFFERED = 2_500
STEPS = 20_000
ALL_STEPS = 4_000_000
"""How many steps the right program may take for all inputs that were made."""
EXAMPLE_STEPS = 2_000_000
PATIENCE = 100
"""How many times the right program's steps another one may take: slower is not wrong."""
SPARE_STEPS = 500_000
CALL_SEC = 6
"""Processor time, so that a busy machine changes nothing."""
SILENCE_SEC = 40
RESTARTS = 3
ENOUGH = 10
"""How many differences settle it."""
ENDLESS_ENOUGH = 2
MEMORY = 1 << 29
CLOSE = 1e-6
MOST_OBJECTS = 20_000

Call = tuple[Any, ...]


class Endless(BaseException):
    """More steps, or more time, than the call may take."""


# --- calling --------------------------------------------------------------------------------------------------


class Counter:
    """Runs a call line by line and stops it after so many."""

    def __init__(self) -> None:
        self.steps = 0
        self.limit = 0

    def _line(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        self.steps += 1
        if self.steps > self.limit:
            raise Endless
        return self._line

    def run(self, act: Callable[[], Any], limit: int) -> Any:
        self.steps, self.limit = 0, limit
        signal.setitimer(signal.ITIMER_PROF, CALL_SEC, 0.5)
        sys.settrace(self._line)
        try:
            return act()
        finally:
            sys.settrace(None)
            signal.setitimer(signal.ITIMER_PROF, 0)


def ring(number: int, frame: types.FrameType | None) -> None:
    raise Endless


def outcome(function: Callable[..., Any], arguments: Call, limit: int) -> tuple[list[Any], int]:
    """What a call does, as plain data, and how many steps it took."""
    counter = Counter()
    given = copy.deepcopy(arguments)

    def act() -> Any:
        value = function(*given)
        result = describe(value)
        return [result, describe(list(given))] if value is None else [result]

    try:
        return ["value", *counter.run(act, limit)], counter.steps
    except Endless:
        return ["endless"], counter.steps
    except BaseException as error:  # noqa: BLE001 - whatever the judged program raises is its behaviour
        return ["raised", type(error).__name__], counter.steps


def _items(value: Mapping[Any, Any]) -> list[tuple[Any, Any]] | None:
    """What a mapping holds; None if it cannot be walked through, as one that moves what is looked at."""
    try:
        return list(value.items())
    except Exception:  # noqa: BLE001 - whatever the program's own mapping raises
        return None


def describe(value: Any, seen: dict[int, int] | None = None) -> Any:
    """A value as JSON: numbers by worth, containers by content, objects by what they hold."""
    seen = {} if seen is None else seen
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int):
        return {"number": hex(value)}
    if isinstance(value, float):
        return {"number": repr(value)}
    if isinstance(value, bytes | bytearray | complex | type | types.FunctionType | types.ModuleType):
        return {"text": repr(value) if not hasattr(value, "__qualname__") else value.__qualname__}
    if len(seen) > MOST_OBJECTS:
        return {"text": type(value).__name__}
    if id(value) in seen:
        return {"again": seen[id(value)]}
    seen[id(value)] = len(seen)
    if isinstance(value, tuple):
        return {"tuple": [describe(item, seen) for item in value]}
    if isinstance(value, list | Iterator | range):
        return {"list": [describe(item, seen) for item in itertools.islice(value, 100_000)]}
    if isinstance(value, set | frozenset):
        return {"set": sorted((describe(item, seen) for item in value), key=json.dumps)}
    if isinstance(value, Mapping) and (items := _items(value)) is not None:
        pairs = [[describe(key, seen), describe(item, seen)] for key, item in items]
        return {"mapping": sorted(pairs, key=json.dumps)}
    held = getattr(value, "__dict__", None)
    return {"object": type(value).__name__, "holds": describe(held, seen) if held is not None else repr(type(value))}


def same(left: Any, right: Any) -> bool:
    """True if two described values are equal, floats by closeness."""
    if isinstance(left, dict) and isinstance(right, dict):
        if set(left) == set(right) == {"number"}:
            return left == right or math.isclose(
                _worth(left["number"]), _worth(right["number"]), rel_tol=CLOSE, abs_tol=CLOSE
            )
        return set(left) == set(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _worth(text: str) -> float:
    try:
        return float(int(text, 16)) if "0x" in text else float(text)
    except OverflowError:
        return math.inf


# --- programs -------------------------------------------------------------------------------------------------


def load(path: str, name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__file__ = path
    exec(compile(Path(path).read_text("utf-8"), path, "exec"), module.__dict__)
    return module


def find(module: types.ModuleType, entry: str) -> Any:
    found: Any = module
    for part in entry.split("."):
        found = getattr(found, part)
    return found


def run_checks(checks: Sequence[str], module: types.ModuleType, entry: str, function: Callable[..., Any]) -> str:
    """The first held-out check that does not hold, or nothing."""
    for number, text in enumerate(checks, 1):
        random.seed(SEED)
        names = {**vars(module), entry: function, "__name__": "checks"}
        try:
            Counter().run(partial(exec, text, names), EXAMPLE_STEPS)
        except Endless:
            return f"held-out check {number} does not end"
        except BaseException as error:  # noqa: BLE001 - whatever the judged program raises is its behaviour
            return f"held-out check {number} fails: {type(error).__name__}: {str(error)[:100]}"
    return ""


def recorded(spec: dict[str, Any], module: types.ModuleType) -> list[Call]:
    """Arguments that the checks and tests give to the right program."""
    calls: list[Call] = [tuple(arguments) for arguments in spec.get("examples", [])]
    right = find(module, spec["entry"])

    def listen(*arguments: Any) -> Any:
        calls.append(copy.deepcopy(arguments))
        return right(*arguments)

    run_checks(spec.get("checks", []), module, spec["entry"], listen)
    if spec.get("tests"):
        _run_tests(spec, listen)
    return calls


def _run_tests(spec: dict[str, Any], listen: Callable[..., Any]) -> None:
    """The functions of a test file that take nothing, with the right program in the place of the tested one."""
    package, _, stem = spec["path"].removesuffix(".py").rpartition("/")
    program = types.ModuleType(stem)
    setattr(program, spec["entry"], listen)
    sys.modules[package] = types.ModuleType(package)
    sys.modules[f"{package}.{stem}"] = program
    sys.modules["pytest"] = pytest = types.ModuleType("pytest")
    pytest.use_correct = False  # type: ignore[attr-defined]
    names: dict[str, Any] = {"__name__": "tests"}
    exec(compile(spec["tests"], "tests", "exec"), names)
    for name, test in list(names.items()):
        if name.startswith("test") and isinstance(test, types.FunctionType) and not test.__code__.co_argcount:
            with contextlib.suppress(Exception):
                Counter().run(test, EXAMPLE_STEPS)


# --- comparing ------------------------------------------------------------------------------------------------


def stream(act: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    """What `act` yields in a process of its own, as it comes. Silence ends the process: one step can last for ever."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            with os.fdopen(writing, "wb", buffering=0) as pipe:
                for item in act():
                    pipe.write(json.dumps(item).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    try:
        yield from _lines(reading)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _lines(reading: int) -> Iterator[Any]:
    rest = b""
    while select.select([reading], [], [], SILENCE_SEC)[0]:
        data = os.read(reading, 1 << 20)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from map(json.loads, lines)


Ready = Callable[[], tuple[str, Callable[..., Any]]]
"""Makes a program ready in the child that will run it: why it is unfit, if it is, and the function to call."""


def behaviour(ready: Ready, inputs: Sequence[Call], limits: Iterator[int]) -> Iterator[Any]:
    """First why the program is unfit, if it is; then what it does with each input, and in how many steps."""
    try:
        unfit, function = ready()
    except BaseException as error:  # noqa: BLE001 - whatever the judged program raises is its behaviour
        yield f"it cannot be loaded: {type(error).__name__}"
        return
    yield unfit
    for arguments, limit in zip(inputs, limits, strict=False):
        _end_in(CALL_SEC + 2)
        yield outcome(function, arguments, limit)


def _end_in(seconds: int) -> None:
    """Let the kernel end this process after so much processor time: a single step can last for ever."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds, hard))


def domain(ready: Ready, inputs: Sequence[Call], examples: int) -> tuple[str, list[tuple[Call, Any, int]]]:
    """What the right program does with the inputs it is for: those it ends on, and fails on only in the tests."""
    kept: list[tuple[Call, Any, int]] = []
    begin, spent = 0, 0
    for _ in range(RESTARTS):
        limits = itertools.chain([EXAMPLE_STEPS] * max(0, examples - begin), itertools.repeat(STEPS))
        answers = stream(partial(behaviour, ready, inputs[begin:], limits))
        unfit = next(answers, "the right program cannot be run")
        if unfit:
            return unfit, []
        for index, (done, steps) in enumerate(answers, begin):
            begin, spent = index + 1, spent + (steps if index >= examples else 0)
            if done[0] == "value" or (done[0] == "raised" and index < examples):
                kept.append((inputs[index], done, steps))
            if len(kept) >= WANTED + examples or spent > ALL_STEPS:
                return "", kept
        begin += 1
        if begin >= len(inputs):
            break
    return "", kept


def difference(ready: Ready, kept: Sequence[tuple[Call, Any, int]]) -> dict[str, Any]:
    """Compare a program with the right one on every input; with a difference comes the first input that shows it."""
    limits = iter([PATIENCE * steps + SPARE_STEPS for _, _, steps in kept])
    answers = stream(partial(behaviour, ready, [call for call, _, _ in kept], limits))
    unfit = next(answers, "it ended the process that ran it")
    if unfit:
        return {"correct": False, "reason": unfit}
    wrong: list[str] = []
    seen = endless = 0
    for (call, right, _), (done, _) in zip(kept, answers, strict=False):
        seen += 1
        if not same(done, right):
            endless += done == ["endless"]
            wrong.append(f"{_short(_text(call))} gives {_short(_shown(done))}, not {_short(_shown(right))}")
        if len(wrong) >= ENOUGH or endless >= ENDLESS_ENOUGH:
            break
    answers.close()  # type: ignore[attr-defined]
    if wrong:
        return {"correct": False, "reason": f"differs on {len(wrong)} of {seen} inputs: {wrong[0]}"}
    if seen < len(kept):
        return {"correct": False, "reason": f"does not end, or dies, on {_short(_text(kept[seen][0]))}"}
    return {"correct": True, "reason": ""}


def widened(calls: Sequence[Call]) -> tuple[list[Call], int]:
    """The calls without repetition, then as many others made like them as may be wanted."""
    examples: dict[str, Call] = {}
    for call in calls:
        examples.setdefault(json.dumps(describe(list(call))), call)
    inputs, seen = list(examples.values()), set(examples)
    for call in itertools.islice(codepilot_inputs.generate(list(inputs), SEED), OFFERED):
        known = json.dumps(describe(list(call)))
        if known not in seen:
            seen.add(known)
            inputs.append(call)
    return inputs, len(examples)


# --- one file -------------------------------------------------------------------------------------------------


def checked(path: str, spec: dict[str, Any]) -> tuple[str, Callable[..., Any]]:
    module = load(path, "judged")
    function = find(module, spec["entry"])
    return run_checks(spec.get("checks", []), module, spec["entry"], function), function


def judge(spec: dict[str, Any]) -> dict[str, Any]:
    inputs, examples = widened(recorded(spec, load(spec["reference"], "right")))
    unfit, kept = domain(partial(checked, spec["reference"], spec), inputs, examples)
    if unfit or not kept:
        return {"broken": unfit or "the right program ends on no input", "inputs": 0, "judged": []}
    judged = [difference(partial(checked, path, spec), kept) for path in spec["candidates"]]
    return {"broken": "", "inputs": len(kept), "judged": judged}


def _shown(described: Any) -> str:
    if isinstance(described, dict):
        ((kind, held),) = list(described.items())[:1]
        if kind == "number":
            return str(int(held, 16)) if "0x" in held else str(held)
        inner = ", ".join(map(_shown, held)) if isinstance(held, list) else str(held)
        return {"list": f"[{inner}]", "tuple": f"({inner})", "set": f"{{{inner}}}"}.get(kind, json.dumps(described))
    if isinstance(described, list):
        return " ".join(map(_shown, described[1:] if described[:1] == ["value"] else described))
    return repr(described)


def _text(value: object) -> str:
    """How a value shows itself, if it can: one made up need not be whole."""
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - whatever the program's own __repr__ raises
        return f"<{type(value).__name__} that shows itself by {type(error).__name__}>"


def _short(text: str) -> str:
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text if len(text) <= 120 else text[:117] + "..."


def main() -> None:
    spec = json.loads(Path("spec.json").read_text("utf-8"))
    sys.path[:0] = [str(Path.cwd()), str(Path.cwd() / "extra")]
    sys.setrecursionlimit(3000)
    signal.signal(signal.SIGPROF, ring)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        verdict = judge(spec)
    sys.stdout.write(json.dumps(verdict) + "\n")


if __name__ == "__main__":
    main()
