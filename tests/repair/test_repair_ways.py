"""Which lines tests run and how they go on from them, as it is seen inside and as the host reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

from repair_kit import Bench, trial_of

from codepilot.repair.inside.codepilot_repair_watch import MAX_ENTRIES, Lines, branch_events
from codepilot.repair.localise import localise

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
    assert (3, 5) in red.ways["shop.py"] and (3, 4) not in red.ways["shop.py"]
    usual = traces["test_shop.py::test_some"].ways["shop.py"]
    assert (3, 4) in usual, "how others go on from lines of the failing test is told"
    scores = localise(traces.values(), project.baseline.red).lines["shop.py"]
    assert max(scores, key=lambda line: scores[line]) == 3


def test_a_branch_is_watched_until_both_ways_were_seen_or_one_often() -> None:
    code = compile(CODE, str(Path.cwd() / "shop.py"), "exec").co_consts[0]
    line = {number: start for start, _, number in reversed(list(code.co_lines()))}
    lines = Lines()
    off = object()
    lines.monitoring = SimpleNamespace(DISABLE=off)
    assert lines._branched(code, line[3], line[5]) is None
    assert lines._branched(code, line[3], line[3]) is off
    assert lines.ways == {"shop.py": {(3, 5)}}
    assert [lines._branched(code, line[4], line[5]) for _ in range(MAX_ENTRIES + 1)][-1] is off
    elsewhere = compile(CODE, "/elsewhere/shop.py", "exec").co_consts[0]
    assert lines._branched(elsewhere, line[3], line[5]) is off and set(lines.ways) == {"shop.py"}


def test_each_way_has_an_event_of_its_own_where_there_is_one() -> None:
    assert branch_events(SimpleNamespace(BRANCH=4)) == (4,)
    assert branch_events(SimpleNamespace(BRANCH=4, BRANCH_LEFT=1, BRANCH_RIGHT=2)) == (1, 2)
