"""Localising and ranking: pure functions over what was seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.artifacts import TestStatus
from codepilot.project.suite import SuiteRun, TestCase
from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.localise import TestTrace, localise
from codepilot.repair.messages import Evidence
from codepilot.repair.mutation.outside import outside
from codepilot.repair.mutation.score import changed_lines
from codepilot.repair.python.priors import penalty
from codepilot.repair.python.source import PythonSource
from codepilot.repair.python.test_files import TestFiles, file_of
from codepilot.repair.rank import UNSURE, Plausible, explain, rank
from codepilot.repair.selection import MAX_LOADED, choose_tests

SOURCE = PythonSource.read("m.py", b"def f(a, b):\n    c = a + b\n    return c < 100\n")


def trace(test: str, outcome: str, lines: set[int], frames: tuple[tuple[str, int], ...] = ()) -> TestTrace:
    return TestTrace(test, outcome, lines={"m.py": frozenset(lines)}, frames=frames)


def test_lines_that_only_failing_tests_run_are_most_suspicious() -> None:
    traces = [trace("t", "failed", {1, 2, 3}), trace("p", "passed", {1, 2}), trace("q", "passed", {1})]
    scores = localise(traces, ["t"]).lines["m.py"]
    assert scores[3] > scores[2] > scores[1] > 0


def going(test: str, outcome: str, *ways: tuple[int, int]) -> TestTrace:
    lines = frozenset(line for way in ways for line in way)
    return TestTrace(test, outcome, lines={"m.py": lines}, branches={"m.py": frozenset(ways)})


def test_a_line_that_all_run_is_suspicious_where_failing_tests_alone_go_on_from_it_in_their_way() -> None:
    usual = [going(f"p{n}", "passed", (1, 2), (2, 3), (3, 4)) for n in range(9)]
    scores = localise([going("t", "failed", (1, 2), (2, 4)), *usual], ["t"]).lines["m.py"]
    assert set(scores) == {1, 2, 4}
    assert scores[2] > scores[1] == scores[4] > 0
    same = localise([going("t", "failed", (1, 2), (2, 3), (3, 4)), *usual], ["t"]).lines["m.py"]
    assert len(set(same.values())) == 1, "who goes the usual way is no more suspicious for it"


def test_a_branch_never_outdoes_a_line_that_only_failing_tests_run() -> None:
    usual = [going(f"p{n}", "passed", (1, 2), (2, 3)) for n in range(9)]
    scores = localise([going("t", "failed", (1, 2), (2, 9), (9, 3)), *usual], ["t"]).lines["m.py"]
    assert scores[9] > scores[2] > scores[1]


def test_lines_of_the_failure_break_ties() -> None:
    found = localise([trace("t", "failed", {1, 2}, (("m.py", 1), ("m.py", 2)))], ["t"])
    assert found.of("m.py", [2]) > found.of("m.py", [1]) > 0
    assert found.of("other.py", [1]) == 0


@given(
    st.lists(st.tuples(st.booleans(), st.sets(st.integers(1, 20), max_size=8)), min_size=1, max_size=12),
)
def test_suspicion_is_a_share_and_only_of_lines_that_failed(runs: list[tuple[bool, set[int]]]) -> None:
    traces = [trace(f"t{n}", "failed" if red else "passed", lines) for n, (red, lines) in enumerate(runs)]
    red = [one.test for one in traces if not one.passed]
    found = localise(traces, red)
    reached = {line for one in traces if one.test in red for line in one.lines["m.py"]}
    assert set(found.lines.get("m.py", {})) == reached
    assert all(0 < score <= 1 for score in found.lines.get("m.py", {}).values())
    assert found.digest == localise(list(reversed(traces)), red).digest


def plausible(edit: Edit, score: float = 0.5, line: int = 2, position: int = 0, tests: int = 3) -> Plausible:
    patched = SOURCE.apply(edit)
    assert patched is not None
    return Plausible(
        Proposal(position, SOURCE, SOURCE.units[0], edit, score, line, overfit_penalty=penalty(edit)), patched, tests
    )


SMALL = plausible(Edit(21, 26, "a - b", "operator.binary"))
DELETED = plausible(Edit(13, 27, "", "statement.delete"), position=1)
SPECIAL = plausible(Edit(13, 13, "    if a == 4711:\n        return True\n", "guard.return"), position=2)


def test_a_plain_edit_is_preferred_to_deletions_and_special_cases() -> None:
    ordered = [ranked.one for ranked in rank([SPECIAL, DELETED, SMALL])]
    assert ordered == [SMALL, DELETED, SPECIAL]


def test_confidence_grows_with_tests_and_falls_with_rivals() -> None:
    def alone(tests: int) -> float:
        return rank([plausible(SMALL.proposal.edit, tests=tests)])[0][1]

    assert 0 < alone(1) < alone(6) <= 1
    assert rank([SMALL, DELETED])[0][1] < rank([SMALL])[0][1]
    assert rank([]) == []


def test_a_rival_at_another_place_puts_all_that_act_alike_in_doubt() -> None:
    def acting(behaviour: str, one: Plausible, **known: int) -> Plausible:
        proposal = replace(one.proposal, position=known.get("position", 0))
        evidence = Evidence(behaviour=behaviour)
        return replace(one, proposal=proposal, evidence=evidence, rival_of=known.get("rival_of", -1), covering_tests=32)

    same, other = acting("x", SMALL), acting("x", SMALL, position=1)
    assert min(one.confidence for one in rank([same, other])) > UNSURE
    rival = acting("y", DELETED, position=2, rival_of=0)
    assert max(one.confidence for one in rank([same, other, rival])) <= UNSURE
    assert rank([same, other, rival])[0].one is same


def test_explanations_name_the_place_and_the_change() -> None:
    assert explain(SMALL.proposal) == "m.py:2 in `f`: `a + b` became `a - b`"
    assert "removed" in explain(DELETED.proposal) and "added" in explain(SPECIAL.proposal)


def test_files_that_would_take_long_to_load_are_left_to_the_suite() -> None:
    names = ["t/test_a.py::test_bug", "t/test_a.py::test_near", "t/test_b.py::test_other", "t/test_long.py::test_0"]
    collected = (*names, *(f"t/test_long.py::test_{number}" for number in range(1, MAX_LOADED + 1)))
    cases = {name: TestCase(name, TestStatus.PASSED if name != names[0] else TestStatus.FAILED) for name in names}
    run = SuiteRun("finished", cases, collected, (), 1, 1.0, "")
    assert set(choose_tests(names[:1], run, file_of)) == {names[1], names[2]}


def test_helpers_of_a_test_folder_are_test_files() -> None:
    assert all(
        f"{folder}/load.py" in TestFiles(()) for folder in ("tests", "python_testcases", "test_data", "unittests")
    )
    assert not any(f"{folder}/load.py" in TestFiles(()) for folder in ("contest", "attestations", "latest", "src"))


def test_the_files_of_tests_are_known_by_the_tests_themselves() -> None:
    by_node = TestFiles(["checks/check_shop.py::Shop::test_price[a/b.py::c]", "checks/check_bag.py"])
    assert "checks/check_shop.py" in by_node and "checks/check_bag.py" in by_node
    assert "check_shop.py" not in by_node and "shop.py" not in by_node and "testshop.py" not in by_node
    by_module = TestFiles(["verify.shop.PriceCase.test_price", "verify.bag.Outer.Inner.test_x"], "unittest")
    assert "verify/shop.py" in by_module and "src/verify/shop.py" in by_module and "verify/bag.py" in by_module
    assert "shop.py" not in by_module and "verify/basket.py" not in by_module
    assert "testshop.py" in by_module


def test_what_configures_the_runner_is_no_place_for_a_repair() -> None:
    names = ("conftest.py", "pytest.ini", "setup.cfg", "pyproject.toml", "sitecustomize.py", "deep/conftest.py")
    assert [name for name in names if name not in TestFiles(())] == []


def test_lines_around_a_deletion_count_as_changed() -> None:
    before = "def f(a):\n    b = a + 1\n    b = 0\n    return b * 2\n"
    sources = [PythonSource.read("m.py", text.encode()) for text in (before, before.replace("    b = 0\n", ""))]
    assert changed_lines({"m.py": sources[1]}, {"m.py": sources[0]}) == {"m.py": {2, 3}}
    assert changed_lines({"m.py": sources[0]}, {"m.py": sources[1]}) == {"m.py": {3}}


def test_the_lines_of_a_method_count_where_they_stand() -> None:
    before = "import os\n\n\nclass A:\n    @property\n    def f(self):\n        return 1\n"
    sources = [PythonSource.read("m.py", text.encode()) for text in (before, before.replace("1", "2"))]
    assert changed_lines({"m.py": sources[1]}, {"m.py": sources[0]}) == {"m.py": {7}}
    assert changed_lines({"m.py": sources[1]}, {}) == {"m.py": set(range(1, 8))}


@pytest.mark.timeout(30)
def test_a_large_file_is_compared_in_time() -> None:
    before = "".join(f"def f{number}(a):\n    return a + {number}\n\n\n" for number in range(3000))
    sources = [PythonSource.read("m.py", text.encode()) for text in (before, before.replace("a + ", "1 + a + "))]
    found = changed_lines({"m.py": sources[1]}, {"m.py": sources[0]})
    assert found == {"m.py": set(range(2, 12_000, 4))}
    assert outside({"m.py": sources[1]}, {"m.py": sources[0]}, found) == []
