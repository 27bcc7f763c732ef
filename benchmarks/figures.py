"""Formats times as figures and tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Times:
    """Milliseconds of one thing measured again and again."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p95(self) -> float:
        return self._at(0.95)

    def _at(self, share: float) -> float:
        return sorted(self.values)[min(len(self.values) - 1, int(share * len(self.values)))]

    def __str__(self) -> str:
        """Median, and in brackets the 5th to the 95th of a hundred."""
        if len(self.values) == 1:
            return shown(self.median)
        return f"{shown(self.median)} [{shown(self._at(0.05))}–{shown(self.p95)}]"  # noqa: RUF001  (a range)


@dataclass(frozen=True)
class Table:
    title: str
    text: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", self.text, ""]
        lines += [_row(self.head), _row(["---"] * len(self.head)), *map(_row, self.rows)]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Goal:
    """A figure that was promised, and what was measured; none where nothing could be."""

    what: str
    below_ms: float
    measured: float | None

    @property
    def met(self) -> bool:
        return self.measured is not None and self.measured < self.below_ms

    def row(self) -> list[str]:
        message = "not measured" if self.measured is None else shown(self.measured)
        return [self.what, f"< {self.below_ms:g}", message, "yes" if self.met else "**no**"]


@dataclass(frozen=True)
class Least:
    """A figure that was promised to be at least so much, and what was measured."""

    what: str
    at_least: float
    measured: float | None

    @property
    def met(self) -> bool:
        return self.measured is not None and self.measured >= self.at_least

    def row(self) -> list[str]:
        message = "not measured" if self.measured is None else shown(self.measured)
        return [self.what, f"≥ {self.at_least:g}", message, "yes" if self.met else "**no**"]


def shown(value: float) -> str:
    """Three significant digits, no exponents."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def ratio(value: float, ours: float) -> str:
    return f"{shown(value / ours)}×"  # noqa: RUF001  (a factor)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
