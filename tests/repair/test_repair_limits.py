"""What must not slow the search down or mislead it: endless loops, what tests leave or write, reload candidates."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repair_kit import Bench, job_of, results, trial_of

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.messages import Selection
from codepilot.repair.python.inside.step_budget import NAME, conditions, counted
from codepilot.repair.python.source import PythonSource
from codepilot.repair.queue import RELOAD, RELOAD_EVERY, RetryQueue, interleaved

Open = Callable[[Mapping[str, str | bytes]], Bench]

LOOPS = (
    'def f(n):\n    while n > 1:\n        s = "ü"; n -= 1\n'
    "    while (n and\n           s):\n        pass\n    return n\n"
)


def test_loops_count_their_rounds_where_the_edit_leaves_them_whole() -> None:
    first, second = conditions(LOOPS)
    assert [LOOPS[slice(*place)] for place in (first, second)] == ["n > 1", "n and\n           s"]
    at = LOOPS.index("1:")
    inside = counted(LOOPS, [first, second], at, at + 1, "n - 1")
    assert f"while {NAME}() and (n > n - 1):" in inside and inside.count(NAME) == 2
    across = counted(LOOPS, [first, second], first[0] + 2, second[0] + 1, "x:\n        pass\n    while n")
    assert NAME not in across
    before = counted(LOOPS, [first, second], 6, 7, "m")
    assert before.startswith("def f(m):") and before.count(NAME) == 2
    assert all(ast.parse(text) for text in (inside, before, counted(LOOPS, [first, second], 0, 0, "")))


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.9, 0.5, 0.2])), max_size=600))
def test_slow_candidates_are_spread_and_none_is_lost(kinds: list[tuple[bool, float]]) -> None:
    source = PythonSource.read("m.py", b"def f():\n    return 1\n")
    kinds.sort(key=lambda kind: -kind[1])
    proposals = [
        Proposal(at, source, None, Edit(0, 0, str(at), "reload" if reload else "cheap"), score, 1)
        for at, (reload, score) in enumerate(kinds)
    ]
    cheap, reload = ([one for one in proposals if one.edit.template == kind] for kind in ("cheap", "reload"))
    found = list(interleaved(iter(cheap), iter(reload)))
    assert [one for one in found if one in cheap] == cheap and [one for one in found if one in reload] == reload
    for at, one in enumerate(found):
        before = [other for other in found[:at] if other in cheap]
        if one in reload and len(before) < len(cheap):
            assert len(before) >= RELOAD_EVERY * (reload.index(one) + 1) and before[-1].score <= one.score


@pytest.mark.variants
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3 * RELOAD_EVERY)), max_size=30))
def test_of_what_must_be_loaded_anew_one_in_many_gets_its_turn(batches: list[tuple[int, int]]) -> None:
    source = PythonSource.read("m.py", b"def f():\n    return 1\n")
    waiting, added, given, tried = RetryQueue(), 0, [], 0
    for more, size in batches:
        for _ in range(more):
            waiting.add(RELOAD, Proposal(added, source, None, Edit(0, 0, "", "reload"), 0.5, 1))
            added += 1
        tried += size
        given += waiting.due(size)
        assert len(given) <= tried // RELOAD_EVERY
    given += waiting.take(RELOAD, added)
    assert [one.position for one in given] == list(range(added))


HALVES = {
    "halve.py": (
        "def halve(n):\n    steps = 0\n    while n > 1:\n        n = n - 2\n        steps += 1\n    return steps\n"
    ),
    "test_halve.py": "from halve import halve\n\n\ndef test_halve():\n    assert halve(64) == 6\n",
}


def test_many_endless_candidates_cost_little(bench: Open) -> None:
    project = bench(HALVES)
    endless = [("n = n - 2", f"n = n + {number}") for number in range(300)]
    begun = time.monotonic()
    found = results(project, "halve.py", [*endless, ("n = n - 2", "n = n // 2")])
    assert [one.outcome for one in found] == ["timeout"] * 300 + ["passed"]
    assert time.monotonic() - begun < 60


@pytest.mark.variants
def test_a_default_is_tried_in_place_and_put_back(bench: Open) -> None:
    project = bench(
        {
            "greet.py": "class Greeter:\n    def greet(self, name, mark='?', *, loud=True):\n"
            "        text = name + mark\n        return text.upper() if loud else text\n",
            "test_greet.py": "from greet import Greeter\n\n\ndef test_greet():\n"
            "    assert Greeter().greet('Ada', '!') == 'Ada!'\n",
        }
    )
    changes = [("loud=True", "loud=False"), ("mark='?'", "mark=1 / 0"), ("mark='?'", "mark='.'"), ("upper", "lower")]
    found = results(project, "greet.py", [*changes, changes[0]])
    assert [one.outcome for one in found] == ["passed", "invalid", "failed", "failed", "passed"]


STATEFUL = {
    "registry.py": (
        "SEEN = []\n\n\ndef register(name):\n    SEEN.append(name)\n    return len(SEEN) - 1\n\n\n"
        "def label(number):\n    return 'no ' + str(number - 1)\n"
    ),
    "test_registry.py": (
        "from registry import label, register\n\n\ndef test_label():\n    assert label(3) == 'no 3'\n\n\n"
        "def test_first():\n    assert register('a') == 0\n    assert label(0)\n"
    ),
}


@pytest.mark.variants
def test_what_tests_leave_behind_does_not_hide_the_repair(bench: Open) -> None:
    project = bench(STATEFUL)
    assert b"str(number)" in project.search().candidates[0].patched


@pytest.mark.variants
def test_a_test_that_writes_code_into_the_project_does_not_block_the_search(bench: Open) -> None:
    project = bench(
        {
            "maker.py": "def source(value):\n    return f'VALUE = {value + 1}'\n",
            "made.py": "VALUE = 0\n",
            "test_maker.py": (
                "import pathlib\nimport runpy\n\nimport made\nfrom maker import source\n\n\ndef test_made():\n"
                "    path = pathlib.Path('made.py')\n    path.write_text(source(7))\n"
                "    assert runpy.run_path(str(path))['VALUE'] == 7\n"
            ),
        }
    )
    before = project.executor.read_file("w", "made.py")
    result = project.search()
    assert any(b"{value}" in found.patched for found in result.candidates)
    assert project.executor.read_file("w", "made.py") == before


CASES = {
    "box.py": (
        "class Box:\n    def __init__(self, size):\n        self.size = size\n        self.items = []\n\n"
        "    def put(self, item):\n        if len(self.items) > self.size:\n            return False\n"
        "        self.items.append(item)\n        return True\n"
    ),
    "test_box.py": (
        "import unittest\n\nimport pytest\nfrom box import Box\n\n\nclass BoxTest(unittest.TestCase):\n"
        "    def setUp(self):\n        self.box = Box(2)\n\n"
        "    def test_fills(self):\n        for item in (1, 2):\n            with self.subTest(item):\n"
        "                self.assertTrue(self.box.put(item))\n        self.assertFalse(self.box.put(3))\n\n"
        "    def test_skipped(self):\n        self.skipTest('not now')\n\n\n"
        "@pytest.fixture\ndef full():\n    box = Box(0)\n    yield box\n    assert box.items == []\n\n\n"
        "def test_full(full):\n    assert not full.put(1)\n\n\n"
        "@pytest.mark.xfail\ndef test_later():\n    assert Box(1).put(1) == 'later'\n"
    ),
}


@pytest.mark.variants
def test_cases_of_unittest_and_fixtures_that_check_at_their_end_are_judged_as_their_runner_does(bench: Open) -> None:
    project = bench(CASES)
    changes = [("> self.size", ">= self.size"), ("> self.size", "< self.size"), ("return False", "pass")]
    assert [one.outcome for one in results(project, "box.py", changes)] == ["passed", "failed", "failed"]


@pytest.mark.variants
@pytest.mark.parametrize("files", [HALVES, CASES])
def test_how_many_run_at_once_changes_nothing(bench: Open, files: Mapping[str, str]) -> None:
    project = bench(files)
    path = next(iter(files))
    source = PythonSource.read(path, project.files[path])
    changes = [(node, f"({node})" if number % 2 else "0") for number, node in enumerate(_texts(source))]
    one, two = (results(project, path, changes, places) for places in (1, 2))
    assert one == two


@pytest.mark.variants
def test_tests_that_use_one_file_wait_for_each_other(bench: Open) -> None:
    project = bench(
        {
            "twice.py": "def twice(n):\n    return n * 3\n",
            "test_twice.py": (
                "import os\nimport time\n\nfrom twice import twice\n\n\n"
                "def test_twice():\n    assert twice(2) == 4\n\n\n"
                "def test_kept():\n    with open('kept.txt', 'w') as file:\n"
                "        file.write(str(os.getpid() + twice(0)))\n"
                "    time.sleep(0.005)\n    assert open('kept.txt').read() == str(os.getpid())\n"
            ),
        }
    )
    targets, others = (("test_twice.py::test_twice",), ("test_twice.py::test_kept",))
    changes = [f"n * 2{' + 0' * number}" for number in range(60)]
    selection = Selection(targets, others)
    jobs = [job_of(project, "twice.py", "n * 3", new, selection, number) for number, new in enumerate(changes)]
    with trial_of(project, places=2) as trial:
        trial.start()
        trial.trace([*targets, *others], alone=targets)
        found = trial.judge(jobs)
    assert {result.outcome for result in found.values()} == {"passed"} and len(found) == len(jobs)


def test_a_file_that_a_test_writes_is_loaded_as_written(bench: Open) -> None:
    project = bench(
        {
            "names.py": "ENDING = 'a'\n",
            "made.py": "NAME = 'of old'\n",
            "test_made.py": (
                "import importlib\nimport pathlib\n\nimport made\nimport names\n\n\n"
                "def test_made():\n    pathlib.Path(made.__file__).write_text(f'NAME = {names.ENDING!r}')\n"
                "    assert importlib.reload(made).NAME == 'b'\n"
            ),
        }
    )
    jobs = [
        job_of(project, "names.py", "'a'", new, Selection(("test_made.py::test_made",)), number)
        for number, new in enumerate(["'c'", "'b'", "'d'"])
    ]
    with trial_of(project) as trial:
        trial.start()
        trial.trace(project.baseline.collected, alone=project.baseline.red)
        found = trial.judge(jobs)
    assert [found[number].outcome for number in range(len(jobs))] == ["failed", "passed", "failed"]


def test_only_the_files_of_the_tests_are_loaded_whatever_the_project_names(bench: Open) -> None:
    project = bench(
        {
            "pytest.ini": "[pytest]\naddopts = more\n",
            "twice.py": "def twice(n):\n    return n * 3\n",
            "test_twice.py": "from twice import twice\n\n\ndef test_twice():\n    assert twice(2) == 4\n",
            "more/test_more.py": "def test_more():\n    assert True\n",
        }
    )
    targets = ("test_twice.py::test_twice",)
    with replace(trial_of(project), tests=targets) as trial:
        trial.start()
        assert trial.collected == targets and "more/test_more.py" not in trial.import_time


def _texts(source: PythonSource) -> list[str]:
    nodes = [node for unit in source.units for node in ast.walk(unit.node) if isinstance(node, ast.expr)]
    return list(dict.fromkeys(source.segment(node) for node in nodes))


def test_tests_that_are_not_loaded_in_time_are_no_broken_suite(bench: Open) -> None:
    project = bench({"m.py": "def f():\n    return 1\n", "test_m.py": "def test_m():\n    assert 0\n"})
    with trial_of(project, seconds=0.0) as trial, pytest.raises(CodePilotError) as caught:
        trial.start()
    assert caught.value.kind is FailureKind.STUCK and "--budget wall_sec" in caught.value.failure.advice
