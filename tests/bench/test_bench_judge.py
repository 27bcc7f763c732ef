"""The judge tells right repairs from those that only pass the tests, and lets nothing run outside the sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_kit import LARGEST, TWICE, judged, task, write_quixbugs, write_tasks

from codepilot.core.failures import CodePilotError


def _twice(body: str) -> str:
    return TWICE["prompt"] + "".join(f"    {line}\n" for line in body.split("\n"))


def test_the_canonical_solution_is_right_and_so_is_another_way_to_say_it(tmp_path: Path) -> None:
    data = write_tasks(tmp_path / "data", TWICE)
    found = judged(tmp_path, "humanevalfix", data, _twice("return x + x"), _twice("return 2 * x"))
    assert [one.correct for one in found] == [True, True]
    assert found[0].inputs >= 10


def test_a_repair_that_only_knows_the_tests_is_wrong_and_a_distinguishing_input_is_named(tmp_path: Path) -> None:
    data = write_tasks(tmp_path / "data", TWICE)
    special = _twice("return {2: 4, 5: 10, 0: 0, 3: 6}.get(x, x)")
    found = judged(tmp_path, "humanevalfix", data, special, _twice("return x + 1"))
    assert [one.correct for one in found] == [False, False]
    assert "differs on" in found[0].reason and " gives " in found[0].reason
    assert "check 1 fails" in found[1].reason


def test_what_the_search_never_saw_counts(tmp_path: Path) -> None:
    identity = task(1, "f", "return x", "return 0", "assert f(2) == 2", "assert f(99) == 99")
    data = write_tasks(tmp_path / "data", identity)
    found = judged(tmp_path, "humanevalfix", data, "def f(x):\n    return x if x < 50 else 50\n")
    assert not found[0].correct and "check 2 fails" in found[0].reason


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "while x > 5 or x == 1:\n    pass\nreturn x + x",
        "import os\nif x not in (0, 2, 3, 5):\n    os._exit(0)\nreturn x + x",
        "if x not in (0, 2, 3, 5):\n    return 10 ** 10 ** 10\nreturn x + x",
        "import sys\nif x not in (0, 2, 3, 5):\n    sys.exit()\nreturn x + x",
        "if x not in (0, 2, 3, 5):\n    return [0] * (1 << 40)\nreturn x + x",
    ],
    ids=["loops", "dies", "one endless step", "exits", "eats memory"],
)
def test_a_repair_that_misbehaves_beyond_the_tests_is_wrong_and_the_next_is_judged_all_the_same(
    tmp_path: Path, body: str
) -> None:
    data = write_tasks(tmp_path / "data", TWICE)
    found = judged(tmp_path, "humanevalfix", data, _twice(body), _twice("return x * 2"))
    assert [one.correct for one in found] == [False, True]


def test_what_a_candidate_does_to_files_stays_inside(tmp_path: Path) -> None:
    target = tmp_path / "outside"
    target.mkdir()
    (target / "kept").write_text("x")
    data = write_tasks(tmp_path / "data", TWICE)
    hostile = _twice(
        "import pathlib, shutil\n"
        f"shutil.rmtree({str(target)!r}, ignore_errors=True)\n"
        f"try:\n    pathlib.Path({str(tmp_path / 'written')!r}).write_text('x')\nexcept OSError:\n    pass\n"
        "return x + x"
    )
    judged(tmp_path, "humanevalfix", data, hostile)
    assert (target / "kept").read_text() == "x"
    assert not (tmp_path / "written").exists()


def test_the_same_inputs_are_made_every_time(tmp_path: Path) -> None:
    data = write_tasks(tmp_path / "data", LARGEST)
    wrong = "def largest(x):\n    return max(x) if len(x) < 4 else x[0]\n"
    answers = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        answers.append(judged(tmp_path / name, "humanevalfix", data, wrong))
    assert answers[0] == answers[1] and not answers[0][0].correct


def test_generated_inputs_keep_what_held_for_every_example(tmp_path: Path) -> None:
    """Sorted lists stay sorted and counts positive: a repair that is right only there is right."""
    right = "def at(items, n):\n    return [i for i in sorted(items) for _ in range(abs(n))]\n"
    same = "def at(items, n):\n    return [i for i in items for _ in range(n)]\n"
    cases = [[[[1, 2, 5], 2], None], [[[3, 4], 1], None], [[[2, 6, 7, 9], 3], None], [[[1, 8], 2], None]]
    data = write_quixbugs(tmp_path / "data", "at", right, "def at(items, n):\n    return items\n", cases)
    assert judged(tmp_path, "quixbugs", data, same)[0].correct


def test_graphs_of_objects_are_taken_from_the_tests_functions(tmp_path: Path) -> None:
    node = "class Node:\n    def __init__(self, value, successor=None):\n        self.successor = successor\n"
    count = (
        "def count(node):\n    n = 0\n    while node:\n        n += 1\n        node = node.successor\n    return n\n"
    )
    data = write_quixbugs(tmp_path / "data", "count", count, count.replace("+= 1", "+= 2"), [])
    (data / "json_testcases/count.json").unlink()
    (data / "python_testcases/node.py").write_text(node)
    (data / "python_testcases/test_count.py").write_text(
        "from node import Node\nfrom python_programs.count import count\n\n\n"
        "def test1():\n    assert count(Node(1, Node(2))) == 2\n\n\ndef test2():\n    assert count(None) == 0\n"
    )
    shallow = "def count(node):\n    return 0 if node is None else 1\n"
    found = judged(tmp_path, "quixbugs", data, count, shallow)
    assert [one.correct for one in found] == [True, False]


def test_a_reference_that_fails_its_own_check_cannot_judge(tmp_path: Path) -> None:
    data = write_tasks(tmp_path / "data", task(1, "f", "return 1", "return 0", "assert f(2) == 2"))
    with pytest.raises(CodePilotError, match="cannot judge"):
        judged(tmp_path, "humanevalfix", data, "def f(x):\n    return 2\n")


def test_graphs_are_rewired_so_that_a_repair_for_the_tested_ones_alone_is_wrong(tmp_path: Path) -> None:
    node = (
        "class Node:\n    def __init__(self, value, successor=None):\n"
        "        self.value, self.successor = value, successor\n"
    )
    right = "def last(node):\n    while node.successor:\n        node = node.successor\n    return node.value\n"
    data = write_quixbugs(tmp_path / "data", "last", right, right.replace("node.value", "None"), [])
    (data / "json_testcases/last.json").unlink()
    (data / "python_testcases/node.py").write_text(node)
    (data / "python_testcases/test_last.py").write_text(
        "from node import Node\nfrom python_programs.last import last\n\n\n"
        "def test1():\n    assert last(Node(1, Node(2, Node(3)))) == 3\n\n\n"
        "def test2():\n    assert last(Node(5, Node(6, Node(7)))) == 7\n\n\n"
        "def test3():\n    assert last(Node(0, Node(1, Node(2)))) == 2\n"
    )
    found = judged(tmp_path, "quixbugs", data, right, "def last(node):\n    return node.successor.successor.value\n")
    assert [one.correct for one in found] == [True, False]


@pytest.mark.variants
def test_slower_is_not_wrong(tmp_path: Path) -> None:
    right = "def total(n):\n    return n * (n + 1) // 2\n"
    slow = "def total(n):\n    found = 0\n    for i in range(n + 1):\n        found += i\n    return found\n"
    cases = [[[1], 1], [[4], 10], [[9000], 40504500]]
    data = write_quixbugs(tmp_path / "data", "total", right, right.replace("+ 1", "- 1"), cases)
    assert judged(tmp_path, "quixbugs", data, slow)[0].correct
