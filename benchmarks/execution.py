"""Runs the benchmarks of the execution plane and writes their tables."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import actions, patches, snapshots
from benchmarks.figures import Goal, Table
from benchmarks.machine import Quiet, described
from benchmarks.peers import default_directory
from benchmarks.sizes import FULL, QUICK, TINY, Size

SECTIONS = ("actions", "snapshots", "patches")
_SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY}
_INTRODUCTION = """\
# Benchmarks of the execution plane

The command below writes this page; every figure comes from that one run. The contestants take turns, round after round,
each in a process of its own that times itself, after a warm-up. Do not compare figures of different runs or machines;
ratios within a run are comparable.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    size = _SIZES["quick" if options.quick else options.size]
    started = time.monotonic()
    quiet = Quiet()
    tables: list[Table] = []
    goals: list[Goal] = []
    peers: dict[str, str] = {}
    if "actions" in options.only:
        _tell("code actions")
        directory = None if options.no_peers else options.peers
        acted = actions.measure(size, directory, quiet)
        tables, goals, peers = acted.tables(), acted.goals(), acted.peers
    if "snapshots" in options.only:
        _tell("snapshots")
        more, promised = snapshots.measure(size, quiet)
        tables, goals = tables + more, goals + promised
    if "patches" in options.only:
        _tell("patches")
        tables += patches.measure(size, quiet)
    text = _page(options, size, quiet, peers, tables, goals, time.monotonic() - started)
    print(text)
    if options.write is not None:
        options.write.write_text(text)
    return 0


def _tell(what: str) -> None:
    print(f"measuring {what} …", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.execution", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there too")
    parser.add_argument("--quick", action="store_true", help="under a minute, with less to say")
    parser.add_argument("--size", choices=_SIZES, default="full", help="how much is measured")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="leave the others out")
    parser.add_argument("--no-peers", action="store_true", help="do not install or run peers")
    parser.add_argument(
        "--peers", type=Path, metavar="DIR", default=default_directory(), help="where peers are installed"
    )
    return parser


def _page(
    options: argparse.Namespace,
    size: Size,
    quiet: Quiet,
    peers: dict[str, str],
    tables: Sequence[Table],
    goals: Sequence[Goal],
    seconds: float,
) -> str:
    command = ["python -m benchmarks.execution"]
    command += ["--quick"] if size is QUICK else [f"--size {options.size}"] if size is not FULL else []
    command += [] if tuple(options.only) == SECTIONS else ["--only", *options.only]
    command += ["--no-peers"] if options.no_peers else []
    command += ["--write docs/benchmarks.md"] if options.write is not None else []
    facts = [("Command", f"`{' '.join(command)}`, {seconds:.0f} s"), *described(peers), ("Load", str(quiet))]
    head = "".join(f"- {name}: {message}\n" for name, message in facts)
    parts = [_INTRODUCTION, head]
    if goals:
        rows = [goal.row() for goal in goals]
        parts.append(Table("Goals", "Milliseconds, medians.", ["", "goal", "measured", "met"], rows).markdown())
    return "\n".join([*parts, *(table.markdown() for table in tables)])


if __name__ == "__main__":
    sys.exit(main())
