"""What a sweep must bear: a judge that fails, another sweep in its place, an engine that changed in another room."""

from __future__ import annotations

import fcntl
from dataclasses import replace
from pathlib import Path

import pytest
from bench_kit import TWICE, write_tasks

import codepilot
from codepilot.bench.bugs import Bug, Repair
from codepilot.bench.child import judged_offers
from codepilot.bench.results import Result, engine_version
from codepilot.bench.sweep import LOCK, BenchSpec, run_sweep
from codepilot.core.failures import CodePilotError


def test_a_repair_that_cannot_be_judged_is_still_found(tmp_path: Path) -> None:
    bug = Bug("odd", "made up", ("t",), held_out={})
    found = judged_offers(bug, [Repair({"m.py": ""}, "")] * 2, tmp_path, tmp_path, None)
    assert [one.correct for one in found] == [False, False]
    assert "could not be judged" in found[0].reason


def test_one_directory_is_for_one_sweep(tmp_path: Path) -> None:
    data, out = write_tasks(tmp_path / "data", TWICE), tmp_path / "out"
    out.mkdir()
    with (out / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(CodePilotError, match="Another sweep"):
            run_sweep(BenchSpec("humanevalfix", data, out, fresh=True))


@pytest.mark.parametrize(("room", "searched"), [("repair", True), ("verify", False), ("agents", False)])
def test_a_verdict_is_of_the_rooms_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: str, searched: bool
) -> None:
    monkeypatch.setattr(codepilot, "__file__", str(tmp_path / "__init__.py"))
    before = [engine_version(through) for through in ("search", "fix")]
    (tmp_path / room).mkdir()
    (tmp_path / room / "new.py").write_text("x = 1\n")
    after = [engine_version(through) for through in ("search", "fix")]
    assert [one != other for one, other in zip(before, after, strict=True)] == [searched, True]


def test_what_another_interpreter_gave_is_not_taken_over() -> None:
    row = Result("s", "b", "k", "e", 1.0)
    assert row.key != replace(row, python="/other/python").key
