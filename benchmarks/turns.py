"""Measures the platform's share of a turn: everything but the model's and the command's own time.

A scripted model replies at once, and one run takes many turns of a trivial action through the real engine. The split is
measured around the functions of the step's context.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.figures import Goal, Table, Times
from benchmarks.machine import Quiet, described
from codepilot.agents import CodeActAgent, RoleArtifact, StepContext
from codepilot.core.events import Event, EventDraft, EventType, State
from codepilot.engine import Request, Runtime, Settings, Worker, make_task, submit
from codepilot.models import Message, ScriptedModel

TURNS = 60
WARM = 5
BELOW_MS = 15.0
IMPORT_BELOW_MS = 100.0
PARTS = ("events before it", "checks and reading", "snapshot and events after it", "looking for requests", "the rest")


@dataclass
class Clock:
    """Where the time of each turn goes: the command, and what is around it."""

    parts: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    turn: dict[str, float] = field(default_factory=dict)
    began: float = 0.0

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **more)
            finally:
                self.turn[part] = self.turn.get(part, 0.0) + (time.perf_counter() - started) * 1000

        return call

    def replied(self) -> None:
        """The model has answered: the platform's turn begins."""
        self.turn, self.began = {}, time.perf_counter()

    def asked(self) -> None:
        """The model is asked: the platform's turn is over."""
        if self.began:
            whole = (time.perf_counter() - self.began) * 1000
            command = self.turn.pop("command", 0.0)
            self.parts["command"].append(command)
            self.parts["overhead"].append(whole - command)
            self.parts["the rest"].append(whole - command - sum(self.turn.values()))
            for part in PARTS[:-1]:
                self.parts[part].append(self.turn.get(part, 0.0))

    def times(self, part: str) -> Times:
        return Times(tuple(self.parts[part][WARM:]))


class TimedAgent(CodeActAgent):
    """An agent whose step context times its functions."""

    clock: Clock

    def perform(self, role: State, context: StepContext) -> RoleArtifact:
        clock = self.clock

        def record(draft: EventDraft) -> Event:
            after = draft.type is EventType.TURN_FINISHED
            part = "snapshot and events after it" if after else "events before it"
            event: Event = clock.timed(part, context.record)(draft)
            return event

        executor = _Timed(context.executor, clock)
        raise_if_stopped = clock.timed("looking for requests", context.raise_if_stopped)
        return super().perform(
            role, replace(context, record=record, raise_if_stopped=raise_if_stopped, executor=executor)
        )  # type: ignore[arg-type]


class _Timed:
    """An executor whose commands and readings are timed."""

    def __init__(self, executor: Any, clock: Clock) -> None:
        self._executor = executor
        self.run_code = clock.timed("command", executor.run_code)
        self.read_file = clock.timed("checks and reading", executor.read_file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def measure(files: int, turns: int = TURNS) -> Clock:
    """One run of many turns in a repository of so many files."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        root = _repository(Path(folder) / "repository", files)
        settings = Settings.load(flags={"home": Path(folder) / "home"})
        with Runtime.open(settings) as runtime:
            agent = TimedAgent(ScriptedModel(_script(turns, clock)))
            agent.clock = clock
            task = make_task(Request(repo=str(root), budget={"turns_per_step": turns + 10}), settings)
            run = submit(runtime, task)
            ended = Worker(runtime, agent_for=lambda task: agent).drive(run.run_id)
            if ended.state is not State.DONE:
                raise SystemExit(f"the run ended in {ended.state}: {ended.failure}")
    return clock


def _script(turns: int, clock: Clock) -> Callable[[Sequence[Message]], str]:
    actions = [f"```python\nprint({number})\n```" for number in range(turns)]
    fix = "```python\nwrite_file('sums.py', 'def add(a, b):\\n    return a + b\\n')\n```"
    replies = iter(
        [
            '<result>{"build_system": "python", "test_cmd": ["python"]}</result>',
            '<result>{"nodes": [{"id": "one"}]}</result>',
            *actions,
            fix,
            '<result>{"rationale": "add", "confidence": 0.9}</result>',
            '<result>{"verdict": "APPROVE"}</result>',
        ]
    )

    def answer(messages: Sequence[Message]) -> str:
        if messages[0].content.startswith("You are the Implementer") and len(messages) > 2:
            clock.asked()
        reply = next(replies)
        clock.replied()
        return reply

    return answer


def _repository(root: Path, files: int) -> Path:
    root.mkdir()
    (root / "codepilot.toml").write_text('[project]\nrunner = "unittest"\n', encoding="utf-8")
    (root / "sums.py").write_text("def add(a, b):\n    return a - b\n", encoding="utf-8")
    test = "import unittest\nfrom sums import add\n\n\nclass T(unittest.TestCase):\n    def test_add(self):\n"
    body = "        self.assertEqual(add(1, 2), 3)\n        self.assertEqual(add(5, 5), 10)\n"
    (root / "test_sums.py").write_text(test + body, encoding="utf-8")
    for number in range(files):
        place = root / f"part{number // 50}"
        place.mkdir(exist_ok=True)
        (place / f"module{number}.py").write_text(f"VALUE = {number}\n" * 20, encoding="utf-8")
    identity = ["-c", "user.name=Someone", "-c", "user.email=someone@example.invalid"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True)
    return root


def import_ms(times: int = 7) -> float:
    """What `import codepilot` takes in an interpreter that has just started."""
    code = "import time; began = time.perf_counter(); import codepilot; print((time.perf_counter() - began) * 1000)"
    command = [sys.executable, "-c", code]
    return Times(tuple(float(subprocess.check_output(command, text=True)) for _ in range(times))).median


def page(sizes: Sequence[int], turns: int, quiet: Quiet) -> str:
    rows, goals = [], []
    for files in sizes:
        quiet.look()
        clock = measure(files, turns)
        overhead = clock.times("overhead")
        rows.append(
            [f"{files} files", str(overhead), *(str(clock.times(part)) for part in PARTS), str(clock.times("command"))]
        )
        goals.append(Goal(f"overhead of a turn, {files} files", BELOW_MS, overhead.median))
    goals.append(Goal("`import codepilot`", IMPORT_BELOW_MS, import_ms()))
    text = f"Milliseconds per turn: median, and the 5th to the 95th percentile, of {turns} turns of `print(n)`."
    table = Table("The cost of a turn besides model and command", text, ["Tree", "Overhead", *PARTS, "Command"], rows)
    promised = Table("Goals", "", ["What", "Below", "Measured", "Met"], [goal.row() for goal in goals])
    command = "`python -m benchmarks.turns --write docs/benchmarks-turns.md`"
    machine = "\n".join(f"- {name}: {message}" for name, message in described({}) if name != "Peers")
    head = f"# Benchmarks of the agent loop\n\nWritten by {command}. {quiet}\n\n{machine}\n"
    return "\n".join([head, table.markdown(), promised.markdown()])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there too")
    parser.add_argument("--files", type=int, nargs="+", default=[20, 2000], help="sizes of the repository")
    parser.add_argument("--turns", type=int, default=TURNS)
    options = parser.parse_args(arguments)
    text = page(options.files, options.turns, Quiet())
    print(text)
    if options.write is not None:
        options.write.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
