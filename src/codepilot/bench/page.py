"""The report as a page of its own: no script, no font, nothing loaded from anywhere."""

from __future__ import annotations

from html import escape

from codepilot.bench import report
from codepilot.bench.sweep import Sweep, Swept

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


def page(sweep: Sweep, swept: Swept) -> str:
    engine = swept.results[0].engine if swept.results else ""
    title = f"codepilot bench repair: {sweep.set}"
    head = "".join(
        f"<th class=number>{escape(name)}</th>" if n else f"<th>{escape(name)}</th>"
        for n, name in enumerate(report.HEADINGS)
    )
    figures = "".join(
        "<tr>"
        + "".join(f"<td class=number>{escape(c)}</td>" if n else f"<td>{escape(c)}</td>" for n, c in enumerate(row))
        + "</tr>"
        for row in report.rows(swept)
    )
    bugs = "".join(_bug(swept, index) for index in range(len(swept.results)))
    return (
        f"<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>{escape(report.summary(sweep, swept))}</p><p>engine {escape(engine)}</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{figures}</tbody></table>"
        "<h2>Bugs</h2><table><thead><tr><th>bug</th><th>kind</th><th>outcome</th><th>verdict</th>"
        "<th class=number>first, s</th><th class=number>tried</th><th>why, and the repairs offered</th></tr></thead>"
        f"<tbody>{bugs}</tbody></table></body></html>\n"
    )


def _bug(swept: Swept, index: int) -> str:
    one = swept.results[index]
    first = "" if one.first_plausible_sec is None else f"{one.first_plausible_sec:.1f}"
    outcome = report.outcome(one)
    offers = "".join(
        f"<p>{'correct' if right else 'wrong'}{escape(': ' + reason if reason else '')}</p><pre>{escape(patch)}</pre>"
        for right, reason, patch in zip(one.correct, one.judged, one.patches, strict=False)
    )
    detail = f"<details><summary>{len(one.patches)} offered</summary>{offers}</details>" if offers else ""
    return (
        f"<tr class={outcome.split()[0]}><td>{escape(one.bug)}</td><td>{escape(one.kind)}</td>"
        f"<td>{escape(outcome)}</td>"
        f"<td>{escape(one.verdict or '')}</td><td class=number>{first}</td><td class=number>{one.tried}</td>"
        f"<td>{escape(report.why(one))}{detail}</td></tr>"
    )
