"""The benchmark of the agent loop runs, in its smallest form."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_cost_of_a_turn_is_measured_and_split() -> None:
    command = [sys.executable, "-m", "benchmarks.turns", "--files", "5", "--turns", "8"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| 5 files")]
    overhead, *parts, command_ms = [float(cell.split(" ")[1]) for cell in row.strip("|").split("|")[1:]]
    assert overhead > 0
    assert command_ms > 0
    assert len(parts) == 5
    assert "| `import codepilot` | < 100 |" in done.stdout
