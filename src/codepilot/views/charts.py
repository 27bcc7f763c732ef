"""Charts as SVG without scripts or inline styles, each with the numbers behind it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from codepilot.views.text import visible

WIDTH, HEIGHT, BOTTOM = 640, 160, 22
WIDEST = 48
"""The widest a vertical bar gets, however few there are."""


@dataclass(frozen=True)
class Bar:
    """One value of a chart; `shown` is how the value is written."""

    name: str
    value: float
    shown: str
    tone: str = "live"
    spread: float = 0.0
    """The standard deviation, drawn around the end of a horizontal bar."""

    def __post_init__(self) -> None:
        for field in ("name", "shown"):
            object.__setattr__(self, field, visible(getattr(self, field)))


def bar_rows(bars: Sequence[Bar], most: float | None = None) -> Markup:
    """Horizontal bars, one to a line: for values by name; `most` is the end of the scale."""
    top = most or max((bar.value + bar.spread for bar in bars), default=0.0) or 1.0
    rows = Markup("").join(
        Markup(
            '<li><span class="name">{}</span><svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none"'
            ' aria-hidden="true"><rect class="track" width="1000" height="10"/><rect class="{}" width="{}"'
            ' height="10"/>{}</svg><b>{}</b></li>'
        ).format(
            bar.name, bar.tone, max(2 if bar.value else 0, round(1000 * bar.value / top)), _spread(bar, top), bar.shown
        )
        for bar in bars
    )
    return Markup('<ul class="bar-rows">{}</ul>').format(rows)


def _spread(bar: Bar, top: float) -> Markup:
    if not bar.spread:
        return Markup("")
    ends = (bar.value - bar.spread, bar.value + bar.spread)
    return Markup('<path class="spread" d="M{} 5H{}"/>').format(*(round(1000 * max(0.0, one) / top) for one in ends))


def columns(bars: Sequence[Bar], label: str, most: float | None = None) -> Markup:
    """Vertical bars in their order, for values by iteration or by day; `most` is the top of the scale."""
    if not bars:
        return Markup("")
    top = most or max(bar.value for bar in bars) or 1.0
    step = min(WIDTH / len(bars), 2 * WIDEST)
    room = HEIGHT - BOTTOM - 16
    drawn = []
    for number, bar in enumerate(bars):
        height = round(room * min(1.0, bar.value / top), 1)
        wide = round(min(WIDEST, step * 0.7), 1)
        middle = round(number * step + step / 2, 1)
        left = round(middle - wide / 2, 1)
        drawn.append(
            Markup(
                '<g><title>{}: {}</title><rect class="{}" x="{}" y="{}" width="{}" height="{}" rx="2"/></g>'
                '<text x="{}" y="{}">{}</text><text class="axis" x="{}" y="{}">{}</text>'
            ).format(
                bar.name,
                bar.shown,
                bar.tone,
                left,
                round(HEIGHT - BOTTOM - height, 1),
                wide,
                height,
                middle,
                round(HEIGHT - BOTTOM - height - 4, 1),
                bar.shown,
                middle,
                HEIGHT - 6,
                bar.name,
            )
        )
    listed = ", ".join(f"{bar.name}: {bar.shown}" for bar in bars)
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH,
        HEIGHT,
        visible(f"{label}. {listed}"),
        Markup('<line x1="0" x2="{}" y1="{}" y2="{}"/>').format(WIDTH, HEIGHT - BOTTOM, HEIGHT - BOTTOM)
        + Markup("").join(drawn),
    )
