"""A run as it happens: a live panel on a terminal, plain lines elsewhere, silence for `--json`."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from codepilot.cli.options import counted
from codepilot.cli.output import plain
from codepilot.cli.progress import Progress, StepLine, advance, describe, gate_line
from codepilot.core.events import (
    BudgetWarned,
    DependencyDegraded,
    Event,
    EventType,
    ModelAsked,
    ModelSwitched,
    TestsJudged,
    TurnFinished,
    TurnStarted,
)
from codepilot.core.run import Run
from codepilot.core.task import Budget

MARKS = {
    "waiting": ("·", "dim"),
    "running": ("●", "blue"),
    "done": ("✓", "green"),
    "failed": ("✗", "red"),
}


class Watcher(Protocol):
    """Shows events while a run is driven."""

    def __enter__(self) -> Watcher: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, event: Event) -> None: ...

    def hear(self, piece: str) -> None:
        """A model's words while they come."""
        ...

    def say(self, text: str) -> None: ...


class Silent:
    """For `--json`: the one document at the end is all there is."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, event: Event) -> None:
        return None

    def hear(self, piece: str) -> None:
        return None

    def say(self, text: str) -> None:
        return None


class Lines:
    """For pipes and logs: one line a step, a turn of a model and a milestone."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console = console
        self._progress = progress

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, event: Event) -> None:
        self._progress = advance(self._progress, event)
        if event.type in _STEP_ENDS:
            line = self._progress.steps[-1]
            self.say(f"{MARKS[line.mark][0]} {line.state:<9} {_elapsed(line):>8}  {line.note}")
        elif isinstance(event.data, TestsJudged):
            for gate in event.data.result.gates:
                self.say(f"{'':22}{gate_line(gate)}")
        elif isinstance(event.data, _DESCRIBED) and (text := describe(event)):
            self.say(f"{'':22}{plain(text)}")

    def hear(self, piece: str) -> None:
        """Words in pieces are for a screen."""

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


_STEP_ENDS = frozenset({EventType.STEP_SUCCEEDED, EventType.STEP_FAILED})
_DESCRIBED = (TurnStarted, TurnFinished, ModelSwitched, DependencyDegraded, BudgetWarned)
_WORDS = 500
"""How much of what a model says is kept to show its end."""


class Panel:
    """For terminals: redrawn in place ten times a second by a thread of its own."""

    def __init__(self, console: Console, run: Run, progress: Progress) -> None:
        self._run = run
        self._progress = progress
        self._lock = threading.Lock()
        self._words = ""
        self._message = "Ctrl+C pauses at a safe point, Ctrl+\\ quits at once; both can be resumed."
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=10, transient=False)

    def __enter__(self) -> Panel:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._message = ""
        self._live.__exit__(kind, error, trace)

    def show(self, event: Event) -> None:
        with self._lock:
            self._progress = advance(self._progress, event)
            self._words = "" if isinstance(event.data, (ModelAsked, TurnStarted)) else self._words

    def hear(self, piece: str) -> None:
        with self._lock:
            self._words = (self._words + piece)[-_WORDS:]

    def say(self, text: str) -> None:
        with self._lock:
            self._message = text

    def _draw(self) -> RenderableType:
        with self._lock:
            progress, message, words = self._progress, self._message, " ".join(self._words.split())
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(width=1)
        table.add_column(width=9)
        table.add_column(width=8, justify="right")
        table.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
        for line in progress.steps:
            mark, style = MARKS[line.mark]
            state_style = "bold" if line.mark == "running" else ""
            speaking = words and line.mark == "running"
            note = Text(_end(words, self._live.console.width - 26), "italic") if speaking else Text(line.note)
            table.add_row(Text(mark, style), Text(line.state, state_style), Text(_elapsed(line), "dim"), note)
        for state in progress.upcoming:
            table.add_row(Text("·", "dim"), Text(state, "dim"), "", "")
        footer = Text(self._budget(progress), "dim")
        gates = [Text(f"   {gate_line(gate)}", "red" if gate.ok is False else "dim") for gate in progress.gates]
        rows: list[RenderableType] = [table, *gates, footer]
        if progress.warning:
            rows.append(Text(plain(progress.warning), "bold magenta"))
        if message:
            rows.append(Text(message, "dim"))
        return Group(*rows)

    def _budget(self, progress: Progress) -> str:
        budget, grants = self._run.task.budget, self._run.grants
        wall = sum(_seconds(line) for line in progress.steps)
        return (
            f"budget: iteration {progress.iterations}/{budget.iterations * grants} · "
            f"{wall:.0f} of {budget.wall_sec * grants:.0f} s · {counted(progress.turns, 'turn')}"
            f"{_paid(progress, budget, grants)} · sandbox {progress.sandbox}"
        )


def _paid(progress: Progress, budget: Budget, grants: int) -> str:
    """Tokens and money, once there are any."""
    if not progress.tokens:
        return ""
    money = f"${progress.cost_usd:.3f} of ${budget.cost_usd * grants:g}"
    if progress.unpriced:
        money = f"{money} (some tokens have no known price)" if progress.cost_usd else "no known price"
    return f" · {progress.tokens:,} of {budget.tokens * grants:,} tokens · {money}"


def _end(words: str, columns: int) -> str:
    """The newest words that fit on a line."""
    words = plain(words)
    return words if len(words) <= columns else f"…{words[-max(1, columns - 1) :]}"


def _seconds(line: StepLine) -> float:
    if line.started_at is None:
        return 0.0
    ended = line.ended_at if line.ended_at is not None else int(time.time() * 1e6)
    return max(0.0, (ended - line.started_at) / 1e6)


def _elapsed(line: StepLine) -> str:
    return f"{_seconds(line):.1f} s" if line.started_at is not None else ""


def make_watcher(console: Console, run: Run, history: list[Event], *, quiet: bool) -> Watcher:
    """The right way to show this run here; `history` is what had happened before."""
    if quiet:
        return Silent()
    progress = Progress()
    for event in history:
        progress = advance(progress, event)
    return Panel(console, run, progress) if console.is_terminal else Lines(console, progress)
