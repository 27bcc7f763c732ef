"""The benchmarks of the durable engine run: their own parts, in the smallest form, without anybody else's code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from servers import quick_place

ROOT = Path(__file__).resolve().parents[2]
STORES = ("PostgreSQL", "SQLite FULL")


@pytest.fixture
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("page") / "benchmarks.md"
    command = [sys.executable, "-m", "benchmarks.engine", "--size", "tiny", "--no-peers", "--write", str(file)]
    with quick_place() as place:
        environ = {**os.environ, "TMPDIR": str(place)}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == file.read_text().strip()
    return file.read_text()


def _rows(page: str, title: str) -> list[tuple[str, list[str]]]:
    """The rows of one table, each by its first cell."""
    section = page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    cells = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    return [(first, rest) for first, *rest in cells]


def rows(page: str, title: str) -> dict[tuple[str, str], list[str]]:
    """The rows of one table by their first two cells."""
    return {(first, second): rest for first, (second, *rest) in _rows(page, title)}


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


@pytest.mark.slow
def test_what_the_page_says(page: str) -> None:
    """One test, so that the page is made once."""
    for store in STORES:
        _every_own_part_is_measured(page, store)
    _a_peer_that_was_left_out_says_so(page)
    _every_goal_has_its_row(page)
    _no_place_of_this_machine_is_named(page)


def _every_own_part_is_measured(page: str, store: str) -> None:
    rates = [number(cell) for cell in rows(page, "Steps per second")["CodePilot", store]]
    floors = [number(cell) for cell in rows(page, "Steps per second")["Bare inserts", store]]
    assert len(rates) == len(floors) == 1 and min(rates + floors) > 0
    middles = [number(cell.split(" / ")[0]) for cell in rows(page, "Enqueue to start")["CodePilot", store]]
    assert len(middles) == 3 and min(middles) > 0
    assert number(rows(page, "A dead worker's step")["CodePilot", store][0]) > 0
    asked = next(row for first, row in _rows(page, "A cancel, a pause") if first == store)
    assert len(asked) == 3 and all(number(cell.split(" / ")[0]) > 0 for cell in asked)
    answers = next(row for first, row in _rows(page, "A large store") if first == store)
    assert len(answers) == 6 and all(number(cell.split(" / ")[0]) > 0 for cell in answers)


def _a_peer_that_was_left_out_says_so(page: str) -> None:
    for title in ("Steps per second", "Enqueue to start", "A dead worker's step"):
        assert rows(page, title)["DBOS", "PostgreSQL"] == ["*peers were left out*"]
        assert rows(page, title)["procrastinate", "PostgreSQL"] == ["*peers were left out*"]


def _every_goal_has_its_row(page: str) -> None:
    goals = page.split("## Goals\n", 1)[1].split("\n## ", 1)[0]
    for store in STORES:
        for what in ("cancel", "pause"):
            assert goals.count(f"| a {what} from another process on {store}, the longest, s | < 1 |") == 1
    assert goals.count("as a multiple of the better peer's | ≥ 1 | not measured | **no** |") == 1
    assert len([line for line in goals.splitlines() if line.startswith("| ")][2:]) == 17


def _no_place_of_this_machine_is_named(page: str) -> None:
    for word in (str(ROOT), str(Path.home()), os.uname().nodename, "/tmp/"):
        assert len(word) < 2 or word not in page
