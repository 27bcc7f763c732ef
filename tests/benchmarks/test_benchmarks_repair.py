"""The benchmark of the repair search runs, in a small form: many modules and tests do not hide one bug."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_bug_in_a_package_of_many_modules_is_repaired_within_bounds() -> None:
    options = ["--only", "package", "--modules", "30", "--tests", "60", "--seconds", "5"]
    command = [sys.executable, "-m", "benchmarks.repair", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("| 30 modules, 60 tests | ")]
    _, repaired, _, _, tried, _, _, peak = (cell.strip() for cell in row.strip("|").split("|"))
    assert repaired.endswith(" s"), row
    assert int(tried.replace(",", "")) > 50
    assert 0 < float(peak.replace(",", "")) < 1024
