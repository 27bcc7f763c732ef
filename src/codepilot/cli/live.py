"""The view of a run at work: a live panel where standard error is a terminal, plain lines elsewhere.

Lines come with each step and milestone. While nothing happens, one line every few seconds says what is going on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from codepilot.cli import output
from codepilot.cli.output import plain
from codepilot.cli.plan import plan_lines
from codepilot.cli.progress import Progress, StepLine, advance, doing
from codepilot.core.artifacts import TestResult
from codepilot.core.events import (
    BudgetWarned,
    ChildJoined,
    ChildStarted,
    DependencyDegraded,
    EditsFound,
    Event,
    EventType,
    ModelAsked,
    ModelSwitched,
    PlanRevised,
    TurnFinished,
    TurnStarted,
)
from codepilot.core.run import Run
from codepilot.core.spending import total
from codepilot.core.text import counted
from codepilot.telemetry import describe, gate_line

EVERY_SEC = 5.0
"""How long a pipe stays without a line."""
MARKS = {
    "waiting": ("·", "dim"),
    "running": ("●", "blue"),
    "done": ("✓", "green"),
    "partly": ("!", "magenta"),
    "failed": ("✗", "red"),
}
_STEP_ENDS = frozenset({EventType.STEP_SUCCEEDED, EventType.STEP_FAILED})
_DESCRIBED = (
    TurnStarted,
    TurnFinished,
    ModelSwitched,
    DependencyDegraded,
    EditsFound,
    BudgetWarned,
    ChildStarted,
    ChildJoined,
    PlanRevised,
)
_MODEL_TEXT = 500
"""How much of a model's text is kept to show its end."""


class _Entered:
    """A context manager that does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class RunView(Protocol):
    """Shows a run while it is worked on."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def on_event(self, event: Event) -> None: ...

    def on_text(self, piece: str) -> None:
        """A model's text as it arrives."""
        ...

    def message(self, text: str) -> None:
        """Something about the run that is not an event; nothing takes it back. The same again changes nothing."""
        ...


class Silent(_Entered):
    """For `--quiet`."""

    def on_event(self, event: Event) -> None:
        return None

    def on_text(self, piece: str) -> None:
        return None

    def message(self, text: str) -> None:
        return None


class Heartbeat:
    """Prints `line()` whenever nothing was printed for a while; an empty one is left out."""

    def __init__(self, line: Callable[[], str], write: Callable[[str], None], every_sec: float | None = None) -> None:
        self._line = line
        self._write_line = write
        self._every_sec = EVERY_SEC if every_sec is None else every_sec
        self._lock = threading.RLock()  # a signal may interrupt its holder
        self._stop = threading.Event()
        self._written = time.monotonic()
        self._thread = threading.Thread(target=self._beat, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def write(self, text: str) -> None:
        with self._lock:
            self._written = time.monotonic()
            self._write_line(text)

    def _beat(self) -> None:
        while not self._stop.wait(max(0.05, self._written + self._every_sec - time.monotonic())):
            if time.monotonic() - self._written >= self._every_sec:
                if line := self._line():
                    self.write(line)
                else:
                    self._written = time.monotonic()


class LineView:
    """For pipes and log files."""

    def __init__(self, console: Console, progress: Progress, every_sec: float | None = None) -> None:
        self._console = console
        self._progress = progress
        self._message = ""
        self._heartbeat = Heartbeat(self._now, self._print, every_sec)

    def __enter__(self) -> Self:
        self._heartbeat.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heartbeat.__exit__()

    def on_event(self, event: Event) -> None:
        self._progress = advance(self._progress, event)
        if event.type in _STEP_ENDS:
            self._heartbeat.write(step_line(self._progress.steps[-1]))
        elif isinstance(event.data, TestResult):
            for gate in event.data.gates:
                self._heartbeat.write(f"{'':22}{plain(gate_line(gate))}")
        elif isinstance(event.data, _DESCRIBED) and (text := describe(event)):
            self._heartbeat.write(f"{'':22}{plain(text)}")

    def on_text(self, piece: str) -> None:
        """A model's text in pieces is for a screen."""

    def message(self, text: str) -> None:
        if text and text != self._message:
            self._heartbeat.write(text)
        self._message = text

    def _now(self) -> str:
        line = self._progress.running
        return "" if line is None else step_line(line)

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def step_line(line: StepLine) -> str:
    """One step, as a line of its own."""
    note = doing(line) if line.mark == "running" else line.note
    return f"{MARKS[line.mark][0]} {line.state:<9} {_elapsed(line):>8}  {note}"


class PanelView:
    """For terminals: drawn in place ten times a second by a thread of its own."""

    def __init__(self, console: Console, run: Run, progress: Progress, hint: str, *, transient: bool = False) -> None:
        self._run = run
        self._progress = progress
        self._lock = threading.RLock()  # a signal may interrupt its holder
        self._model_text = ""
        self._hint = self._message = hint
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=10, transient=transient)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._message = self._hint = ""
        self._live.__exit__(kind, error, trace)

    def on_event(self, event: Event) -> None:
        with self._lock:
            self._progress = advance(self._progress, event)
            self._model_text = "" if isinstance(event.data, (ModelAsked, TurnStarted)) else self._model_text

    def on_text(self, piece: str) -> None:
        with self._lock:
            self._model_text = (self._model_text + piece)[-_MODEL_TEXT:]

    def message(self, text: str) -> None:
        with self._lock:
            self._message = text or self._hint

    def _draw(self) -> RenderableType:
        with self._lock:
            progress, message, text = self._progress, self._message, " ".join(self._model_text.split())
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(width=1)
        table.add_column(width=9)
        table.add_column(width=8, justify="right")
        table.add_column(overflow="ellipsis", no_wrap=True, ratio=1)
        for line in progress.steps:
            mark, style = MARKS[line.mark]
            running = line.mark == "running"
            note = Text(doing(line) if running else line.note)
            if text and running:
                note = Text(_end(text, self._live.console.width - 26), "italic")
            table.add_row(
                Text(mark, style), Text(line.state, "bold" if running else ""), Text(_elapsed(line), "dim"), note
            )
        for state in progress.upcoming:
            table.add_row(Text("·", "dim"), Text(state, "dim"), "", "")
        parts = plan_lines(progress.parts)
        gates = [Text(f"   {plain(gate_line(gate))}", "red" if gate.ok is False else "dim") for gate in progress.gates]
        rows: list[RenderableType] = [table, *parts, *gates, Text(self._budget(progress), "dim")]
        if progress.warning:
            rows.append(Text(plain(progress.warning), "bold magenta"))
        if message:
            rows.append(Text(plain(message), "dim"))
        return Group(*rows)

    def _budget(self, progress: Progress) -> str:
        run = self._run
        wall = sum(_seconds(line) for line in progress.steps)
        return (
            f"budget: iteration {progress.iterations}/{total(run, 'iterations'):.0f} · "
            f"{wall:.0f} of {total(run, 'wall_sec'):.0f} s · {counted(progress.turns, 'turn')}"
            f"{_paid(progress, run)} · sandbox {progress.sandbox}"
        )


def _paid(progress: Progress, run: Run) -> str:
    """Tokens and money, once there are any."""
    if not progress.tokens:
        return ""
    money = f"${progress.cost_usd:.3f} of ${total(run, 'cost_usd'):g}"
    if progress.unpriced:
        money = f"{money} (some tokens have no known price)" if progress.cost_usd else "no known price"
    return f" · {progress.tokens:,} of {total(run, 'tokens'):,.0f} tokens · {money}"


def _end(text: str, columns: int) -> str:
    """The newest words that fit on a line."""
    text = plain(text)
    return text if len(text) <= columns else f"…{text[-max(1, columns - 1) :]}"


def _seconds(line: StepLine) -> float:
    if line.started_at is None:
        return 0.0
    ended = line.ended_at if line.ended_at is not None else int(time.time() * 1e6)
    return max(0.0, (ended - line.started_at) / 1e6)


def _elapsed(line: StepLine) -> str:
    return f"{_seconds(line):.1f} s" if line.started_at is not None else ""


def make_view(
    console: Console,
    run: Run,
    history: list[Event],
    *,
    hint: str = "Ctrl+C pauses at a safe point, Ctrl+\\ quits at once; both can be resumed.",
    transient: bool = False,
) -> RunView:
    """The view for this console. `history` is what happened before; a `transient` panel is removed at the end."""
    if output.quiet():
        return Silent()
    progress = Progress()
    for event in history:
        progress = advance(progress, event)
    if live(console):
        return PanelView(console, run, progress, hint, transient=transient)
    return LineView(console, progress)


def live(console: Console) -> bool:
    """True if things can be drawn in place. Log lines of `-v` would disturb that."""
    return console.is_terminal and not console.is_dumb_terminal and not output.verbose()


class Stages:
    """The progress of a command that works in stages: a spinner on a terminal, elsewhere lines."""

    def __init__(self, console: Console, every_sec: float | None = None) -> None:
        self._console = console
        self._stage, self._since = "", time.monotonic()
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=10, transient=True)
        self._heartbeat = Heartbeat(self._now, lambda text: output.say(text, err=True), every_sec)
        self._shown: Live | Heartbeat | None = None

    def __enter__(self) -> Self:
        if not output.quiet():
            self._shown = self._live if live(self._console) else self._heartbeat
            self._shown.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown.__exit__(kind, error, trace)

    def begin(self, stage: str) -> None:
        """The next stage, in words."""
        self._stage, self._since = stage, time.monotonic()
        if self._shown is self._heartbeat:
            self._heartbeat.write(f"· {stage}")

    def _now(self) -> str:
        return f"· {self._stage} ({time.monotonic() - self._since:.0f} s)" if self._stage else ""

    def _draw(self) -> RenderableType:
        return Text(plain(self._now()), "dim")
