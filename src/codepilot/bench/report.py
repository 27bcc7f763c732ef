"""The reports of a sweep: one JSON document, a table in Markdown, and a page that needs nothing but itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codepilot.bench.figures import Figures, by_kind, figure
from codepilot.bench.results import FILE, Result
from codepilot.bench.sweep import Sweep, Swept

HEADINGS = (
    *("kind", "bugs", "plausible", "correct", "top 5", "confirmed", "confirmed wrong"),
    *("first s", "whole s", "cand/s", "errors"),
)
"""`correct` is of first offers; seconds are medians."""


def document(sweep: Sweep, swept: Swept) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "schema_version": 1,
        "set": sweep.set,
        "engine": swept.results[0].engine if swept.results else None,
        "seconds": sweep.seconds,
        "complete": swept.complete,
        "bugs": swept.wanted,
        "all": figure(swept.results).as_json(),
        "by_kind": {kind: found.as_json() for kind, found in by_kind(swept.results).items()},
        "outside": {one.bug: list(one.outside) for one in swept.results if one.outside_count},
        "results": str((sweep.out / FILE).absolute()),
    }


def rows(swept: Swept) -> Iterator[tuple[str, ...]]:
    """The table: each kind of bug, then all of them."""
    kinds = by_kind(swept.results)
    for kind, found in kinds.items() if len(kinds) > 1 else ():
        yield _row(kind, found)
    yield _row("all", figure(swept.results))


def _row(name: str, found: Figures) -> tuple[str, ...]:
    first = "-" if found.median_first_sec is None else f"{found.median_first_sec:.1f}"
    counts = (found.bugs, found.plausible, found.top1, found.top5, found.confirmed, found.confirmed_wrong)
    whole = f"{found.median_total_sec:.0f}"
    return (name, *map(str, counts), first, whole, f"{found.per_sec:.0f}", str(found.errors))


def summary(sweep: Sweep, swept: Swept) -> str:
    """The figures that the table has no room for, in one line."""
    found = figure(swept.results)
    share = f"{100 * found.top1 / found.bugs:.0f}%" if found.bugs else "-"
    part = "" if swept.complete else f" ({len(swept.results)} of {swept.wanted} done)"
    return (
        f"{sweep.set}{part}: {found.top1}/{found.bugs} correct first ({share}), {found.plausible} plausible; "
        f"{found.confirmed_wrong} of {found.confirmed} confirmed are wrong; "
        f"search of {sweep.seconds:g} s; peak memory {found.peak_mib:.0f} MiB; "
        f"{outside(found)}"
    )


def outside(found: Figures) -> str:
    """Whether anything happened where nothing may, and how much was looked at to say so."""
    if found.outside:
        return f"{found.outside:,} change{'s' * (found.outside != 1)} outside the sandbox: see the rows"
    if not found.watched:
        return "what changes outside the sandbox was not watched"
    part = f", {found.unwatched} of {found.bugs} bugs not watched" if found.unwatched else ""
    return f"nothing changed outside the sandbox ({found.watched:,} files watched{part})"


def write_reports(sweep: Sweep, swept: Swept) -> tuple[Path, ...]:
    """Write `report.md` and `report.html` beside the results."""
    from codepilot.bench.page import page

    markdown, html = sweep.out / "report.md", sweep.out / "report.html"
    markdown.write_text(_markdown(sweep, swept), "utf-8")
    html.write_text(page(sweep, swept), "utf-8")
    return markdown, html


def _markdown(sweep: Sweep, swept: Swept) -> str:
    lines = [f"# codepilot bench repair --set {sweep.set}", "", summary(sweep, swept), ""]
    lines += [_line(HEADINGS), _line("---" for _ in HEADINGS)]
    lines += [_line(row) for row in rows(swept)]
    lines += [
        "",
        _line(("bug", "kind", "outcome", "verdict", "first, s", "tried", "template", "why")),
        _line(["---"] * 8),
    ]
    lines += [_line(_bug_row(one)) for one in swept.results]
    return "\n".join(lines) + "\n"


def outcome(one: Result) -> str:
    """A bug's end in a word or three."""
    if one.status == "ERROR":
        return "error"
    if not one.plausible:
        return "nothing found"
    return "correct" if one.first_correct else "correct in top 5" if one.any_correct else "wrong"


def why(one: Result) -> str:
    """The reason for a bug's end, and what it did that nothing may do."""
    said = one.reason or next((reason for reason in one.judged if reason), "")
    return "; ".join(filter(None, (said, harm(one))))


def harm(one: Result) -> str:
    """What happened outside the sandbox while the bug ran."""
    if not one.outside_count:
        return ""
    more = one.outside_count - len(one.outside)
    return f"outside the sandbox: {', '.join(one.outside)}" + (f", and {more:,} more" if more else "")


def _bug_row(one: Result) -> tuple[str, ...]:
    first = "" if one.first_plausible_sec is None else f"{one.first_plausible_sec:.1f}"
    return (one.bug, one.kind, outcome(one), one.verdict or "", first, str(one.tried), one.template, why(one))


def _line(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
