"""Angelic-value search: fills the holes of sketches with expressions that make the tests pass.

For a condition that is evaluated once a call, the answers are flipped one by one until the tests pass; only conditions
that give those angelic values are tried then. Everything else is tried, each behaviour once.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

# ruff: noqa: B905 - Python 3.8 has no strict zip

from __future__ import annotations

import functools
import itertools
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .calling import compile_text, reach
from .children import Turn
from .enumeration import ERROR, ExpressionBank, kind_of, shaken
from .holes import NAME, Exhausted, Hole, bounds, conditions, exact, masks
from .step_budget import conditions as loops
from .step_budget import counted

if TYPE_CHECKING:
    from .children import Send
    from .enumeration import Made
    from .holes import Condition

EFFORTS: tuple[dict[str, Any], ...] = (
    {"depth": 0, "limit": 200, "couples": 300, "pairs": 0, "sec": 0.06, "any": False},
    {"depth": 1, "limit": 1500, "couples": 3000, "pairs": 80, "sec": 0.4, "any": True},
    {"depth": 2, "limit": 6000, "couples": 20000, "pairs": 200, "sec": 2.0, "any": True},
)
"""How much is spent on a sketch: all get a little before any gets more."""
NEIGHBOURS = 4
"""Sketches of one place, which share their expressions, mostly stand together: so many go to one child."""
MAX_FLIPS = 30
MAX_LOST = 20
MAX_ANSWERS = 4
MAX_FOUND = 24
DISTINCT = 16
KEPT = 40
"""How many places' expressions are remembered."""
SHAKEN = 16
"""How many states are made up, in addition to those seen, to tell expressions apart."""
BANK_SEC = 0.3
TURN_SEC = 30.0


class Synthesiser:
    """One function with some of its sketches, in one child."""

    def __init__(self, worker: Any, message: dict[str, Any], send: Send) -> None:
        self.worker, self.send = worker, send
        self.unit = message["units"][message["unit"]]
        self.tests = [name for name in message["tests"] if name in worker.suite.items]
        self.sketches = message["sketches"]
        self.name, self.loops = f"{self.unit['path']}:{self.unit['line']}", loops(self.unit["segment"])
        self.atoms, self.attributes = message["atoms"], message["attributes"]
        self.deadline = message["until"]
        self.ran = self.found = 0
        name = self.unit["qualname"].rpartition(".")[2]
        key = (self.unit["path"], self.unit["line"], name)
        imported = (self.unit["line"], name) in worker.import_time.get(self.unit["path"], ())
        self.functions = [] if imported else worker.functions.get(key, [])
        self.banks: dict[tuple[Any, ...], ExpressionBank] = {}
        self.codes: dict[str, Any] = {}

    def run(self, places: list[int], effort: dict[str, Any]) -> None:
        """Fill the sketches in these places of the list."""
        if not self.functions or not self.tests:
            return
        names = self.functions[0].__globals__
        self.hole = names[NAME] = Hole(names)
        before = [(function, function.__code__) for function in self.functions]
        for at in places:
            if time.monotonic() > self.deadline or self.found >= MAX_FOUND:
                return
            self.send(begin=TURN_SEC)
            self.send(at=at, ran=self.ran)
            self.ran = 0
            self._fill(self.sketches[at], effort)
            if self.sketches[at].get("dead"):
                self.send(dead=at)
            for function, code in before:
                function.__code__ = code

    def _fill(self, sketch: dict[str, Any], effort: dict[str, Any]) -> None:
        self.until = time.process_time() + effort["sec"]
        if not self._put(sketch):
            sketch["dead"] = True
            return
        answers = 0
        for text in self._answers(sketch, effort):
            self.send(sketch=sketch["n"], text=text)
            answers += 1
            self.found += 1
            if answers >= MAX_ANSWERS or self.found >= MAX_FOUND:
                break
        sketch["dead"] = sketch.get("dead") or answers > 0

    def _late(self) -> bool:
        return bool(time.process_time() > self.until or time.monotonic() > self.deadline)

    def _put(self, sketch: dict[str, Any]) -> bool:
        """The function with the hole in it, in place of the running one."""
        text = sketch["before"] + NAME + "()" + sketch["after"]
        try:
            whole = counted(self.unit["segment"], self.loops, sketch["start"], sketch["end"], text)
            code = compile_text(whole, self.unit, self.functions[0].__code__.co_filename)
        except (SyntaxError, ValueError, RecursionError, MemoryError, StopIteration):
            return False
        if any(code.co_freevars != function.__code__.co_freevars for function in self.functions):
            return False
        for function in self.functions:
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
            yield from self._conditions(sketch["stale"], effort)
        else:
            yield from self._guessed(sketch["stale"], effort)

    # --- running ----------------------------------------------------------------------------------------------

    def _judge(self) -> tuple[bool, tuple[int, ...]]:
        """Run the tests: true if all pass, and how far they came."""
        worker = self.worker
        self.ran += 1
        for index, name in enumerate(self.tests):
            worker.await_turn(name, self.send)
            self.send(begin=2 * worker.limit(name)[1])
            error: BaseException | None
            try:
                outcome, error = worker.run(name, thorough=False, unit=self.name)
            except Exhausted as exhausted:
                outcome, error = "timeout", exhausted
            self.send(begin=TURN_SEC)
            if outcome != "passed":
                return False, (index, *reach(error)["lines"], self.hole.calls)
        return True, (len(self.tests),)

    def _passes(self, text: str) -> bool:
        code = self.codes.get(text)
        if code is None:
            try:
                code = self.codes[text] = compile(text, "<hole>", "eval")
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

    def _bank(self, stale: list[str], effort: dict[str, Any]) -> tuple[ExpressionBank, int]:
        """Expressions over the states that the hole has recorded, and how many states those are."""
        distinct = self._distinct()
        key = (effort["depth"], *stale, *distinct)
        if key not in self.banks:
            states = [state for state, _ in distinct.values()]
            wider = [*states, *shaken(states, SHAKEN)]
            self.until = time.process_time() + BANK_SEC * (1 + effort["depth"])
            bank = self.banks[key] = ExpressionBank(wider, self.hole.names, self._late, effort["limit"])
            bank.leaves(self.atoms, self.attributes, stale)
            bank.grow(effort["depth"])
            while len(self.banks) > KEPT:
                self.banks.pop(next(iter(self.banks)))
            self.until = time.process_time() + effort["sec"]
        return self.banks[key], len(distinct)

    def _distinct(self) -> dict[str, tuple[dict[str, Any], Any]]:
        """Recorded states that differ, the latest first, with what was answered in them."""
        seen: dict[str, tuple[dict[str, Any], Any]] = {}
        for state, answer in reversed(list(zip(self.hole.states, self.hole.answers))):
            try:
                key = repr(state)[:400]
            except Exception:  # noqa: BLE001 - an object without a repr is known by its name
                key = str(id(state))
            seen.setdefault(key, (state, answer))
            if len(seen) >= DISTINCT:
                break
        return seen

    def _asked(self, stale: list[str], effort: dict[str, Any]) -> tuple[list[Condition], int, int, ExpressionBank]:
        """Conditions over the recorded states, what was answered there, and how many they are."""
        bank, real = self._bank(stale, effort)
        if bank.conditions is None:
            self.until = time.process_time() + BANK_SEC * (1 + effort["depth"])
            bank.conditions = conditions(bank.made, bank.mixed, real, effort["couples"], self._late)
            self.until = time.process_time() + effort["sec"]
        answers, _ = masks([answer for _, answer in self._distinct().values()])
        return bank.conditions, answers, real, bank

    def _conditions(self, stale: list[str], effort: dict[str, Any]) -> Iterator[str]:
        found, wanted, real, bank = self._asked(stale, effort)
        texts = [one.text for one in exact(found, wanted, (1 << real) - 1, effort["pairs"])]
        texts += itertools.islice(bounds(bank.made, wanted, real), effort["pairs"])
        for text in texts:
            if self._passes(text):
                yield text
            if self._late():
                return

    def _guessed(self, stale: list[str], effort: dict[str, Any]) -> Iterator[str]:
        """Conditions that decide otherwise than the base does somewhere, each way of deciding once."""
        found, base, _, _ = self._asked(stale, effort)
        for one in found:
            if one.errors or one.truth == base:
                continue
            if self._passes(one.text):
                yield one.text
            if self._late():
                return

    # --- values -----------------------------------------------------------------------------------------------

    def _values(self, sketch: dict[str, Any], effort: dict[str, Any]) -> Iterator[str]:
        """Expressions that give something else than the original does, of its kind first."""
        self.hole.watch(sketch["original"])
        self._judge()
        if not self.hole.states:
            sketch["dead"] = True
            return
        bank, real = self._bank(sketch["stale"], effort)
        original = bank.evaluated(sketch["original"]) if sketch["original"] else None
        kind = kind_of(original.values) if original is not None else ""
        made = [*(bank.around(sketch["original"]) if kind else ()), *bank.made]
        for one in sorted(made, key=lambda one: (one.kind != kind, one.size, len(one.text))):
            if not effort["any"] and kind and one.kind != kind:
                return
            if any(value is ERROR for value in one.values[:real]):
                continue
            if original is not None and _alike(one, original, real):
                continue
            if self._passes(one.text):
                yield one.text
            if self._late():
                return


def _alike(one: Made, other: Made, real: int) -> bool:
    """True if both give the same in every state that was seen: the tests would go the same way."""
    try:
        return all(type(a) is type(b) and bool(a == b) for a, b in zip(one.values[:real], other.values[:real]))
    except Exception:  # noqa: BLE001 - what cannot be compared differs
        return False


class Share(Turn):
    """Some of the sketches, for one child."""

    def __init__(self, synthesis: Synthesis, places: list[int], effort: dict[str, Any]) -> None:
        super().__init__(functools.partial(_synthesise, synthesis, places, effort), self._receive)
        self.synthesis, self.left = synthesis, places
        self.over = False

    def _receive(self, message: dict[str, Any]) -> None:
        synthesis = self.synthesis
        if "ran" in message:
            synthesis.worker.channel.send(ran=message["ran"])
            self.over = "at" not in message
            self.left = [] if self.over else self.left[self.left.index(message["at"]) :]
        elif "dead" in message:
            synthesis.dead.add(message["dead"])
        else:
            synthesis.found.append((self.left[0], message))


class Synthesis:
    """One function's sketches, shared out among children."""

    def __init__(self, worker: Any, message: dict[str, Any]) -> None:
        self.worker, self.message = worker, message
        self.message["until"] = time.monotonic() + message["seconds"]
        self.dead: set[int] = set()
        """Places of sketches of which nothing more is to be had."""
        self.found: list[tuple[int, dict[str, Any]]] = []
        self.waiting: deque[list[int]] = deque()
        self.lost = 0

    def run(self) -> None:
        """Send each expression that completes a sketch, in the order of the sketches, not of the finds."""
        for effort in EFFORTS:
            self._share_out()
            following = functools.partial(self._following, effort)
            for share in self.worker.children.each(following, self.worker.places):
                if not share.over:
                    # It is lost, and costs the sketch it was at.
                    self.lost += 1
                    self.waiting.append(share.left[1:])
            for _, message in sorted(self.found, key=lambda row: row[0])[:MAX_FOUND]:
                self.worker.channel.send(**message)
            if self.found:
                return

    def _share_out(self) -> None:
        places = [at for at in range(len(self.message["sketches"])) if at not in self.dead]
        shares: list[list[int]] = [[] for _ in range(self.worker.places)]
        for at in places:
            shares[at // NEIGHBOURS % len(shares)].append(at)
        self.waiting = deque(shares)

    def _following(self, effort: dict[str, Any]) -> Share | None:
        while self.waiting and self.lost < MAX_LOST and time.monotonic() < self.message["until"]:
            places = self.waiting.popleft()
            if places:
                return Share(self, places, effort)
        return None


def synthesise(worker: Any, message: dict[str, Any]) -> None:
    Synthesis(worker, message).run()


def _synthesise(synthesis: Synthesis, places: list[int], effort: dict[str, Any], send: Send, folder: str) -> None:
    worker = synthesis.worker
    send(begin=TURN_SEC)
    worker.guard.arm(strict=True)
    worker.suite.private(folder)
    worker.patience = 1.0
    synthesiser = Synthesiser(worker, synthesis.message, send)
    synthesiser.run(places, effort)
    send(ran=synthesiser.ran)
