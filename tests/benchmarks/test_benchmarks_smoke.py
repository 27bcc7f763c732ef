"""The benchmarks run: their own parts, in the smallest form, without anybody else's code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from levels import level

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    for name in ("bubblewrap", "landlock"):
        level(name)
    file = tmp_path_factory.mktemp("page") / "benchmarks.md"
    command = [sys.executable, "-m", "benchmarks.execution", "--size", "tiny", "--no-peers", "--write", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == file.read_text().strip()
    return file.read_text()


def rows(page: str, title: str) -> dict[str, list[str]]:
    """The rows of one table by their first cell."""
    section = page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    cells = ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    return {first: rest for first, *rest in cells}


@pytest.mark.slow
def test_what_the_page_says(page: str) -> None:
    """One test, so that the page is made once."""
    _every_own_part_is_measured(page)
    _a_peer_that_was_left_out_says_so(page)
    _our_restore_is_exact_and_what_git_misses_is_counted(page)
    _our_skill_applies_what_models_write(page)
    _no_place_of_this_machine_is_named(page)


def _every_own_part_is_measured(page: str) -> None:
    for title in ("Action round trip", "Compared with the kernel", "Start to first answer", "Memory of 6 actions"):
        table = rows(page, title)
        ours = [name for name in table if name.startswith(("CodePilot", "bwrap"))]
        assert len(ours) >= 5
        assert all(len(table[name]) == 6 for name in ours), table


def _a_peer_that_was_left_out_says_so(page: str) -> None:
    table = rows(page, "Action round trip")
    assert table["smolagents local"][2:] == ["*peers were left out*"]
    assert table["SWE-ReX local, bash"][2:] == ["*peers were left out*"]


def _our_restore_is_exact_and_what_git_misses_is_counted(page: str) -> None:
    table = rows(page, "Snapshot of 80 files")
    assert table["CodePilot"][5] == "yes"
    assert table["git, private index"][5].startswith("no: ")


def _our_skill_applies_what_models_write(page: str) -> None:
    for name, cells in rows(page, "apply_patch").items():
        if name.startswith("CodePilot"):
            assert not [cell for cell in cells if "refused" in cell or "wrong" in cell]


def _no_place_of_this_machine_is_named(page: str) -> None:
    for word in (str(ROOT), str(Path.home()), os.uname().nodename):
        assert len(word) < 2 or word not in page
