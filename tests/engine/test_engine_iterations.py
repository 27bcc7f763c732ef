"""What each iteration of a run took and gave is there to be asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from engine_kit import DONE, MAP, PLAN, RIGHT, drive, replaced, result, until

from codepilot.core.events import Usage
from codepilot.engine import Runtime
from codepilot.models import Reply
from ready import run as run_command


def show(runtime: Runtime, *arguments: str) -> str:
    environ = {**os.environ, "CODEPILOT_HOME": str(runtime.home.path), "COLUMNS": "160"}
    code, out, err = run_command(["show", *arguments], environ)
    assert code == 0, err
    return out


@pytest.mark.variants
def test_show_tells_each_iteration(runtime: Runtime, checkout: Path) -> None:
    wrong = replaced("width + height", "width - height")
    thought = result(root_cause="it subtracts", fix_hypothesis="multiply")
    costly = Reply(text=DONE, usage=Usage(turns=1, tokens=700, cost_usd=0.25, input_tokens=640, output_tokens=60))
    run, _ = drive(runtime, checkout, until(MAP, PLAN, wrong, costly, thought, RIGHT, DONE))
    found = json.loads(show(runtime, run.run_id, "--json"))
    before, first, second = found["iterations_detail"]
    assert found["iterations"] == 2
    assert [one["number"] for one in (before, first, second)] == [0, 1, 2]
    assert [stay["state"] for stay in before["states"]] == ["INIT", "MAP_REPO", "PLAN"]
    assert [stay["state"] for stay in first["states"]] == ["IMPLEMENT", "TEST", "REFLECT"]
    assert (before["tokens"], first["tokens"], first["cost_usd"]) == (0, 700, 0.25)
    assert (first["input_tokens"], first["output_tokens"]) == (640, 60)
    assert second["tokens"] == found["tokens"] - 700 > 0, "the reviewer was asked, and did not answer"
    assert first["files"] == second["files"] == ["shapes.py"]
    assert (first["tests_failed"], first["pass_rate"]) == (1, 0.0)
    assert (second["tests_failed"], second["pass_rate"]) == (0, 1.0)
    assert "test_area" in first["errors"][0]
    for one in found["iterations_detail"]:
        assert one["duration_sec"] > 0
    assert abs(sum(one["duration_sec"] for one in found["iterations_detail"]) - found["duration_sec"]) < 0.1

    lines = show(runtime, run.run_id).splitlines()
    table = next(number for number, line in enumerate(lines) if line.startswith("iterations"))
    assert "seconds" in lines[table + 1]
    assert [line.split()[0] for line in lines[table + 3 : table + 6]] == ["0", "1", "2"]
    assert "700" in lines[table + 4]
