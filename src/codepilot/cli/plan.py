"""The plan of a run as lines: a mark for how each part stands, indented by what it waits for."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from codepilot.cli.output import plain
from codepilot.core.plan import NodeStatus
from codepilot.telemetry import PlanPart

MARKS = {
    NodeStatus.PENDING: ("·", "dim"),
    NodeStatus.RUNNING: ("●", "blue"),
    NodeStatus.SUCCEEDED: ("✓", "green"),
    NodeStatus.FAILED: ("✗", "red"),
    NodeStatus.SKIPPED: ("-", "dim"),
    NodeStatus.BLOCKED: ("✗", "dim"),
}
MOST_LINES = 12


def plan_lines(parts: Sequence[PlanPart]) -> list[Text]:
    """One line for each part; a plan of a single part needs none."""
    if len(parts) < 2:
        return []
    lines = [_line(part) for part in parts[:MOST_LINES]]
    if len(parts) > MOST_LINES:
        lines.append(Text(f"   and {len(parts) - MOST_LINES} more parts", "dim"))
    return lines


def _line(part: PlanPart) -> Text:
    mark, style = MARKS[part.status]
    after = f"  after {', '.join(part.depends_on)}" if part.depends_on else ""
    child = f"  {part.child_run_id.rpartition('-')[2]}" if part.child_run_id else ""
    again = f"  again after a conflict ({part.conflicts})" if part.conflicts else ""
    return Text.assemble(
        f"   {'  ' * part.depth}",
        (mark, style),
        f" {plain(part.id)}: {plain(part.title)}",
        (plain(f"{after}{child}{again}"), "dim"),
    )
