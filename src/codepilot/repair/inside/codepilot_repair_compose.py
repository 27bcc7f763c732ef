"""Fills the holes of sketches: finds expressions with which the tests pass.

A condition that is asked once a call is solved without guessing: its answers are turned round one by one until the
tests pass, and then only conditions that give those answers are looked for. Everything else is tried, each
behaviour once. Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

# ruff: noqa: B905 - Python 3.8 has no strict zip

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from codepilot.repair.inside.codepilot_repair_bank import ERROR, Bank, Made
    from codepilot.repair.inside.codepilot_repair_children import Say
    from codepilot.repair.inside.codepilot_repair_holes import (
        NAME,
        Exhausted,
        Hole,
        conditions,
        exact,
        masks,
    )
    from codepilot.repair.inside.codepilot_repair_running import compile_function, reach
else:
    from codepilot_repair_bank import ERROR, Bank
    from codepilot_repair_holes import NAME, Exhausted, Hole, conditions, exact, masks
    from codepilot_repair_running import compile_function, reach

EFFORTS: tuple[dict[str, Any], ...] = (
    {"depth": 0, "limit": 200, "couples": 300, "pairs": 0, "sec": 0.2, "any": False},
    {"depth": 1, "limit": 1500, "couples": 3000, "pairs": 80, "sec": 0.8, "any": True},
    {"depth": 2, "limit": 6000, "couples": 20000, "pairs": 200, "sec": 3.0, "any": True},
)
"""How much is spent on a sketch: all get a little before any gets more."""
MAX_FLIPS = 30
MAX_ANSWERS = 4
MAX_FOUND = 24
DISTINCT = 40
TURN_SEC = 6.0


class Composer:
    """One function with its sketches, in one child."""

    def __init__(self, worker: Any, message: dict[str, Any], say: Say) -> None:
        self.worker, self.say = worker, say
        self.unit = message["units"][message["unit"]]
        self.tests = [name for name in message["tests"] if name in worker.suite.items]
        self.sketches = message["sketches"]
        self.atoms, self.attributes = message["atoms"], message["attributes"]
        self.deadline = time.monotonic() + message["seconds"]
        name = self.unit["qualname"].rpartition(".")[2]
        key = (self.unit["path"], self.unit["line"], name)
        entered = (self.unit["line"], name) in worker.entered.get(self.unit["path"], ())
        self.living = [] if entered else worker.functions.get(key, [])
        self.found = 0
        self.places: dict[str, list[dict[str, Any]]] = {}

    def run(self) -> None:
        if not self.living or not self.tests:
            return
        names = self.living[0].__globals__
        self.hole = names[NAME] = Hole(names)
        before = [(function, function.__code__) for function in self.living]
        for effort in EFFORTS:
            for sketch in self.sketches:
                self.say(begin=TURN_SEC)
                if time.monotonic() > self.deadline or self.found >= MAX_FOUND:
                    return
                if not sketch.get("dead"):
                    self._fill(sketch, effort)
                for function, code in before:
                    function.__code__ = code
            if self.found:
                return

    def _fill(self, sketch: dict[str, Any], effort: dict[str, Any]) -> None:
        self.until = min(self.deadline, time.monotonic() + effort["sec"])
        if not self._put(sketch):
            sketch["dead"] = True
            return
        answers = 0
        for text in self._answers(sketch, effort):
            self.say(sketch=sketch["n"], text=text)
            answers += 1
            self.found += 1
            if answers >= MAX_ANSWERS or self.found >= MAX_FOUND:
                break
        sketch["dead"] = sketch.get("dead") or answers > 0

    def _put(self, sketch: dict[str, Any]) -> bool:
        """The function with the hole in it, in place of the living one."""
        text = sketch["before"] + NAME + "()" + sketch["after"]
        job = {"start": sketch["start"], "end": sketch["end"], "text": text}
        try:
            code = compile_function(job, self.unit, self.living[0].__code__.co_filename)
        except (SyntaxError, ValueError, RecursionError, MemoryError, StopIteration):
            return False
        if any(code.co_freevars != function.__code__.co_freevars for function in self.living):
            return False
        for function in self.living:
            function.__code__ = code
        return True

    def _answers(self, sketch: dict[str, Any], effort: dict[str, Any]) -> Iterator[str]:
        if sketch["kind"] == "value":
            yield from self._values(sketch, effort)
            return
        solved = self._solved(sketch)
        if solved is None:
            sketch["dead"] = True
        elif solved:
            yield from self._conditions(sketch, effort)
        else:
            yield from self._guessed(sketch, effort)

    # --- running ----------------------------------------------------------------------------------------------

    def _judge(self) -> tuple[bool, tuple[int, ...]]:
        """Whether all tests pass, and how far they came."""
        worker = self.worker
        for index, name in enumerate(self.tests):
            self.say(begin=TURN_SEC)
            error: BaseException | None
            try:
                outcome, error = worker.run(name, quick=worker.quick.get(name))
            except Exhausted as exhausted:
                outcome, error = "timeout", exhausted
            if outcome != "passed":
                return False, (index, *reach(error)["lines"], self.hole.calls)
        return True, (len(self.tests),)

    def _passes(self, text: str) -> bool:
        try:
            code = compile(text, "<hole>", "eval")
        except (SyntaxError, ValueError):
            return False
        self.hole.fill(code)
        return self._judge()[0]

    def _solved(self, sketch: dict[str, Any]) -> bool | None:
        """Turn answers round until the tests pass. None if that does not help, False if it takes a guess."""
        forced: dict[int, bool] = {}
        best: tuple[int, ...] = ()
        for _ in range(MAX_FLIPS):
            self.hole.watch(sketch["original"], sketch["default"], forced)
            passed, progress = self._judge()
            if passed and forced:
                return True
            if passed or not self.hole.states:
                return None
            if self.hole.repeated or len(self.hole.states) < self.hole.turns:
                return False
            last = self.hole.turns - 1
            if progress <= best or last in forced:
                return None
            best = progress
            forced[last] = not self.hole.answers[last]
        return None

    # --- conditions -------------------------------------------------------------------------------------------

    def _bank(self, effort: dict[str, Any], states: Sequence[dict[str, Any]], more: Sequence[str] = ()) -> Bank:
        bank = Bank(states, self.hole.names, self.until, effort["limit"])
        bank.leaves([text for text in (*more, *self.atoms) if text], self.attributes)
        bank.grow(effort["depth"])
        return bank

    def _distinct(self) -> tuple[list[dict[str, Any]], list[Any]]:
        """Recorded states that differ, the latest first, with what was answered in them."""
        seen: dict[str, tuple[dict[str, Any], Any]] = {}
        for state, answer in reversed(list(zip(self.hole.states, self.hole.answers))):
            try:
                key = repr(state)[:400]
            except Exception:  # noqa: BLE001 - an object that cannot be shown is told apart by its name
                key = str(id(state))
            seen.setdefault(key, (state, answer))
            if len(seen) >= DISTINCT:
                break
        return [state for state, _ in seen.values()], [answer for _, answer in seen.values()]

    def _conditions(self, sketch: dict[str, Any], effort: dict[str, Any]) -> Iterator[str]:
        states, answers = self._distinct()
        wanted, _ = masks(answers)
        bank = self._bank(effort, states, [sketch["original"]])
        found = conditions(bank.made, len(states), effort["couples"], self.until)
        for one in exact(found, wanted, (1 << len(states)) - 1, effort["pairs"]):
            if self._passes(one.text):
                yield one.text
            if time.monotonic() > self.until:
                return

    def _guessed(self, sketch: dict[str, Any], effort: dict[str, Any]) -> Iterator[str]:
        """Conditions that decide otherwise than the base does somewhere, each way of deciding twice at most."""
        states, answers = self._distinct()
        base, _ = masks(answers)
        bank = self._bank(effort, states, [sketch["original"]])
        tried: dict[int, int] = {}
        for one in conditions(bank.made, len(states), effort["couples"], self.until):
            if one.errors or one.truth == base or tried.get(one.truth, 0) >= 2:
                continue
            tried[one.truth] = tried.get(one.truth, 0) + 1
            if self._passes(one.text):
                yield one.text
            if time.monotonic() > self.until:
                return

    # --- values -----------------------------------------------------------------------------------------------

    def _values(self, sketch: dict[str, Any], effort: dict[str, Any]) -> Iterator[str]:
        """Expressions that give something else than the original does, of its kind first."""
        self.hole.watch(sketch["original"])
        self._judge()
        if not self.hole.states:
            sketch["dead"] = True
            return
        states, _ = self._distinct()
        bank = self._bank(effort, states, [sketch["original"]])
        original = bank.evaluated(sketch["original"]) if sketch["original"] else None
        kind = original.kind if original is not None else ""
        for one in sorted(bank.made, key=lambda one: (one.kind != kind, one.size, len(one.text))):
            if not effort["any"] and kind and one.kind != kind:
                return
            if original is not None and (one.text == original.text or _alike(one, original)):
                continue
            if any(value is ERROR for value in one.values):
                continue
            if self._passes(one.text):
                yield one.text
            if time.monotonic() > self.until:
                return


def _alike(one: Made, other: Made) -> bool:
    try:
        return all(type(a) is type(b) and bool(a == b) for a, b in zip(one.values, other.values))
    except Exception:  # noqa: BLE001 - what cannot be compared differs
        return False


def compose(worker: Any, message: dict[str, Any], say: Say, folder: str) -> None:
    """Say each expression that mends a sketch as it is found."""
    worker.guard.arm(strict=True)
    worker.suite.private(folder)
    worker.patience = 1.0
    Composer(worker, message, say).run()
