"""What a search must leave in its state so that another can go on: nothing skipped, nothing kept twice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from repair_kit import BACKEND, Bench, plausible_of

from codepilot.core.contract import JsonObject
from codepilot.executor import LocalExecutor
from codepilot.project import SuiteRun, detect
from codepilot.repair import SearchRequest
from codepilot.repair.backend import Failure, SearchFacts
from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.ledger import order_digest, record, revive
from codepilot.repair.localise import Suspicion
from codepilot.repair.messages import Evidence, TrialResult
from codepilot.repair.python.source import PythonSource
from codepilot.repair.rank import rank
from codepilot.repair.search import Search
from codepilot.repair.selection import TestSelector
from codepilot.repair.trial import Trial
from codepilot.sandbox import choose

SOURCE = PythonSource.read("m.py", b"def f(a):\n    return a\n")
RELATED = TestSelector(("t",), ())


@pytest.fixture
def request_of_nothing(tmp_path: Path) -> SearchRequest:
    (tmp_path / "test_m.py").write_text("def test_m():\n    pass\n")
    executor = LocalExecutor(tmp_path / "home", choose("best"))
    project = detect(tmp_path, python=sys.executable, environ={}, inside=str(tmp_path))
    baseline = SuiteRun("finished", {}, ("t",), (), 1, 1.0, "")
    return SearchRequest(executor, "w", project, ("t",), baseline, 30.0, lambda progress: None)


def known(failure: Failure) -> SearchFacts:
    return SearchFacts({"m.py": SOURCE}, Suspicion({"m.py": {2: 1.0}}), failure, RELATED)


def resumed(request: SearchRequest, **state: object) -> Search:
    digest = order_digest(known(Failure()), ("t",), ())
    search = Search(replace(request, state={"digest": digest, "position": 6, "plausible": [], **state}), BACKEND)
    search._ledger.digest = digest
    search._ledger.resume(search._request.state, {}, ())
    return search


def test_what_was_known_of_single_edits_outlives_a_second_stop(request_of_nothing: SearchRequest) -> None:
    state = resumed(request_of_nothing, marks="1t4.1+", synthesised=True)._ledger.state()
    assert (state["marks"], state["position"], state["synthesised"]) == ("1t4.1+", 6, True)


def test_what_waits_to_be_loaded_anew_is_not_skipped_by_the_next_search(request_of_nothing: SearchRequest) -> None:
    search = resumed(request_of_nothing, marks="2.1d3.")
    proposals = [Proposal(at, SOURCE, None, Edit(0, 0, " " * at, "test"), 0.5, 1) for at in range(8)]
    assert [one.position for one in search._from_position(iter(proposals))] == [2, 6, 7]
    trial = Trial(BACKEND, request_of_nothing.executor, "w", request_of_nothing.project, (), 0.0, lambda: None)
    search._singles.extend(proposals)
    search._settle(trial, [proposals[2]], {2: TrialResult(2, "reload", None)}, RELATED)
    assert (search._ledger.state()["position"], search._ledger.state()["marks"]) == (6, "2.1d3.")


def test_what_was_not_judged_in_time_is_still_to_be_tried(request_of_nothing: SearchRequest) -> None:
    search = resumed(request_of_nothing)
    batch = [Proposal(at, SOURCE, None, Edit(0, 0, " " * at, "test"), 0.5, 1) for at in range(6, 10)]
    results = {6: TrialResult(6, "failed", "t"), 8: TrialResult(8, "failed", "t"), 9: TrialResult(9, "passed", None)}
    request = request_of_nothing
    trial = Trial(BACKEND, request.executor, "w", request.project, (), 0.0, lambda: None)
    assert search._settle(trial, batch, results, RELATED) == batch[1:]
    assert search._ledger.state()["position"] == 7


def test_a_position_holds_only_for_the_same_failure() -> None:
    def digest(*messages: str) -> str:
        return order_digest(known(Failure(("ValueError",), messages)), ("t",), ())

    assert digest("<m.A object at 0x7f1234567890>") == digest("<m.A object at 0x7f0987654321>")
    assert digest("3 != 4") != digest("3 != 5") != digest()


def test_what_was_composed_is_no_neighbour_of_the_single_edit_of_that_number() -> None:
    single, other = plausible_of(7, Evidence()), plausible_of(8, Evidence())
    composed = replace(other, proposal=replace(other.proposal, position=1 << 30, after=7))
    assert rank([single, composed])[0].features["cluster_share"] < 1
    assert rank([composed])[0].features["effort"] == rank([single])[0].features["effort"]
    again = revive(record(composed), {"m.py": composed.proposal.source})
    assert again is not None and again.proposal.effort == 7


AGE = """def adult(age):
    return age > 18
"""
TEST_AGE = """from age import adult


def test_eighteen():
    assert adult(18)


def test_younger():
    assert not adult(17)


def test_older():
    assert adult(40)
"""
Open = Callable[[Mapping[str, str | bytes]], Bench]


def test_after_a_refusal_the_next_answer_of_the_same_search_comes_at_once(bench: Open) -> None:
    project = bench({"age.py": AGE, "test_age.py": TEST_AGE})
    first = project.search()
    state = project.seen[-1].state
    assert len(first.candidates) > 2 and state["ended"] is True
    refused = (first.candidates[0].patched,)
    project.seen.clear()
    second = project.search(state=state, refused=refused)
    assert project.seen == [], "nothing was searched"
    assert second.candidates[0].patched == first.candidates[1].patched
    assert {one.patched for one in second.candidates} == {one.patched for one in first.candidates} - {*refused}
    every = tuple(one.patched for one in first.candidates)
    third = project.search(state=state, refused=every)
    assert project.seen and not {one.patched for one in third.candidates} & {*every}, "then the search goes on"


@pytest.mark.variants
@pytest.mark.parametrize("change", [{"ended": False}, {"task": "other tests"}, {"plausible": [{"path": "age.py"}]}])
def test_only_an_ended_search_for_the_same_tests_leaves_answers(bench: Open, change: JsonObject) -> None:
    project = bench({"age.py": AGE, "test_age.py": TEST_AGE})
    first = project.search()
    state = {**project.seen[-1].state, **change}
    project.seen.clear()
    again = project.search(state=state, refused=(first.candidates[0].patched,))
    assert project.seen, "it was searched"
    assert again.candidates and again.candidates[0].patched != first.candidates[0].patched


def test_an_answer_for_another_file_is_none() -> None:
    one = plausible_of(1, Evidence())
    source = one.proposal.source
    other = PythonSource.read(source.path, source.data + b"# changed\n")
    again = revive(record(one), {source.path: source})
    assert again is not None and again.patched == one.patched
    assert revive(record(one), {source.path: other}) is None
