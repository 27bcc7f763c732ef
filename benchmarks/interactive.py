"""Runs the benchmarks of interactive mode and writes their tables.

    python -m benchmarks.interactive [--files 2000] [--write FILE]

A checkpoint is measured inside real runs: a program in the sandbox writes files and waits. The freeze and the watch
are measured on a workspace of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from benchmarks.figures import Table, Times, shown
from benchmarks.machine import Quiet, described
from benchmarks.peers import FROM_NPM, PeerMissing, default_directory, from_npm
from codepilot.core.checkpoint import CheckpointRecorded
from codepilot.core.events import EventType
from codepilot.engine import CodePilot, Request, Settings
from codepilot.engine.interactive.watch import Watch
from codepilot.executor import CreateWorkspace, LocalExecutor, StartProcess
from codepilot.sandbox import Limits, choose
from codepilot.workspace import Entry, ObjectStore

CHANGED = (1, 10, 100, 300, 1000)
SEQUENCE = [(count, "f", "changed") for count in CHANGED] + [(count, f"new{count}_", "new") for count in CHANGED]
"""How many files each turn writes, what their names begin with, and whether they were there before."""
PROCESSES = 50
AT_ONCE = 10
PER_SECOND = 500
GOAL_MS = 100.0
MOST = {
    "checkpoint of 300 files, ms": GOAL_MS,
    "check of a single file, ms": 50.0,
    "check of a diff of 1,000 files, ms": 1_000.0,
    "freeze and thaw of 50 processes, ms": 100.0,
    "processing of one change, ms": 10.0,
    "CPU of the watch at 500 changes/s, %": 5.0,
    "CPU of a waiting run, one of ten, %": 5.0,
    "memory of a run, MB": 50.0,
    "descriptors of a run": 1_000.0,
}
"""The budgets of a run. Its disk has a hard limit of 1 GiB: more is a violation of `quota`."""
Measured = dict[str, float]
_AGENT = Path(__file__).parents[1] / "tests" / "json_lines_agent.py"
_PEER = Path(__file__).parent / "drivers" / "aop_checkpoint.mjs"
_CODE = "def area(width, height):\n    return width + height\n"
_TEST = "import unittest\nfrom shapes import area\n\nclass T(unittest.TestCase):\n    def test_area(self):\n"
_WRITER = (
    "import sys\ncount, name = int(sys.argv[1]), sys.argv[2]\nfor n in range(count):\n"
    "    open(f'part{n % 50}/{name}{n}.py', 'a').write(f'x = {n}\\n')\n"
)
_STREAM = (
    "import sys, time\nfor n in range(int(sys.argv[1])):\n    open(f'new{n}.txt', 'w').write(str(n))\n"
    "    time.sleep(1 / float(sys.argv[2]))\n"
)
_FAMILY = "import subprocess, time\nfor _ in range(%d): subprocess.Popen(['sleep', '600'])\ntime.sleep(600)\n"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    quiet, started = Quiet(), time.monotonic()
    measured: Measured = {}
    with tempfile.TemporaryDirectory(prefix="codepilot-bench-") as directory:
        place = Path(directory)
        checkpoints = [
            row
            for files in options.files
            for row in zip(
                *_checkpoints(place / f"run-{files}", files, measured),
                _peer(place / f"peer-{files}", files),
                strict=True,
            )
        ]
        session = _session(place / "session", options.files[0], options.seconds, measured)
        together = _together(place / "together", options.seconds, measured)
    command = f"`python -m benchmarks.interactive {' '.join(sys.argv[1:])}`, {time.monotonic() - started:.0f} s"
    facts = [("Command", command), *described(FROM_NPM), ("Load", str(quiet))]
    tables = [
        Table(
            "Checkpoints",
            "Milliseconds of a checkpoint, by the files that changed since the last one. *Frozen* is how long the agent"
            " stands still: it holds the snapshot, both diffs and the *check* of every file. `aop` makes its own"
            " checkpoints of the same changes in the same order, with nothing to check; it stops no agent, and keeps a"
            " diff and no snapshot.",
            ["files in the tree", "files", "frozen", "check", "below 100 ms", "aop"],
            checkpoints,
        ),
        Table("Freeze and watch", "On one workspace.", ["", "measured"], session),
        Table("Runs at once", "In one process, each with an agent that waits.", ["", "measured"], together),
        Table(
            "Budgets", f"In a tree of {options.files[-1]} files.", ["", "goal", "measured", "holds"], _budgets(measured)
        ),
    ]
    head = "".join(f"- {name}: {value}\n" for name, value in facts)
    text = "\n".join(["# Benchmarks of interactive mode\n", head, *(table.markdown() for table in tables)])
    print(text)
    if options.write is not None:
        options.write.write_text(text)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.interactive", description="Measure interactive mode.")
    parser.add_argument("--files", type=int, nargs="+", default=[2_000, 20_000], help="sizes of the tree")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the watch is measured")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there too")
    return parser


def _repository(checkout: Path, files: int) -> None:
    """A repository of so many files, with the programs that write to it."""
    checkout.mkdir(parents=True)
    for number in range(files):
        file = checkout / f"part{number % 50}" / f"f{number}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"value = {number}\n" * 20)
    (checkout / "shapes.py").write_text(_CODE)
    (checkout / "test_shapes.py").write_text(_TEST + "        self.assertEqual(area(3, 4), 12)\n")
    (checkout / "agent.py").write_text(_AGENT.read_text())
    (checkout / "write.py").write_text(_WRITER)
    steps = []
    for count, name, _ in SEQUENCE:
        steps += [["run", f"{sys.executable} write.py {count} {name}"], ["receive"]]
    (checkout / "steps.json").write_text(json.dumps(steps))
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "base"]):
        subprocess.run(["git", *identity, *command], cwd=checkout, check=True)


def _checkpoints(place: Path, files: int, measured: Measured) -> list[Sequence[str]]:
    """One run whose program writes more and more files, a turn each: the columns of the table."""
    _repository(place / "checkout", files)
    environ = {**os.environ, "CODEPILOT_HOME": str(place / "home"), "CODEPILOT_PROJECT_RUNNER": "unittest"}
    environ |= {
        "CODEPILOT_INTERACTIVE_MIN_CHECKPOINT_INTERVAL_MS": "0",
        "CODEPILOT_INTERACTIVE_MAX_UNCOMMITTED_CHANGES": "1000000",
    }
    agent = f"stdio:{sys.executable} agent.py steps.json"
    with CodePilot(Settings.load(environ=environ)) as pilot:
        request = Request(
            repo=str(place / "checkout"), agent=agent, execution_mode="interactive", budget={"iterations": 1}
        )
        run = pilot.submit(request)
        worker = threading.Thread(target=pilot.work, args=(run.run_id,))
        worker.start()
        done = [_one(pilot, run.run_id, number) for number in range(1, len(SEQUENCE) + 1)]
        worker.join()
    frozen = [one.frozen_us / 1000 for one in done]
    first, three_hundred, thousand = done[0], done[CHANGED.index(300)], done[CHANGED.index(1000)]
    measured["checkpoint of 300 files, ms"] = three_hundred.frozen_us / 1000
    measured["check of a single file, ms"] = first.validation_us / 1000
    measured["check of a diff of 1,000 files, ms"] = thousand.validation_us / 1000
    again = done[len(CHANGED)]
    measured["checks that were known, %"] = 100 * again.cached / max(1, again.checked)
    return [
        [str(files)] * len(done),
        [f"{one.files_changed_count} {kind}" for one, (_, _, kind) in zip(done, SEQUENCE, strict=True)],
        [shown(each) for each in frozen],
        [shown(one.validation_us / 1000) for one in done],
        ["yes" if each < GOAL_MS else "no" for each in frozen],
    ]


def _peer(place: Path, files: int) -> Sequence[str]:
    """What the same changes cost the checkpoint service of agentic-orchestrator."""
    try:
        package = from_npm("agentic-orchestrator", default_directory())
    except PeerMissing as error:
        print(error, file=sys.stderr)
        return ["not installed"] * len(SEQUENCE)
    _repository(place / "checkout", files)
    (place / "records").mkdir()
    command = ["node", str(_PEER), str(package), str(place / "checkout"), str(place / "records")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None and peer.stdout is not None
        taken = []
        for count, name, _ in SEQUENCE:
            writing = [sys.executable, "write.py", str(count), name]
            subprocess.run(writing, cwd=place / "checkout", check=True)
            print(count, file=peer.stdin, flush=True)
            taken.append(shown(float(peer.stdout.readline())))
        peer.stdin.close()
    return taken


def _one(pilot: CodePilot, run_id: str, number: int) -> CheckpointRecorded:
    """A checkpoint after the program's command of this number; then it goes on."""
    _wait_for_turn(pilot, run_id, number)
    made = pilot.checkpoint(run_id, wait_sec=120).done
    assert isinstance(made, CheckpointRecorded)
    pilot.message(run_id, "go on")
    return made


def _together(place: Path, seconds: float, measured: Measured) -> list[list[str]]:
    """What waiting interactive runs cost the process that supervises them."""
    _repository(place / "checkout", 200)
    (place / "checkout" / "steps.json").write_text(json.dumps([["run", "true"], ["receive"]]))
    environ = {**os.environ, "CODEPILOT_HOME": str(place / "home"), "CODEPILOT_PROJECT_RUNNER": "unittest"}
    environ["CODEPILOT_INTERACTIVE_CONCURRENT"] = str(AT_ONCE)
    agent = f"stdio:{sys.executable} agent.py steps.json"
    with CodePilot(Settings.load(environ=environ)) as pilot:
        request = Request(
            repo=str(place / "checkout"), agent=agent, execution_mode="interactive", budget={"iterations": 1}
        )
        resident, descriptors = [_resident_mb()], _descriptors()
        cpu = []
        runs = [pilot.submit(request).run_id for _ in range(AT_ONCE)]
        workers = [threading.Thread(target=pilot.work, args=(run,)) for run in runs]
        for expected, part in ((1, slice(0, 1)), (AT_ONCE, slice(1, None))):
            for worker in workers[part]:
                worker.start()
            for run in runs[:expected]:
                _wait_for_turn(pilot, run, 1)
            began, used = time.monotonic(), time.process_time()
            time.sleep(seconds)
            cpu.append((time.process_time() - used) / (time.monotonic() - began))
            resident.append(_resident_mb())
        measured["descriptors of a run"] = (_descriptors() - descriptors) / AT_ONCE
        for run in runs:
            pilot.message(run, "go on")
        for worker in workers:
            worker.join()
    each = (resident[2] - resident[1]) / (AT_ONCE - 1)
    measured["memory of a run, MB"] = each
    measured["CPU of a waiting run, one of ten, %"] = cpu[1] * 100 / AT_ONCE
    return [
        ["runs", str(AT_ONCE)],
        ["CPU of one waiting run", f"{cpu[0]:.1%}"],
        [f"CPU of {AT_ONCE} waiting runs", f"{cpu[1]:.1%}"],
        ["resident MB before, with one run, with all", ", ".join(f"{one:.0f}" for one in resident)],
        ["MB for each further run", f"{each:.1f}"],
    ]


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _budgets(measured: Measured) -> list[list[str]]:
    rows = [
        [name, f"< {most:g}", shown(measured[name]), "yes" if measured[name] < most else "no"]
        for name, most in MOST.items()
    ]
    hits = measured["checks that were known, %"]
    return [*rows, ["checks that were known, %", "> 80", shown(hits), "yes" if hits > 80 else "no"]]


def _wait_for_turn(pilot: CodePilot, run_id: str, number: int) -> None:
    while sum(event.type is EventType.TURN_FINISHED for event in pilot.events(run_id)) < number:
        time.sleep(0.1)


def _session(place: Path, files: int, seconds: float, measured: Measured) -> list[list[str]]:
    objects = ObjectStore.open(place / "objects")
    blob = objects.write_blob(b"value = 1\n")
    tree = objects.write_tree({f"part{n % 50}/f{n}.py": Entry("100644", blob) for n in range(files)})
    with closing(LocalExecutor(place / "home", choose("best"))) as executor:
        executor.create(CreateWorkspace(workspace="r-bench", objects=str(objects.path), tree=tree))
        limits = Limits(processes=200, wall_sec=600.0)
        family = executor.start_process(
            StartProcess(workspace="r-bench", argv=("python3", "-c", _FAMILY % PROCESSES), limits=limits)
        )
        time.sleep(2.0)
        freezes, thaws, frozen = [], [], None
        for _ in range(10):
            began = time.perf_counter()
            frozen = executor.freeze("r-bench")
            between = time.perf_counter()
            executor.thaw("r-bench")
            freezes.append((between - began) * 1000)
            thaws.append((time.perf_counter() - between) * 1000)
        family.kill()
        assert frozen is not None and frozen.processes > PROCESSES, "the processes run"
        by = f"{frozen.processes} processes by {frozen.by}"
        measured["freeze and thaw of 50 processes, ms"] = Times(tuple(freezes)).p95 + Times(tuple(thaws)).p95
        return [
            [f"freeze, {by}, ms", str(Times(tuple(freezes)))],
            ["thaw, ms", str(Times(tuple(thaws)))],
            *_watched(executor, files, tree, max(seconds, 5.0), measured),
        ]


def _watched(executor: LocalExecutor, files: int, tree: str, seconds: float, measured: Measured) -> list[list[str]]:
    """The cost of the watch while a program makes files as fast as it is allowed to."""
    watch = Watch(executor, "r-bench", "r-bench", tree)
    watch.look()
    count = int(PER_SECOND * seconds)
    argv = ("python3", "-c", _STREAM, str(count), str(PER_SECOND))
    process = executor.start_process(StartProcess(workspace="r-bench", argv=argv))
    looks, began, cpu = [], time.monotonic(), time.thread_time()
    while time.monotonic() - began < seconds:
        time.sleep(max(2.0, watch.pause_sec))
        at = time.perf_counter()
        watch.look()
        looks.append((time.perf_counter() - at) * 1000)
    used = (time.thread_time() - cpu) / (time.monotonic() - began)
    seen = watch.changed
    process.kill()
    quiet = time.thread_time(), time.monotonic()
    while time.monotonic() - quiet[1] < seconds:
        time.sleep(2.0)
        watch.look()
    idle = (time.thread_time() - quiet[0]) / (time.monotonic() - quiet[1])
    measured["processing of one change, ms"] = sum(looks) / max(1, seen)
    measured["CPU of the watch at 500 changes/s, %"] = used * 100
    return [
        [f"a look at {files} files with {PER_SECOND} changes/s, ms", str(Times(tuple(looks)))],
        ["changes seen", f"{seen} of about {count}"],
        ["ms for each change", shown(sum(looks) / max(1, seen))],
        [f"CPU of the watch with {PER_SECOND} changes/s", f"{used:.1%}"],
        ["CPU of the watch of a quiet tree", f"{idle:.1%}"],
    ]


if __name__ == "__main__":
    sys.exit(main())
