"""Test runs as the agent sees them: structured, and short when printed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codepilot.project import PLUGIN_DIR
from codepilot.project.runner_command import described

Load = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def bare_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs here need none of the plugins that are installed for this suite; reading them takes seconds."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


PYTEST = """\
import pytest

class TestIt:
    @pytest.mark.parametrize("x", [1, 2])
    def test_x(self, x):
        assert x == 1, "x is wrong"

def test_passes(): pass

@pytest.mark.skip(reason="later")
def test_later(): pass

@pytest.fixture
def broken(): raise RuntimeError("no fixture")

def test_needs(broken): pass
"""

UNITTEST = '''\
import unittest

class T(unittest.TestCase):
    def test_good(self): pass
    def test_bad(self):
        """Has words of its own."""
        self.assertEqual(1, 2)
    def test_error(self): raise KeyError("k")
    @unittest.skip("later")
    def test_later(self): pass
    @unittest.expectedFailure
    def test_known(self): self.fail()
'''


def test_pytest_is_judged_by_its_report(load: Load) -> None:
    k = load(runner="pytest")
    k["write_file"]("tests/test_one.py", PYTEST)
    done = k["run_tests"]()
    assert (done.exit_code, done.passed, done.skipped, done.ok) == (1, 2, 1, False)
    assert [(one.test, one.message) for one in done.failed] == [
        ("tests/test_one.py::TestIt::test_x[2]", "AssertionError: x is wrong\nassert 2 == 1")
    ]
    assert [one.test for one in done.errors] == ["tests/test_one.py::test_needs"]
    assert "no fixture" in done.errors[0].detail
    assert str(done).splitlines()[-1] == "2 passed, 1 failed, 1 errors, 1 skipped [exit code 1]"
    assert "FAILED tests/test_one.py::TestIt::test_x[2]: AssertionError: x is wrong assert 2 == 1" in str(done)
    again = k["run_tests"]([done.failed[0].test.replace("[2]", "[1]")])
    assert str(again) == "1 passed [exit code 0]"
    assert k["list_files"](pattern="*.xml") == []


def test_a_suite_that_cannot_be_collected_shows_why(load: Load) -> None:
    k = load(runner="pytest")
    k["write_file"]("test_two.py", "import nothing_like_it\n")
    done = k["run_tests"]()
    assert not done.ok
    assert "nothing_like_it" in str(done)
    assert "ERROR missing.py: there is no such test" in str(k["run_tests"](["missing.py"]))


def test_unittest_is_judged_by_its_report(load: Load) -> None:
    k = load(runner="unittest")
    k["write_file"]("test_three.py", UNITTEST)
    done = k["run_tests"](["test_three"])
    assert (done.exit_code, done.passed, done.skipped) == (1, 1, 2)
    assert [(one.test, one.message) for one in done.failed] == [
        ("test_three.T.test_bad", "AssertionError: 1 != 2"),
        ("test_three.T.test_error", "KeyError: 'k'"),
    ]
    assert done.errors == []


def test_a_run_at_its_timeout_is_reported(load: Load) -> None:
    k = load(runner="unittest")
    k["write_file"]("test_slow.py", "import time\ntime.sleep(60)\n")
    done = k["run_tests"](["test_slow"], timeout=0.5)
    assert done.timed_out
    assert str(done).endswith("no tests ran [stopped at its timeout]")


def test_names_are_a_list(load: Load) -> None:
    with pytest.raises(ValueError, match="takes a list of names"):
        load()["run_tests"]("tests/test_one.py")


RERUN = Path(__file__).parent / "reports"


def maven(monkeypatch: pytest.MonkeyPatch, exit_code: int, *reports: str) -> None:
    """A build that leaves reports as Surefire 3.2 wrote them, nested classes and second tries included."""
    Path("pom.xml").touch()
    target = Path("target/surefire-reports")
    copies = "\n".join(f"cp '{RERUN / name}' {target}/TEST-{name}" for name in reports)
    Path("mvn").write_text(
        f'#!/bin/sh\nmkdir -p {target}\n{copies}\nprintf "\\033[1m%s\\033[m\\n" "$*"\nexit {exit_code}\n'
    )
    Path("mvn").chmod(0o755)
    driver = [sys.executable, str(PLUGIN_DIR / "codepilot_jvm.py"), "maven", str(Path("mvn").absolute()), "/repository"]
    monkeypatch.setenv("CODEPILOT_TESTS", described(driver, ""))


def test_a_build_is_judged_by_the_driver_that_judges_it(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    maven(monkeypatch, 0, "surefire_inner.xml", "surefire_outer.xml")
    done = load(runner="maven")["run_tests"]()
    names = [one.test.rpartition("#")[2] for one in done.failed]
    assert (sorted(names), [one.test for one in done.errors]) == (
        ["deep", "each(int)[2]", "shaky", "wrong"],
        ["org.shop.PriceTest#breaks"],
    )
    assert (done.ok, done.passed, done.skipped) == (False, 2, 1)
    assert "FAILED org.shop.PriceTest#wrong" in str(done)
    assert not Path("target").exists()


def test_names_from_a_report_can_be_given_back(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    maven(monkeypatch, 0, "surefire_inner.xml")
    run_tests = load(runner="maven")["run_tests"]
    names = [one.test for one in run_tests().failed]
    again = run_tests([name for name in names if "each" in name or "deep" in name])
    assert sorted(one.test.rpartition(".")[2] for one in again.failed) == [
        "PriceTest#each(int)[2]",
        "PriceTest$Inner#deep",
    ]
    assert "-Dtest=" in again.tail
    assert "org.shop.PriceTest#each" in again.tail


def test_a_build_that_ran_nothing_is_not_ok(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    maven(monkeypatch, 0)
    run_tests = load(runner="maven")["run_tests"]
    done = run_tests(["PriceTest#no_such_test"])
    assert (done.ok, [str(one) for one in done.errors]) == (False, ["PriceTest#no_such_test: there is no such test"])
    assert not run_tests().ok


def test_a_build_without_its_driver_says_so(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODEPILOT_TESTS", raising=False)
    with pytest.raises(RuntimeError, match="CODEPILOT_TESTS is not set"):
        load(runner="npm")["run_tests"]()


def test_a_unittest_run_without_tests_is_not_ok(load: Load) -> None:
    k = load(runner="unittest")
    k["write_file"]("test_none.py", "")
    assert not k["run_tests"](["test_none"]).ok
