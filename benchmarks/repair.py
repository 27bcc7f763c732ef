"""Measures the repair search inside the sandbox: candidates a second, time to the first repair, memory.

Three kinds of project: one function under plain tests, a class under tests with fixtures, and a package of many modules
with many tests. Each is searched twice: with a bug that an edit repairs, and with a test that no edit satisfies. The
second search tries candidates until its time is over.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Least, Table, shown
from benchmarks.machine import Quiet, described
from benchmarks.repair_programs import Program, classes, function, package
from codepilot.bench.memory import PeakMemory
from codepilot.bench.workspace import open_workspace
from codepilot.project import run_tests
from codepilot.repair import Progress, SearchRequest, search

KINDS = ("function", "class", "package")
MEMORY_MIB = 1024
SUITE_SEC = 600.0
_INTRODUCTION = """\
# Benchmarks of the repair search

The command below writes this page; every figure comes from that one run. The time counts from the start of the search:
it includes loading the project, tracing its tests and trying candidates.
"""


@dataclass(frozen=True)
class Kind:
    short: str
    name: str
    make: Callable[[], Program]
    endless: tuple[str, str]
    """What to change in the failing test so that nothing satisfies it."""
    at_least: float


@dataclass(frozen=True)
class Run:
    tried: int
    seconds: float
    began_sec: float
    """When the first candidates had been tried: all before is loading and watching."""
    found_sec: float | None
    right: bool
    peak_mib: float

    @property
    def per_sec(self) -> float:
        return self.tried / self.seconds

    @property
    def trying_per_sec(self) -> float:
        return self.tried / max(1e-6, self.seconds - self.began_sec)


class _Watch:
    def __init__(self) -> None:
        self.started = time.monotonic()
        self.began: float | None = None
        self.found: float | None = None

    def see(self, progress: Progress) -> None:
        now = time.monotonic() - self.started
        if progress.position and self.began is None:
            self.began = now
        if progress.plausible and self.found is None:
            self.found = now


def measure(program: Program, seconds: float, workers: int) -> Run:
    """One search of one project, in the sandbox that a run would use."""
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        for name, text in program.files.items():
            path = checkout / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        with closing(open_workspace(checkout, Path(folder) / "home", None)) as place:
            baseline = run_tests(place.executor, place.workspace, place.project, timeout_sec=SUITE_SEC)
            with PeakMemory() as memory:
                watch = _Watch()
                result = search(
                    SearchRequest(
                        executor=place.executor,
                        workspace=place.workspace,
                        project=place.project,
                        targets=(program.target,),
                        baseline=baseline,
                        seconds=seconds,
                        on_progress=watch.see,
                        workers=workers,
                    )
                )
    wanted = program.files[program.path].replace(program.wrong, program.right) if program.right else None
    right = bool(result.candidates) and result.candidates[0].patched.decode() == wanted
    return Run(result.tried, result.seconds, watch.began or result.seconds, watch.found, right, memory.peak_mib)


def kinds(modules: int, tests: int) -> list[Kind]:
    return [
        Kind("function", "one function, plain tests", function, ("== [(1, 3)]", "== 'nothing'"), 2000),
        Kind(
            "class",
            "a class, tests with fixtures",
            classes,
            ("balance == -50", "balance == 'nothing gives this'"),
            1000,
        ),
        Kind(
            "package",
            f"{modules} modules, {tests} tests",
            lambda: package(modules, tests),
            ("module7.Basket7(10).add(1000, 2).sum() == 1800", "module7.Basket7(10).add(1000, 2) == 'nothing'"),
            1000,
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repair", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there too")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each search may take")
    parser.add_argument("--modules", type=int, default=500, help="how many modules the large package has")
    parser.add_argument("--tests", type=int, default=2000, help="how many tests it has")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="leave the others out")
    parser.add_argument("--workers", type=int, default=2, help="how many candidates run at once")
    options = parser.parse_args(arguments)
    quiet, rows, goals = Quiet(), [], []
    for kind in (kind for kind in kinds(options.modules, options.tests) if kind.short in options.only):
        print(f"searching {kind.name} …", file=sys.stderr)
        quiet.look()
        program = kind.make()
        repaired = measure(program, options.seconds, options.workers)
        endless = measure(program.beyond_repair(*kind.endless), options.seconds, options.workers)
        rows.append(_row(kind, repaired, endless))
        goals.append(Least(f"candidates a second: {kind.name}", kind.at_least, endless.per_sec).row())
    text = _page(options, quiet, rows, goals)
    print(text)
    if options.write is not None:
        options.write.write_text(text)
    return 0


def _row(kind: Kind, repaired: Run, endless: Run) -> list[str]:
    found = f"{shown(repaired.found_sec)} s" if repaired.found_sec is not None else "**not found**"
    peak = max(repaired.peak_mib, endless.peak_mib)
    return [
        kind.name,
        found + ("" if repaired.right else " (not first)"),
        f"{repaired.tried:,}",
        f"{shown(endless.began_sec)} s",
        f"{endless.tried:,}",
        shown(endless.per_sec),
        shown(endless.trying_per_sec),
        f"{peak:,.0f}" if peak < MEMORY_MIB else f"**{peak:,.0f}**",
    ]


def _page(options: argparse.Namespace, quiet: Quiet, rows: list[list[str]], goals: list[list[str]]) -> str:
    command = f"python -m benchmarks.repair --seconds {options.seconds:g}"
    sizes = {"modules": (options.modules, 500), "tests": (options.tests, 2000), "workers": (options.workers, 2)}
    command += "".join(f" --{name} {given}" for name, (given, default) in sizes.items() if given != default)
    command += "" if tuple(options.only) == KINDS else f" --only {' '.join(options.only)}"
    command += f" --write {options.write}" if options.write is not None else ""
    facts = [("Command", f"`{command}`"), *described({})[:-1], ("Load", str(quiet))]
    head = ["", "repaired after", "candidates", "trying from", "tried", "a second", "while trying", "peak MiB"]
    text = "The first two columns are of a bug that one edit repairs, the others of a test that no edit satisfies."
    parts = [_INTRODUCTION, "".join(f"- {name}: {message}\n" for name, message in facts)]
    parts.append(Table("Goals", "The whole search.", ["", "goal", "measured", "met"], goals).markdown())
    return "\n".join([*parts, Table("Searches", text, head, rows).markdown()])


if __name__ == "__main__":
    sys.exit(main())
