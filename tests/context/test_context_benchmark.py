"""The benchmark of the map runs, in its smallest form and without anybody else's code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_benchmark_writes_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    command = [sys.executable, "-m", "benchmarks.context", "--size", "tiny", "--no-peers", "--write", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    for reported in ("map, cold", "map, warm", "context of 4000 tokens", "Python's ast"):
        assert reported in text
