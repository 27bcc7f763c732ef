"""How far the behaviour of a change spreads: on which inputs the changed functions do something else than the base's.

The process runs in the changed tree. It notes the arguments that the failing tests give to functions of the changed
files, loads both versions of those files, and calls both on those inputs and on others like them.
A change that differs on the tests' own inputs alone is a special case.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import re
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from .behaviour import copied, described, parameters, varied
from .calling import Channel
from .coverage import Guard, relative
from .outside import Outside, all_ends, ends, functions_of
from .suites import PytestSuite, UnittestSuite
from .typed_inputs import random_inputs

MOST_FUNCTIONS = 10
MOST_CALLS = 12
TEST_SEC = 3.0
ALL_SEC = 8.0
VARIANTS_SEC = 5.0
MOST_TEXTS = 24
MOST_OUTSIDE = 24
NUMBER = re.compile(r"\d+")
WORD = re.compile(r"[^\W\d_]{3,}")
MAX_TEXT = 400
SPECIAL = 0x80 | 0x200
"""Flags of coroutines."""
GENERATOR = 0x20
MOST_GENERATORS = 200
SPECIAL_ARGUMENTS = 0x04 | 0x08
"""Flags of functions that gather further arguments."""
DEEPEST = 2
MOST_PARTS = 20
SIZED = (int, float, str, bytes, list, tuple, dict, set, frozenset)


class Stop(BaseException):
    """Something has used up its time."""


class Spread:
    def __init__(self, channel: Any, spec: dict[str, Any]) -> None:
        self.channel, self.spec = channel, spec
        self.suite: Any = UnittestSuite() if spec["runner"] == "unittest" else PytestSuite()
        self.before: dict[str, str | None] = spec["files"]
        """The base's text of each changed file; None for a new one."""
        self.own: dict[Any, list[tuple[Any, ...]]] = {}
        self.others: dict[Any, list[tuple[Any, ...]]] = {}
        self.seen: set[tuple[Any, str]] = set()
        self.busy = False
        self.noted = self.own
        self.generators: list[Any] = []
        """The frames of those that began."""

    def start(self) -> None:
        signal.signal(signal.SIGPROF, self._stop)
        signal.signal(signal.SIGALRM, self._stop)
        self.outside = Outside({}), Outside({path: text for path, text in self.before.items() if text is not None})
        self.suite.open(self.spec["tests"], self._ready)
        self.channel.send(reason="the failing test could not be loaded")

    def _stop(self, *_: object) -> None:
        raise Stop

    def _ready(self) -> None:
        tests = [name for name in self.spec["tests"] if name in self.suite.items]
        Guard().arm(strict=True)
        ends = time.monotonic() + ALL_SEC
        for number, name in enumerate(tests):
            self.noted = self.own if number < self.spec["targets"] else self.others
            if time.monotonic() < ends:
                self._record(name)
        try:
            functions, variants = self._compared()
        except Exception as error:  # noqa: BLE001 - the base's files may fail at anything when they are loaded again
            self.channel.send(reason="the base could not be loaded together with the change: " + type(error).__name__)
            os._exit(0)
        self.channel.send(functions=functions, variants=variants)
        os._exit(0)

    # --- recording --------------------------------------------------------------------------------------------

    def _record(self, name: str) -> None:
        signal.setitimer(signal.ITIMER_REAL, TEST_SEC)
        sys.setprofile(self._event)
        try:
            self.suite.run(name)
        except BaseException:  # noqa: BLE001 - out of time, or an end of the whole process
            return
        finally:
            sys.setprofile(None)
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _event(self, frame: Any, event: str, _: object) -> None:
        if event != "call" or self.busy:
            return
        code = frame.f_code
        known = self.noted.get(code)
        if (known is not None and len(known) >= MOST_CALLS) or code.co_name.startswith("<"):
            return
        if relative(code.co_filename) not in self.before or code.co_flags & SPECIAL or self._goes_on(frame):
            return
        self.busy = True
        try:
            values = tuple(copied(frame.f_locals[name]) for name in parameters(code))
            key = (code, described(values))
        except Exception:  # noqa: BLE001 - values without a description are no input
            return
        finally:
            self.busy = False
        if key not in self.seen and values:
            self.seen.add(key)
            self.noted.setdefault(code, []).append(values)

    def _goes_on(self, frame: Any) -> bool:
        """True if a generator goes on, or there were too many: its arguments are known only where it begins."""
        if not frame.f_code.co_flags & GENERATOR:
            return False
        if frame in self.generators or len(self.generators) >= MOST_GENERATORS:
            return True
        self.generators.append(frame)
        return False

    # --- comparing --------------------------------------------------------------------------------------------

    def _compared(self) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
        """The changed functions paired with those of the base, and with those of each variant."""
        modules = {
            name: module
            for name, module in list(sys.modules.items())
            if relative(getattr(module, "__file__", None) or "") in self.before
        }
        new = functions_of(modules)
        base = functions_of(self._loaded(modules, self.before))
        by_code = {function.__code__: key for key, function in new.items()}
        calls_of = {by_code[code]: own for code, own in list(self.own.items())[:MOST_FUNCTIONS] if code in by_code}
        others = {key: self.others.get(new[key].__code__, []) for key in calls_of}
        callers = {
            key: base[key] if _adds_defaults(new[key], base.get(key), own) else new[key]
            for key, own in calls_of.items()
        }
        for key, caller in callers.items():
            if caller is not new[key]:
                count = len(parameters(caller.__code__))
                calls_of[key], others[key] = ([one[:count] for one in calls] for calls in (calls_of[key], others[key]))
        inputs = {key: _inputs(callers[key], own, others[key]) for key, own in calls_of.items()}
        after = {key: ends(new[key], inputs[key]) for key in calls_of}

        def paired(old: dict[Any, Any]) -> list[dict[str, Any]]:
            return [
                {
                    "path": key[0],
                    "qualname": key[1],
                    **_outcome(
                        old.get(key), own, inputs[key], after[key], others[key], self.before.get(key[0]) or "", new[key]
                    ),
                }
                for key, own in calls_of.items()
            ]

        functions = paired(base)
        elsewhere = self._elsewhere(list(modules), new, base, inputs)
        for function in functions:
            function["outside"] = elsewhere.get((function["path"], function["qualname"]), 0)
        variants: list[list[dict[str, Any]]] = []
        until = time.monotonic() + VARIANTS_SEC
        for path, text in self.spec["variants"]:
            try:
                late = time.monotonic() > until
                variants.append([] if late else paired(functions_of(self._loaded(modules, {path: text}))))
            except Exception:  # noqa: BLE001 - without that part the file cannot be loaded
                variants.append([])
        return functions, variants

    def _elsewhere(
        self, modules: list[str], new: dict[Any, Any], base: dict[Any, Any], inputs: dict[Any, list[tuple[Any, ...]]]
    ) -> dict[Any, int]:
        """On how many inputs each function acts otherwise where nothing tests it, and the base's does not."""
        calls = {key: _pickled(found[:MOST_OUTSIDE]) for key, found in inputs.items() if key in base}
        within: list[Any] = []

        names = [name for name in self.spec["tests"] if name in self.suite.items]

        def act() -> None:
            given, sys.argv[:] = sys.argv[:], [self.spec["runner"], *names]
            with contextlib.redirect_stdout(io.StringIO()):
                within[:] = [all_ends(versions, list(calls.items())) for versions in (new, base)]
            sys.argv[:] = given

        signal.setitimer(signal.ITIMER_REAL, TEST_SEC)
        try:
            self.suite.within(names[0], act)
        except BaseException:  # noqa: BLE001 - out of time, or an end of the whole process
            return {}
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        there, before = (each.ask(modules, list(calls.items())) for each in self.outside)
        if not within or not before:
            return {}
        if there is None:
            return {key: len(held) for key, held in calls.items()}
        found = zip(calls, *within, there, before)  # noqa: B905
        return {key: sum(map(_is_other, *results)) for key, *results in found}

    def _loaded(self, modules: dict[str, Any], texts: dict[str, str | None]) -> dict[str, Any]:
        """Changed modules with other texts. They see each other, and all other modules as they are."""
        made: dict[str, Any] = {}
        kept = {name: sys.modules[name] for name in modules}
        try:
            for name, module in modules.items():
                if texts.get(relative(module.__file__) or "") is not None:
                    copy = types.ModuleType(name)
                    for part in ("__file__", "__package__", "__path__", "__spec__", "__loader__"):
                        if hasattr(module, part):
                            setattr(copy, part, getattr(module, part))
                    made[name] = sys.modules[name] = copy
            for copy in made.values():
                path = relative(copy.__file__) or ""
                exec(compile(texts[path] or "", copy.__file__, "exec", dont_inherit=True), vars(copy))
        finally:
            sys.modules.update(kept)
        return made


def _pickled(inputs: list[tuple[Any, ...]]) -> list[bytes]:
    found = []
    for values in inputs:
        try:
            found.append(pickle.dumps(values, 4))
        except Exception:  # noqa: BLE001, S112 - open files, functions and the like stay in their process
            continue
    return found


def _is_other(here: Any, base: Any, there: Any, base_there: Any) -> bool:
    """True if a result differs from place to place, and the base's does not."""
    return None not in (here, base, there, base_there) and here != there and base == base_there


def _adds_defaults(new: Any, old: Any, own: list[tuple[Any, ...]]) -> bool:
    """True if the change gave a function further parameters that the failing tests leave at their defaults."""
    if old is None or SPECIAL_ARGUMENTS & (new.__code__.co_flags | old.__code__.co_flags):
        return False
    names, before = parameters(new.__code__), parameters(old.__code__)
    added = len(names) - len(before)
    defaults = new.__defaults__ or ()
    if new.__code__.co_kwonlyargcount or not 0 < added <= len(defaults) or names[: len(before)] != before:
        return False
    usual = described(tuple(defaults[-added:]))
    return all(described(values[len(before) :]) == usual for values in own)


def _inputs(function: Any, own: list[tuple[Any, ...]], others: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    known = [*own, *others]
    alike = [*_multiples(own), *_related(own)]
    return [*varied(own), *_with_other_numbers(own), *alike, *others, *random_inputs(function, known)]


def _multiples(inputs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The inputs with multiples of their whole numbers, which share the divisors that a rule may be about."""
    found: list[tuple[Any, ...]] = []
    for values in inputs[:MOST_CALLS]:
        for at, value in enumerate(values):
            if type(value) is int and abs(value) > 2:
                found += [(*values[:at], value * times, *values[at + 1 :]) for times in (2, 3, 5, 10)]
    return found[:MOST_TEXTS]


def _related(inputs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Inputs whose numbers moved together, and such with two equal ones: a rule may be about how they compare."""
    found: list[tuple[Any, ...]] = []
    for values in inputs[:MOST_CALLS]:
        places = [at for at, value in enumerate(values) if type(value) in (int, float)]
        if len(places) < 2:
            continue
        for step in (1, 3, 10):
            found.append(tuple(value + step if at in places else value for at, value in enumerate(values)))
        for one in places:
            for other in places:
                if one != other:
                    equal = values[one]
                    found += [
                        tuple(equal + step if at in (one, other) else value for at, value in enumerate(values))
                        for step in (0, 2)
                    ]
    return found[:MOST_TEXTS]


def _is_edge(values: tuple[Any, ...], function: Any) -> bool:
    """True if an argument is nothing, empty or zero, and not by default: functions often treat these apart, rightly."""
    code, defaults = function.__code__, function.__defaults__ or ()
    usual = dict(function.__kwdefaults__ or {})
    for name, value in zip(parameters(code)[code.co_argcount - len(defaults) :], defaults):  # noqa: B905
        usual[name] = value
    for name, value in zip(parameters(code)[: code.co_argcount + code.co_kwonlyargcount], values):  # noqa: B905
        empty = value is None or (isinstance(value, SIZED) and type(value) is not bool and not value)
        if empty and not (name in usual and described((usual[name],)) == described((value,))):
            return True
    return False


def _outcome(
    old: Any,
    own: list[tuple[Any, ...]],
    inputs: list[tuple[Any, ...]],
    after: list[tuple[str, str, str]],
    others: list[tuple[Any, ...]],
    source: str,
    now_called: Any,
) -> dict[str, Any]:
    before = ends(old, inputs[: len(after)]) if old is not None else [("missing", "", "")] * len(after)
    mine = {described(values) for values in own}
    results = {one[1] for values, one in zip(inputs, after) if described(values) in mine}  # noqa: B905
    fresh: dict[str, tuple[Any, Any, Any]] = {}
    changed_own = changed_plain = False
    own_ends = [one for values, one in zip(inputs, after) if described(values) in mine]  # noqa: B905
    for values, was, now in zip(inputs, before, after):  # noqa: B905 - Python 3.8 knows no other
        text = described(values)
        if text in mine:
            changed_own = changed_own or was != now
            changed_plain = changed_plain or (was != now and not (old is not None and _is_edge(values, old)))
        else:
            fresh[text] = (values, was, now)
    changed = [one for one in fresh.values() if one[1] != one[2] and one[2][0] == "returned"]
    differing = [one for one in fresh.values() if one[1] != one[2]]
    met, every = [values for values, _, _ in changed], [*own, *others, *inputs]
    answers = {now[1] for _, _, now in changed} - {"None"}
    usual = _words_of(others) | set(WORD.findall(source))
    distinctive = set().union(*(_words(value) for values in own for value in values)) - usual
    distinctive |= _new_texts(now_called, own, others, source)

    def words(value: Any) -> set[str]:
        text = described(value)
        return {word for word in distinctive if word in text}

    return {
        "examples": len(own) + len(others),
        "inputs": len(fresh),
        "changed": len(changed),
        "differing": len(differing),
        "changed_own": changed_own,
        "changed_plain": changed_plain,
        "answers": len(answers),
        "new_answers": len(answers - results),
        "free": _free(met, own, every, _atoms),
        "free_of_numbers": _free([values for values, _, _ in differing], own, every, _numbers),
        "free_of_words": _free([values for values, _, _ in differing], own, every, words),
        "free_of_answers": not _same_parts(own_ends, changed, {was[1] for _, was, _ in fresh.values()}),
        "existed": old is not None,
        "yields": bool(old is not None and old.__code__.co_flags & GENERATOR),
    }


def _free(
    changed: list[tuple[Any, ...]],
    own: list[tuple[Any, ...]],
    inputs: list[tuple[Any, ...]],
    atoms: Callable[[Any], set[str]],
) -> bool:
    """True if no value of the failing tests' arguments has to be there for the change to matter."""
    for at in range(len(own[0])):
        always = set.intersection(*(atoms(values[at]) for values in own if len(values) > at))
        possible = [atoms(values[at]) for values in inputs if len(values) > at]
        met = [atoms(values[at]) for values in changed if len(values) > at]
        for atom in always:
            if any(atom not in one for one in possible) and all(atom in one for one in met):
                return False
    return True


def _atoms(value: Any, depth: int = 0) -> set[str]:
    """The value, and what it holds."""
    found = {described(value)}
    held = getattr(value, "__dict__", None)
    if (
        isinstance(held, dict)
        and depth <= DEEPEST
        and not isinstance(value, (type, types.ModuleType, types.FunctionType))
    ):
        return found.union(*(_atoms(part, depth + 1) for part in list(held.values())[: MOST_PARTS >> depth]))
    if depth < DEEPEST and isinstance(value, (list, tuple, set, frozenset, dict)):
        parts = list(value)[:MOST_PARTS]
        for part in [*parts, *(value[name] for name in parts)] if isinstance(value, dict) else parts:
            found |= _atoms(part, depth + 1)
    return found


def _numbers(value: Any) -> set[str]:
    """The numbers within texts, and their parts."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    texts = [part for part in parts[:MOST_PARTS] if isinstance(part, str)]
    found = {number for text in texts for number in NUMBER.findall(text)}
    return found | {number[at:end] for number in found for at in range(4) for end in range(at + 1, 5)}


def _words(value: Any) -> set[str]:
    """The words of texts."""
    parts = value if isinstance(value, (list, tuple)) else [value]
    return {word for part in parts[:MOST_PARTS] if isinstance(part, str) for word in WORD.findall(part[:MAX_TEXT])}


def _new_texts(function: Any, own: list[tuple[Any, ...]], others: list[tuple[Any, ...]], source: str) -> set[str]:
    """Texts that a function holds now, that the failing tests' inputs have and neither other inputs nor the base."""
    codes, found = [function.__code__], set()
    for code in codes:  # grows while it is read
        codes += [one for one in code.co_consts if isinstance(one, types.CodeType)]
        found |= {one for one in code.co_consts if isinstance(one, str) and WORD.search(one) and one not in source}
    texts, rest = [described(values) for values in own], " ".join(described(values) for values in others)
    return {one for one in found if all(one in text for text in texts) and one not in rest}


def _words_of(calls: list[tuple[Any, ...]]) -> set[str]:
    return {word for values in calls for value in values for word in _words(value)}


def _same_parts(
    own: list[tuple[str, str, str]], changed: list[tuple[tuple[Any, ...], Any, Any]], usual: set[str]
) -> bool:
    """True if a number of the failing tests' results is in every changed result, whether or not the input has it."""
    kept = set.intersection(*(_tokens(one[1]) for one in own)) if own else set()
    for text in usual:
        kept -= _tokens(text)
    for _, _, now in changed:
        kept &= _tokens(now[1])
    return any(any(token not in _tokens(described(values)) for values, _, _ in changed) for token in kept)


def _tokens(text: str) -> set[str]:
    """The numbers of a described value, without small ones."""
    return {number for number in NUMBER.findall(text) if len(number) > 1}


def _with_other_numbers(inputs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The inputs with another number in the place of each one within a text."""
    found: list[tuple[Any, ...]] = []
    for values in inputs:
        for at, value in enumerate(values):
            found += [(*values[:at], other, *values[at + 1 :]) for other in _renumbered(value)]
    return found[:MOST_TEXTS]


def _renumbered(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        parts = list(value)[:MOST_PARTS]
        made = [[*parts[:at], other, *value[at + 1 :]] for at, part in enumerate(parts) for other in _renumbered(part)]
        return [type(value)(one) for one in made]
    if not isinstance(value, str):
        return []
    return [
        value[: match.start()] + str(number) + value[match.end() :]
        for match in NUMBER.finditer(value[:200])
        if len(match[0]) < 9
        for number in (int(match[0]) + 1, int(match[0]) * 3 + 4)
    ]


def main() -> None:
    channel = Channel()
    spec = channel.read()
    if spec is not None:
        Spread(channel, spec).start()
