"""What a repair is called: whole runs of the engine on tests that tell much, and on tests that tell little."""

from __future__ import annotations

from pathlib import Path

import pytest

from codepilot.bench.attempt import Budgeted, attempt
from codepilot.bench.bugs import Bug
from codepilot.bench.checkout import lay_down

pytestmark = pytest.mark.timeout(240)

GRADE = "def grade(n):\n    if n > 80:\n        return 'A'\n    if n >= 50:\n        return 'C'\n    return 'F'\n"


def _verdict(folder: Path, checks: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str | None, str]:
    monkeypatch.setenv("CODEPILOT_HOME", str(folder / "home"))
    tests = f"from shop import *\n\n\ndef test_it():\n{checks}"
    files = {"shop.py": GRADE, "test_shop.py": tests}
    bug = Bug("made up", "made up", ("test_shop.py::test_it",), files)
    (folder / "checkout").mkdir()
    checkout = lay_down(folder / "checkout", files)
    found = attempt(bug, checkout, folder / "home", Budgeted(seconds=6.0))
    assert found.status == "DONE", found.reason
    return found.verdict, found.proof


def test_tests_that_hold_the_change_on_all_sides_confirm_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = "".join(
        f"    assert grade({points}) == {mark!r}\n"
        for points, mark in ((0, "F"), (49, "F"), (50, "C"), (79, "C"), (80, "A"), (81, "A"), (100, "A"))
    )
    verdict, proof = _verdict(tmp_path, checks, monkeypatch)
    assert verdict == "confirmed", proof


def test_tests_that_assert_little_leave_the_change_plausible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _verdict(tmp_path, "    assert grade(80) == 'A'\n", monkeypatch)[0] == "plausible"
