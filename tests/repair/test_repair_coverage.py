"""Which lines tests run and how they go on from them, as it is seen inside and as the host reads it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from repair_kit import Bench, trial_of

from codepilot import repair
from codepilot.repair.localise import localise
from codepilot.repair.python.inside.coverage import branch_events

Open = Callable[[Mapping[str, str | bytes]], Bench]

CODE = """def price(amount, member):
    total = amount * 10
    if amount > 3 and member:
        total -= 5
    return total


def unused():
    return 1
"""
TESTS = """import pytest
from shop import price, unused


def test_some():
    assert price(5, True) == 45 and unused() == 1


@pytest.mark.parametrize("amount", [6, 7, 8, 9])
def test_others(amount):
    assert price(amount, True) == 10 * amount - 5


def test_member_of_three():
    assert price(3, True) == 25
"""


def test_a_condition_that_failing_tests_alone_leave_in_their_way_stands_out(bench: Open) -> None:
    project = bench({"shop.py": CODE, "test_shop.py": TESTS})
    with trial_of(project) as trial:
        trial.start()
        traces = {one.test: one for one in trial.trace(project.baseline.collected, alone=project.baseline.red)}
    red = traces["test_shop.py::test_member_of_three"]
    assert (3, 5) in red.branches["shop.py"] and (3, 4) not in red.branches["shop.py"]
    usual = traces["test_shop.py::test_some"].branches["shop.py"]
    assert (3, 4) in usual, "how others go on from lines of the failing test is reported"
    scores = localise(traces.values(), project.baseline.red).lines["shop.py"]
    assert max(scores, key=lambda line: scores[line]) == 3


LOOPS = """def search(items, wanted):
    for item in items:
        if item == wanted:
            break
    else:
        return None
    count = 0
    while count < item:
        count += 1
    if count > 2 and items:
        return count
    return -1
"""
SEEN = """import json, sys
sys.path.insert(0, {inside!r})
from inside.coverage import Lines
from loops import search
for name, call in {calls!r}.items():
    with Lines(branches=True) as lines:
        search(*call)
    rounds = sum(branch.rounds for branch in lines.watched.values())
    print(json.dumps([name, sorted(lines.branches["loops.py"]), rounds]))
"""
CALLS = {
    "found": ([1, 1000], 1000),
    "missing": ([1, 2], 3),
    "small": ([1, 2], 1),
}
WAYS = {
    "found": {(3, 4), (8, 10), (10, 11)},
    "missing": {(2, 6)},
    "small": {(3, 4), (8, 10), (10, 12)},
}
"""Ways out of a loop, a long one too, and of conditions, as every interpreter tells them."""
EVERY = {(2, 6), (10, 11), (10, 12)}


def _interpreters() -> list[str]:
    """This one, and whatever newer ones the machine has: from 3.12 on ways are seen by other means."""
    siblings = Path(sys.base_prefix).parent.glob("3.1[2-9].*/bin/python3")
    return [sys.executable, *map(str, sorted({*siblings, *Path("/usr/bin").glob("python3.1[2-9]")}))]


@pytest.mark.parametrize("python", _interpreters(), ids=lambda path: Path(path).parents[1].name)
def test_every_interpreter_tells_the_ways(python: str, tmp_path: Path) -> None:
    inside = str(Path(repair.__file__).parent / "python")
    (tmp_path / "loops.py").write_text(LOOPS, "utf-8")
    code = SEEN.format(inside=inside, calls=CALLS)
    ran = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    reported = {
        name: (set(map(tuple, ways)), rounds) for name, ways, rounds in map(json.loads, ran.stdout.splitlines())
    }
    for name, wanted in WAYS.items():
        assert wanted <= reported[name][0] and not (EVERY - wanted) & reported[name][0], name
    assert reported["found"][1] < 3000, "what was seen is not looked at again"


def test_each_way_has_an_event_of_its_own_where_there_is_one() -> None:
    assert branch_events(SimpleNamespace(BRANCH=4)) == (4,)
    assert branch_events(SimpleNamespace(BRANCH=4, BRANCH_LEFT=1, BRANCH_RIGHT=2)) == (1, 2)
