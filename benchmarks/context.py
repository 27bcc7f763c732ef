"""Measures the repository map and other parsers: cold, warm and after a change, with the results made from the map."""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.figures import Goal, Table, Times, shown
from benchmarks.generated import repository
from benchmarks.machine import Quiet, described
from benchmarks.peers import PeerMissing, default_directory, interpreter
from codepilot.context import Evidence, Files, Survey
from codepilot.core.task import TaskKind
from codepilot.workspace import Entry, ObjectStore

_FILES = {"full": 2000, "quick": 400, "tiny": 40}
_ROUNDS = {"full": 7, "quick": 3, "tiny": 1}
_BUDGET = 4000
_PEER_ROUNDS = 2
_DRIVER = Path(__file__).parent / "drivers" / "aider_map.py"
_INTRODUCTION = """\
# Benchmarks of the repository map

The command below writes this page; every figure comes from that one run. The contestants take turns on the same
generated sources. Ratios within a run may be compared with those of other runs; milliseconds may not.
"""
_EVIDENCE = Evidence(
    failing_tests=("shop/part3/module_3.py::Module3::count_all",),
    traces=('File "/work/shop/part5/module_5.py", line 30, in count_all\n',),
    task="The orders that module_7.py counts are wrong",
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    quiet = Quiet()
    sources = repository(_FILES[options.size])
    with tempfile.TemporaryDirectory(prefix="codepilot-bench-") as directory:
        bench = _Bench(Path(directory), sources, _ROUNDS[options.size], None if options.no_peers else options.peers)
        bench.measure(quiet)
        text = _page(options, sources, bench, quiet)
    print(text)
    if options.write is not None:
        options.write.write_text(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context", description=__doc__)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there too")
    parser.add_argument("--size", choices=_FILES, default="full", help="how much is measured")
    parser.add_argument("--no-peers", action="store_true", help="do not install or run peers")
    parser.add_argument(
        "--peers", type=Path, metavar="DIR", default=default_directory(), help="where peers are installed"
    )
    return parser


class _Bench:
    """The sources as files and as a tree in an object store, and what was measured on them."""

    def __init__(self, place: Path, sources: dict[str, bytes], rounds: int, peers: Path | None) -> None:
        self.place, self.rounds, self.peers = place, rounds, peers
        self.times: dict[str, list[float]] = {}
        self.spent: dict[str, list[float]] = {}
        self.missing: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.sources = sources
        self.checkout = place / "checkout"
        for path, data in sources.items():
            file = self.checkout / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        self.objects = ObjectStore.open(place / "objects.git")
        blobs = self.objects.write_blobs(sources.values())
        self.entries = {path: Entry("100644", oid) for path, oid in zip(sources, blobs, strict=True)}
        self.tree = self.objects.write_tree(self.entries)
        path = next(iter(sources))
        fresh = self.objects.write_blob(sources[path] + b"\n# changed\n")
        self.changed = self.objects.write_tree({**self.entries, path: Entry("100644", fresh)})

    def measure(self, quiet: Quiet) -> None:
        for number in range(self.rounds):
            print(f"round {number + 1} of {self.rounds} …", file=sys.stderr)
            quiet.look()
            self._ours(self.place / f"cache{number}.db")
            self._floors()
            if self.peers is not None and number < _PEER_ROUNDS:
                self._aider(self.peers)

    def _ours(self, cache: Path) -> None:
        self._timed("cold", lambda: self._survey(self.tree, cache))
        self._timed("warm", lambda: self._survey(self.tree, cache))
        self._timed("one file changed", lambda: self._survey(self.changed, cache))
        survey = self._survey(self.tree, cache)
        self._timed("graph", lambda: survey.graph)
        self._timed("outline", lambda: survey.outline(_EVIDENCE, _BUDGET))
        self._timed("gather", lambda: survey.gather(TaskKind.BUGFIX, _EVIDENCE, _BUDGET))
        self._timed("warm to outline", lambda: self._survey(self.tree, cache).outline(_EVIDENCE, _BUDGET))

    def _survey(self, tree: str, cache: Path) -> Survey:
        return Survey.of(Files.of_tree(self.objects, tree), cache)

    def _floors(self) -> None:
        python = [data for path, data in self.sources.items() if path.endswith(".py")]
        self._timed("ast", lambda: sum(len(ast.parse(data).body) for data in python))
        if ctags := shutil.which("ctags"):
            argv = [ctags, "-R", "--languages=Python,Java,JavaScript,TypeScript", "-f", "/dev/null", "."]
            self._timed("ctags", lambda: subprocess.run(argv, cwd=self.checkout, check=True, capture_output=True))
        else:
            self.missing["ctags"] = "it is not installed"

    def _aider(self, peers: Path) -> None:
        """Its map by its own code, in a process of its own: cold, then from its cache."""
        try:
            python = interpreter("aider-chat", peers)
        except PeerMissing as error:
            self.missing["aider"] = str(error)
            return
        shutil.rmtree(self.checkout / ".aider.tags.cache.v4", ignore_errors=True)
        argv = [str(python), str(_DRIVER), str(self.checkout), str(_BUDGET)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600)
        measured = json.loads(done.stdout.splitlines()[-1])
        self.versions["aider-chat"] = measured["version"]
        for what in ("cold", "warm"):
            self.times.setdefault(f"aider {what}", []).append(measured[what] * 1000)

    def _timed(self, what: str, work: Callable[[], object]) -> None:
        start, before = time.perf_counter(), os.times()
        work()
        self.times.setdefault(what, []).append((time.perf_counter() - start) * 1000)
        self.spent.setdefault(what, []).append((sum(os.times()[:4]) - sum(before[:4])) * 1000)


def _page(options: argparse.Namespace, sources: dict[str, bytes], bench: _Bench, quiet: Quiet) -> str:
    times = {what: Times(tuple(values)) for what, values in bench.times.items()}
    size = sum(map(len, sources.values()))
    command = "python -m benchmarks.context" + (f" --size {options.size}" if options.size != "full" else "")
    command += (" --no-peers" if options.no_peers else "") + (
        " --write docs/benchmarks-context.md" if options.write else ""
    )
    facts = [("Command", f"`{command}`"), *described(bench.versions), ("Load", str(quiet))]
    facts += [
        (
            "Sources",
            f"{len(sources)} files, {size / 1e6:.1f} MB, a quarter each in Python, Java, JavaScript, TypeScript",
        )
    ]
    facts += [(f"Without {name}", why) for name, why in bench.missing.items()]
    goals = [
        Goal("map, cold", 4000, times["cold"].median),
        Goal("map, warm", 300, times["warm"].median),
    ]
    named = {
        "cold": "map, cold: read, parsed, stored",
        "warm": "map, warm: all from the cache",
        "one file changed": "map, after one file changed",
        "graph": "references between the files",
        "outline": f"ranking and outline of {_BUDGET} tokens",
        "gather": f"context of {_BUDGET} tokens for a bugfix",
        "warm to outline": "all of it from a warm cache to the outline",
    }
    ours = [[label, str(times[what]), shown(Times(tuple(bench.spent[what])).median)] for what, label in named.items()]
    tables = [
        Table(
            "Goals",
            "Medians in ms, on all sources.",
            ["", "goal", "measured", "met"],
            [one.row() for one in goals],
        ),
        Table(
            "CodePilot",
            f"Medians of {bench.rounds} rounds; processor time is the sum of all processes.",
            ["", "ms [5th to 95th]", "processors, ms"],
            ours,
        ),
        Table("Compared with others", "Ratios are medians over ours. Above 1, ours is faster.", *_next_to(times)),
    ]
    head = "".join(f"- {name}: {message}\n" for name, message in facts)
    return "\n".join([_INTRODUCTION, head, *(table.markdown() for table in tables)])


def _next_to(times: dict[str, Times]) -> tuple[list[str], list[list[str]]]:
    rows = []
    for what, label, against in (
        ("aider cold", "aider's map, cold (one process, symbols, references, rank)", "cold"),
        ("aider warm", "aider's map, its cache warm", "warm to outline"),
        ("ctags", "universal ctags, always cold (symbols only)", "cold"),
        ("ast", "Python's ast, the Python quarter only (a tree, no symbols)", "cold"),
    ):
        if what in times:
            ratio = times[what].median / times[against].median
            rows.append([label, str(times[what]), against, shown(ratio)])
    return ["", "ms [5th to 95th]", "ours", "ratio"], rows


if __name__ == "__main__":
    sys.exit(main())
