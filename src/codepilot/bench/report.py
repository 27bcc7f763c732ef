"""The figures of a sweep and its reports: JSON, Markdown, and an HTML page that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from codepilot.bench.results import FILE, Result
from codepilot.bench.sweep import BenchResult, BenchSpec


@dataclass(frozen=True)
class Figures:
    bugs: int
    errors: int
    plausible: int
    top1: int
    top5: int
    confirmed: int
    confirmed_wrong: int
    median_first_sec: float | None
    """Seconds of search to the first plausible repair, over the bugs that have one."""
    per_sec: float
    """Candidates tried in all, for each second in which candidates were being tried."""
    median_per_sec: float
    peak_mib: float
    median_total_sec: float
    outside: int
    """Changes outside the sandbox."""
    watched: int
    """Files looked at for that, where they were fewest."""
    unwatched: int
    """Bugs whose rows are from before there was such a look."""

    def as_json(self) -> dict[str, float | int | None]:
        return asdict(self)


def figure(results: Sequence[Result]) -> Figures:
    first = [one.first_plausible_sec for one in results if one.plausible and one.first_plausible_sec is not None]
    searched = [one for one in results if one.trying_sec > 0]
    trying_sec = sum(one.trying_sec for one in searched)
    confirmed = [one for one in results if one.verdict == "confirmed"]
    return Figures(
        bugs=len(results),
        errors=sum(one.status == "ERROR" for one in results),
        plausible=sum(one.plausible for one in results),
        top1=sum(one.first_correct for one in results),
        top5=sum(one.any_correct for one in results),
        confirmed=len(confirmed),
        confirmed_wrong=sum(not one.first_correct for one in confirmed),
        median_first_sec=round(median(first), 2) if first else None,
        per_sec=round(sum(one.tried for one in searched) / trying_sec, 1) if trying_sec else 0.0,
        median_per_sec=round(median([one.tried / one.trying_sec for one in searched]), 1) if searched else 0.0,
        peak_mib=max((one.peak_mib for one in results), default=0.0),
        median_total_sec=round(median([one.total_sec for one in results]), 1) if results else 0.0,
        outside=sum(one.outside_count for one in results),
        watched=min((one.watched for one in results if one.watched), default=0),
        unwatched=sum(not one.watched for one in results),
    )


def by_kind(results: Sequence[Result]) -> dict[str, Figures]:
    """The same for each kind of bug, the most frequent first."""
    kinds: dict[str, list[Result]] = {}
    for one in results:
        kinds.setdefault(one.kind, []).append(one)
    ordered = sorted(kinds.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    return {kind: figure(found) for kind, found in ordered}


# --- tables ----------------------------------------------------------------------------------------------------------


HEADINGS = (
    *("kind", "bugs", "plausible", "correct", "top 5", "confirmed", "confirmed wrong"),
    *("first s", "whole s", "cand/s", "errors"),
)
"""`correct` is of first offers; seconds are medians."""


def document(spec: BenchSpec, result: BenchResult) -> dict[str, Any]:
    """The document for `--json`."""
    return {
        "schema_version": 1,
        "set": spec.set,
        "engine": result.results[0].engine if result.results else None,
        "seconds": spec.seconds,
        "complete": result.complete,
        "bugs": result.wanted,
        "all": figure(result.results).as_json(),
        "by_kind": {kind: found.as_json() for kind, found in by_kind(result.results).items()},
        "outside": {one.bug: list(one.outside) for one in result.results if one.outside_count},
        "results": str((spec.out / FILE).absolute()),
    }


def rows(result: BenchResult) -> Iterator[tuple[str, ...]]:
    """The table: each kind of bug, then all of them."""
    kinds = by_kind(result.results)
    for kind, found in kinds.items() if len(kinds) > 1 else ():
        yield _row(kind, found)
    yield _row("all", figure(result.results))


def _row(name: str, found: Figures) -> tuple[str, ...]:
    first = "-" if found.median_first_sec is None else f"{found.median_first_sec:.1f}"
    counts = (found.bugs, found.plausible, found.top1, found.top5, found.confirmed, found.confirmed_wrong)
    whole = f"{found.median_total_sec:.0f}"
    return (name, *map(str, counts), first, whole, f"{found.per_sec:.0f}", str(found.errors))


def summary(spec: BenchSpec, result: BenchResult) -> str:
    """The figures that the table has no room for, in one line."""
    found = figure(result.results)
    share = f"{100 * found.top1 / found.bugs:.0f}%" if found.bugs else "-"
    part = "" if result.complete else f" ({len(result.results)} of {result.wanted} done)"
    return (
        f"{spec.set}{part}: {found.top1}/{found.bugs} correct first ({share}), {found.plausible} plausible; "
        f"{found.confirmed_wrong} of {found.confirmed} confirmed are wrong; "
        f"search of {spec.seconds:g} s; peak memory {found.peak_mib:.0f} MiB; "
        f"{outside(found)}"
    )


def outside(found: Figures) -> str:
    """A line on changes outside the sandbox, and on how much was examined to find them."""
    if found.outside:
        return f"{found.outside:,} change{'s' * (found.outside != 1)} outside the sandbox: see the rows"
    if not found.watched:
        return "what changes outside the sandbox was not watched"
    part = f", {found.unwatched} of {found.bugs} bugs not watched" if found.unwatched else ""
    return f"nothing changed outside the sandbox ({found.watched:,} files watched{part})"


def write_reports(spec: BenchSpec, result: BenchResult) -> tuple[Path, ...]:
    """Write `md` and `html` next to the results."""
    markdown, html = spec.out / "report.md", spec.out / "report.html"
    markdown.write_text(_markdown(spec, result), "utf-8")
    html.write_text(page(spec, result), "utf-8")
    return markdown, html


def _markdown(spec: BenchSpec, result: BenchResult) -> str:
    lines = [f"# codepilot bench repair --set {spec.set}", "", summary(spec, result), ""]
    lines += [_line(HEADINGS), _line("---" for _ in HEADINGS)]
    lines += [_line(row) for row in rows(result)]
    lines += [
        "",
        _line(("bug", "kind", "outcome", "verdict", "first, s", "tried", "template", "why")),
        _line(["---"] * 8),
    ]
    lines += [_line(_bug_row(one)) for one in result.results]
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
    reason = one.reason or next((reason for reason in one.judged if reason), "")
    return "; ".join(filter(None, (reason, harm(one))))


def harm(one: Result) -> str:
    """The changes outside the sandbox while the bug ran."""
    if not one.outside_count:
        return ""
    more = one.outside_count - len(one.outside)
    return f"outside the sandbox: {', '.join(one.outside)}" + (f", and {more:,} more" if more else "")


def _bug_row(one: Result) -> tuple[str, ...]:
    first = "" if one.first_plausible_sec is None else f"{one.first_plausible_sec:.1f}"
    return (one.bug, one.kind, outcome(one), one.verdict or "", first, str(one.tried), one.template, why(one))


def _line(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


# --- the HTML page ---------------------------------------------------------------------------------------------------


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #ddd; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
tr.correct td:nth-child(3) { color: #176c2f; } tr.wrong td:nth-child(3), tr.error td:nth-child(3) { color: #a11; }
pre { background: #f6f6f6; padding: .6rem; overflow-x: auto; } summary { cursor: pointer; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #16181c; }
th, td { border-color: #333; } pre { background: #202329; }
tr.correct td:nth-child(3) { color: #6fce8a; } tr.wrong td:nth-child(3), tr.error td:nth-child(3) { color: #ff8a80; } }
"""


def page(spec: BenchSpec, result: BenchResult) -> str:
    engine = result.results[0].engine if result.results else ""
    title = f"codepilot bench repair: {spec.set}"
    head = "".join(
        f"<th class=number>{escape(name)}</th>" if n else f"<th>{escape(name)}</th>" for n, name in enumerate(HEADINGS)
    )
    figures = "".join(
        "<tr>"
        + "".join(f"<td class=number>{escape(c)}</td>" if n else f"<td>{escape(c)}</td>" for n, c in enumerate(row))
        + "</tr>"
        for row in rows(result)
    )
    bugs = "".join(_bug(result, index) for index in range(len(result.results)))
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>{escape(summary(spec, result))}</p><p>engine {escape(engine)}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{figures}</tbody></table>"
        "<h2>Bugs</h2><table><thead><tr><th>bug</th><th>kind</th><th>outcome</th><th>verdict</th>"
        "<th class=number>first, s</th><th class=number>tried</th><th>why, and the repairs offered</th></tr></thead>"
        f"<tbody>{bugs}</tbody></table></body></html>\n"
    )


def _bug(result: BenchResult, index: int) -> str:
    one = result.results[index]
    first = "" if one.first_plausible_sec is None else f"{one.first_plausible_sec:.1f}"
    ended = outcome(one)
    offers = "".join(
        f"<p>{'correct' if right else 'wrong'}{escape(': ' + reason if reason else '')}</p><pre>{escape(patch)}</pre>"
        for right, reason, patch in zip(one.correct, one.judged, one.patches, strict=False)
    )
    detail = f"<details><summary>{len(one.patches)} offered</summary>{offers}</details>" if offers else ""
    return (
        f"<tr class={ended.split()[0]}><td>{escape(one.bug)}</td><td>{escape(one.kind)}</td>"
        f"<td>{escape(ended)}</td>"
        f"<td>{escape(one.verdict or '')}</td><td class=number>{first}</td><td class=number>{one.tried}</td>"
        f"<td>{escape(why(one))}{detail}</td></tr>"
    )
