"""`codepilot bench`: run a set of bugs and say what was found, what of it is right, and how fast."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli.options import MAX_SEC, JsonFlag, PythonOption
from codepilot.cli.output import console, say

if TYPE_CHECKING:
    from codepilot.bench import BenchSpec

bench = typer.Typer(help="Measure the engine on sets of bugs.", no_args_is_help=True, rich_markup_mode=None)


@bench.callback()
def group() -> None:
    """Measure the engine on sets of bugs."""


@bench.command()
def repair(
    set_name: Annotated[str, typer.Option("--set", metavar="NAME", help="humanevalfix, quixbugs or realfix.")],
    data: Annotated[Path, typer.Option(metavar="PATH", help="The directory with the set's data.")],
    jobs: Annotated[int, typer.Option(min=1, max=64, help="How many bugs to work on at a time.")] = 1,
    seconds: Annotated[float, typer.Option(min=1, max=MAX_SEC, help="Time limit of the search for one bug.")] = 60.0,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N bugs.")] = None,
    only: Annotated[list[str] | None, typer.Option(metavar="BUG", help="Only this bug; may be repeated.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write results. Default: bench/ in the home.")
    ] = None,
    python: PythonOption = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget earlier results and start over.")] = False,
    search_only: Annotated[
        bool, typer.Option("--search-only", help="Skip gates and proof: faster, without verdicts.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Repair every bug of a set and judge the repairs by tests that the search never saw.

    An interrupted benchmark continues where it stopped."""
    from codepilot.bench import BenchSpec
    from codepilot.engine import Settings

    place = out or Settings.load().home.path / "bench" / f"repair-{set_name}"
    spec = BenchSpec(
        set=set_name,
        data=data,
        out=place,
        jobs=jobs,
        seconds=seconds,
        limit=limit,
        only=tuple(only or ()),
        python=python,
        fresh=fresh,
        search_only=search_only,
    )
    raise typer.Exit(_run(spec, as_json=as_json))


def _run(spec: BenchSpec, *, as_json: bool) -> int:
    from codepilot.bench import document, run_sweep, write_reports
    from codepilot.cli.bench_screen import Progress, screen

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    terminal = console()
    with Progress(terminal, spec, quiet=as_json) as progress:
        result = run_sweep(spec, progress.show)
    reports = write_reports(spec, result)
    if as_json:
        say(json.dumps(document(spec, result)))
    else:
        screen(terminal, spec, result, reports)
    return 0 if result.complete else 130
