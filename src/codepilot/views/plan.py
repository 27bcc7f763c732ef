"""The plan of a run as a drawing: parts from left to right by what they wait for. Every text in it is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from codepilot.core.plan import NodeStatus
from codepilot.telemetry import PlanPart
from codepilot.views.steps import Tone
from codepilot.views.text import visible

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 216, 48, 48, 14, 4
MOST_TITLE = 26
MOST_PARTS = 40

_TONES: dict[NodeStatus, Tone] = {
    NodeStatus.SUCCEEDED: "good",
    NodeStatus.FAILED: "bad",
    NodeStatus.BLOCKED: "bad",
    NodeStatus.RUNNING: "live",
}


def plan_drawing(parts: Sequence[PlanPart], clean: Callable[[str], str], *, links: bool = False) -> Markup:
    """The graph of the plan; empty if it has a single part, or too many to draw. `links` lead to child runs."""
    if not 2 <= len(parts) <= MOST_PARTS:
        return Markup("")
    rows: dict[int, int] = {}
    places: dict[str, tuple[int, int]] = {}
    for part in parts:
        row = rows.get(part.depth, 0)
        rows[part.depth] = row + 1
        places[part.id] = (MARGIN + part.depth * (WIDTH + GAP_X), MARGIN + row * (HEIGHT + GAP_Y))
    width = max(x for x, _ in places.values()) + WIDTH + MARGIN
    height = max(y for _, y in places.values()) + HEIGHT + MARGIN
    lines = [_line(places[before], places[part.id]) for part in parts for before in part.depends_on]
    boxes = [_box(part, *places[part.id], clean, links) for part in parts]
    done = sum(part.status is NodeStatus.SUCCEEDED for part in parts)
    label = f"The plan: {done} of {len(parts)} parts done"
    return Markup(
        '<svg class="plan" viewBox="0 0 {} {}" width="{}" height="{}" role="{}" aria-label="{}">{}</svg>'
    ).format(*(width, height, width, height, "group" if links else "img", label), Markup("").join([*lines, *boxes]))


def _line(start: tuple[int, int], end: tuple[int, int]) -> Markup:
    (x, y), (to_x, to_y) = (start[0] + WIDTH, start[1] + HEIGHT // 2), (end[0], end[1] + HEIGHT // 2)
    half = (x + to_x) // 2
    return Markup('<path d="M{} {}C{} {} {} {} {} {}"/>').format(x, y, half, y, half, to_y, to_x, to_y)


def _box(part: PlanPart, x: int, y: int, clean: Callable[[str], str], links: bool) -> Markup:
    note = f"{part.status.value}{', in a child run' if part.child_run_id else ''}"
    drawn = Markup(
        '<g class="{}"><title>{}</title><rect x="{}" y="{}" width="{}" height="{}" rx="6"/>'
        '<text x="{}" y="{}">{}</text><text class="note" x="{}" y="{}">{}</text></g>'
    ).format(
        _TONES.get(part.status, "soft"),
        visible(clean(f"{part.id}: {part.title}")),
        *(x, y, WIDTH, HEIGHT),
        *(x + 10, y + 20, _short(visible(clean(part.title)))),
        *(x + 10, y + 37, note),
    )
    if not links or part.child_run_id is None:
        return drawn
    return Markup('<a href="/runs/{}">{}</a>').format(part.child_run_id, drawn)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST_TITLE else f"{line[: MOST_TITLE - 1]}…"
