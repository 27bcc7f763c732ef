"""Reading the sets: what the search is shown, what is held out, and what is reported of broken data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_kit import TWICE, write_quixbugs, write_tasks

from codepilot.bench.sets import load_set
from codepilot.core.failures import CodePilotError


def test_the_search_is_shown_the_check_and_never_the_solution(tmp_path: Path) -> None:
    (bug,) = load_set("humanevalfix", write_tasks(tmp_path, TWICE))
    shown = "\n".join(bug.files.values())
    assert "return x + 1" in shown and "assert twice(5) == 10" in shown
    assert "return x + x" not in shown and "twice(3)" not in shown
    assert bug.files["test_solution.py"].endswith("def test_twice():\n    check(twice)\n")
    assert bug.files["test_solution.py"].count("check(twice)") == 2
    assert bug.kind == "value misuse"


def test_a_quixbugs_checkout_holds_no_correct_program(tmp_path: Path) -> None:
    right, wrong = "def inc(n):\n    return n + 1\n", "def inc(n):\n    return n - 1\n"
    (bug,) = load_set("quixbugs", write_quixbugs(tmp_path, "inc", right, wrong, [[[1], 2], [[5], 6]]))
    assert not any("correct" in path for path in bug.files) and right not in bug.files.values()
    assert bug.held_out["examples"] == [[1], [5]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no task"),
        ("{not json\n", "line 1 is not JSON"),
        (json.dumps({key: text for key, text in TWICE.items() if key != "test"}) + "\n", "line 1 has no text 'test'"),
        (json.dumps({**TWICE, "test": "def check(:"}) + "\n", "line 1: its test is not Python"),
        ("[1]\n", "line 1 has no text"),
    ],
)
def test_a_broken_file_is_named_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "python.jsonl"
    file.write_text(text)
    with pytest.raises(CodePilotError, match=message) as caught:
        load_set("humanevalfix", tmp_path)
    assert str(file) in str(caught.value) and caught.value.failure.advice


def test_what_is_not_a_set_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CodePilotError, match="does not exist"):
        load_set("quixbugs", tmp_path / "nowhere")
    with pytest.raises(CodePilotError, match="not a checkout of QuixBugs"):
        load_set("quixbugs", tmp_path)
    with pytest.raises(CodePilotError, match="no set called 'other'"):
        load_set("other", tmp_path)
    write_quixbugs(tmp_path, "inc", "x", "y", [])
    (tmp_path / "json_testcases/inc.json").write_text("[1]\n")
    with pytest.raises(CodePilotError, match=r"inc.json: line 1 is not \[arguments, result\]"):
        load_set("quixbugs", tmp_path)
