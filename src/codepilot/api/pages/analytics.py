"""What the runs achieved, took and cost, as charts with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter, Request, Response

from codepilot.api.access import Viewer
from codepilot.api.pages.render import render
from codepilot.api.service import service_of
from codepilot.telemetry import Analytics, Group
from codepilot.telemetry.analytics import Spread
from codepilot.views.charts import Bar, bar_rows, columns
from codepilot.views.dashboard import Chart
from codepilot.views.text import counted, duration, money

router = APIRouter(include_in_schema=False)

_TITLES = ("", "Runs", "Ended", "Proved", "Pass rate", "Time to green", "Iterations", "Tokens", "Cost")


@router.get("/analytics")
def analytics(request: Request, who: Viewer) -> Response:
    found = service_of(request).pilot.analytics()
    runs = found.total.runs
    return render(
        request,
        who,
        "analytics",
        active="Analytics",
        summary=f"the newest {counted(runs, 'run')}" if runs > 1 else "",
        figures=_figures(found) if runs else [],
        charts=_charts(found) if runs else [],
    )


def _figures(found: Analytics) -> list[tuple[str, str, str]]:
    total = found.total
    time, iterations = total.seconds_to_green, total.iterations_to_green
    memory = f"{found.memory_hits / found.memory_asked:.0%}" if found.memory_asked else "not asked"
    return [
        ("Pass rate", _share(total.pass_rate), f"{total.green} of {counted(total.ended, 'ended run')}"),
        ("Time to green", _seconds(time.mean), _around(time, _seconds) or counted(time.count, "proved run")),
        ("Iterations to green", _number(iterations.mean), _around(iterations, _number)),
        ("Cost", money(total.cost_usd), counted(total.tokens, "token")),
        ("Approvals a task", f"{found.approvals / total.runs:.1f}", f"{found.approvals_denied} denied"),
        ("Memory hits", memory, f"of {counted(found.memory_asked, 'question')}"),
        ("Tool calls", f"{total.turns:,}", f"{counted(found.timeouts, 'timeout')}"),
    ]


def _charts(found: Analytics) -> list[Chart]:
    rates = [
        Bar(str(number), rate, f"{rate:.0%}", "good") for number, rate in enumerate(found.pass_rate_by_iteration, 1)
    ]
    charts = [
        Chart(
            "Green by iteration",
            "share of the ended runs",
            columns(rates, "Share of ended runs that are green after so many iterations", 1.0),
            ("Iteration", "Green"),
            [(bar.name, bar.shown) for bar in rates],
        ),
        _grouped("By agent", found.by_agent),
        _grouped("By language", found.by_language),
        _grouped("By kind of task", found.by_kind),
        *(_to_green(title, groups) for title, groups in (("agent", found.by_agent), ("language", found.by_language))),
        _costs("agent", found.by_agent),
        _costs("model", found.by_model),
        _tools(found.tool_calls),
        _counted("Verdicts", found.by_verdict, {"confirmed": "good", "plausible": "warn"}),
        _counted("Failures", found.failures, {}, "bad"),
        _counted("Steps tried again", found.retries_by_role, {}, "warn"),
    ]
    return [chart for chart in charts if chart.rows]


def _grouped(title: str, groups: Sequence[Group]) -> Chart:
    bars = [Bar(one.name, one.pass_rate or 0.0, _share(one.pass_rate), "good") for one in groups]
    return Chart(title, "pass rate", bar_rows(bars, 1.0), _TITLES, _rows(groups))


def _to_green(by: str, groups: Sequence[Group]) -> Chart:
    """The mean time to a proved change, with its standard deviation."""
    green = [one for one in groups if one.seconds_to_green.mean is not None]
    bars = [
        Bar(
            one.name,
            one.seconds_to_green.mean or 0.0,
            _mean(one.seconds_to_green, _seconds),
            spread=one.seconds_to_green.deviation or 0.0,
        )
        for one in green
    ]
    return Chart(f"Time to green by {by}", "mean ± deviation", bar_rows(bars), _TITLES, _rows(green))


def _costs(by: str, groups: Sequence[Group]) -> Chart:
    paid = [one for one in groups if one.cost_usd or one.unpriced_tokens]
    bars = [Bar(one.name, one.cost_usd, money(one.cost_usd)) for one in paid]
    return Chart(f"Cost by {by}", "dollars", bar_rows(bars), _TITLES, _rows(paid))


def _rows(groups: Sequence[Group]) -> list[tuple[str, ...]]:
    return [
        (
            one.name,
            str(one.runs),
            str(one.ended),
            str(one.green),
            _share(one.pass_rate),
            _mean(one.seconds_to_green, _seconds),
            _mean(one.iterations_to_green, _number),
            f"{one.tokens:,}",
            money(one.cost_usd) + (" and unknown" if one.unpriced_tokens else ""),
        )
        for one in groups
    ]


def _tools(calls: Mapping[str, Mapping[str, int]]) -> Chart:
    """How often each tool was called, and how that ended."""
    sums = {tool: sum(counts.values()) for tool, counts in calls.items()}
    every = sorted(sums, key=lambda tool: -sums[tool])
    bars = [Bar(tool, sums[tool], f"{sums[tool]:,}") for tool in every]
    endings = ("success", "error", "timeout", "policy_violation")
    rows = [(tool, *(str(calls[tool].get(ending, 0)) for ending in endings)) for tool in every]
    titles = ("Tool", *(ending.replace("_", " ").capitalize() for ending in endings))
    return Chart("Tool calls", "of these runs", bar_rows(bars), titles, rows)


def _counted(title: str, counts: Mapping[str, int], tones: Mapping[str, str], tone: str = "live") -> Chart:
    names = {name: name.replace("_", " ").lower() for name in counts}
    bars = [Bar(names[name], number, str(number), tones.get(name, tone)) for name, number in counts.items()]
    return Chart(title, "runs", bar_rows(bars), ("", "Count"), [(bar.name, bar.shown) for bar in bars])


def _mean(spread: Spread, shown: Callable[[float | None], str]) -> str:
    return f"{shown(spread.mean)} {_around(spread, shown)}".strip()


def _around(spread: Spread, shown: Callable[[float | None], str]) -> str:
    """The standard deviation; a single value has none."""
    return f"± {shown(spread.deviation)}" if spread.count > 1 else ""


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    return "none" if value is None else duration(value)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.1f}"
