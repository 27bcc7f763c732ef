"""What a person sees of a sweep: one line while it runs, a table at its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from codepilot.bench import BenchResult, BenchSpec, Result
from codepilot.bench.report import HEADINGS, outcome, rows, summary


class Progress:
    """Bugs done, correct so far, time left: a line that is written over on a terminal, a line a bug elsewhere."""

    def __init__(self, console: Console, spec: BenchSpec, *, quiet: bool) -> None:
        self._console = console
        self._spec = spec
        self._quiet = quiet
        self._begun = time.monotonic()
        self._status = console.status("", spinner="dots") if console.is_terminal and not quiet else None

    def __enter__(self) -> Progress:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def show(self, results: Sequence[Result], wanted: int, before: int) -> None:
        if self._quiet:
            return
        newest = results[-1] if len(results) > before else None
        correct = sum(one.first_correct for one in results)
        left = self._left(len(results) - before, wanted - len(results))
        line = f"{len(results)}/{wanted} bugs, {correct} correct so far{left}"
        if newest is not None:
            text = f"{newest.bug}: {outcome(newest)} after {newest.search_sec:.1f} s"
            if newest.outside_count:
                text += f"; changes outside the sandbox: {newest.outside_count:,}"
            self._console.print(text if self._status else f"{text}; {line}", markup=False, highlight=False)
        if self._status:
            self._status.update(line)

    def _left(self, done: int, waiting: int) -> str:
        if not done or not waiting:
            return ""
        seconds = (time.monotonic() - self._begun) / done * waiting
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"


def screen(console: Console, spec: BenchSpec, result: BenchResult, reports: Sequence[Path]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if place else "left")
    for row in rows(result):
        table.add_row(*row)
    console.print(table)
    console.print(summary(spec, result), markup=False, highlight=False, soft_wrap=True)
    if not result.complete:
        console.print("Stopped; the same command goes on from here.", markup=False)
    for report in reports:
        console.print(str(report), markup=False, highlight=False, soft_wrap=True)
