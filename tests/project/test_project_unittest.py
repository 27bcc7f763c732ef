"""Unittest suites need nothing installed, and are reported like any other."""

from __future__ import annotations

from pathlib import Path

from project_kit import run, statuses, write

SUITE = """
    import os, unittest

    class Sums(unittest.TestCase):
        def test_ok(self): print("fine")
        def test_wrong(self):
            print("seen", flush=True)
            self.assertEqual(1, 2)
        def test_parts(self):
            for i in range(3):
                with self.subTest(i=i): self.assertTrue(i)
        @unittest.skip("not now")
        def test_later(self): pass
        @unittest.expectedFailure
        def test_known(self): assert 0
        @unittest.expectedFailure
        def test_mended(self): pass
        def test_leaves(self): raise SystemExit(0)

    class Unready(unittest.TestCase):
        @classmethod
        def setUpClass(cls): raise RuntimeError("no server")
        def test_1(self): pass
        def test_2(self): pass

    class Untidy(unittest.TestCase):
        @classmethod
        def tearDownClass(cls): raise RuntimeError("left behind")
        def test_1(self): pass
"""


def test_every_outcome_is_distinguished(tmp_path: Path) -> None:
    suite = run(write(tmp_path / "sp ace", {"tests/test_sums.py": SUITE}), runner="unittest")
    assert suite.status == "finished"
    assert statuses(suite) == {
        "tests.test_sums.Sums.test_ok": "passed",
        "tests.test_sums.Sums.test_wrong": "failed",
        "tests.test_sums.Sums.test_parts": "failed",
        "tests.test_sums.Sums.test_later": "skipped",
        "tests.test_sums.Sums.test_known": "skipped",
        "tests.test_sums.Sums.test_mended": "failed",
        "tests.test_sums.Sums.test_leaves": "failed",
        "tests.test_sums.Unready.test_1": "error",
        "tests.test_sums.Unready.test_2": "error",
        "tests.test_sums.Untidy.test_1": "passed",
        "tests.test_sums.Untidy": "error",
    }
    wrong = suite.cases["tests.test_sums.Sums.test_wrong"]
    assert (wrong.error_type, wrong.message) == ("AssertionError", "1 != 2")
    assert "seen" in wrong.traceback


def test_ids_of_either_runner_are_taken(tmp_path: Path) -> None:
    root = write(tmp_path, {"tests/__init__.py": "", "tests/test_sums.py": SUITE, "tests/test_bad.py": "import gone\n"})
    asked = ["tests/test_sums.py::Sums::test_ok", "tests.test_sums.Sums.test_later", "test_sums.Sums.test_known"]
    suite = run(root, asked, runner="unittest")
    assert suite.status == "finished"
    assert suite.resolved == {
        asked[0]: ("tests.test_sums.Sums.test_ok",),
        asked[1]: ("tests.test_sums.Sums.test_later",),
        asked[2]: ("tests.test_sums.Sums.test_known",),
    }


def test_tests_that_are_not_there_are_named(tmp_path: Path) -> None:
    root = write(tmp_path, {"test_sums.py": SUITE})
    suite = run(root, ["test_sums.Sums.test_ok", "test_sums.Sums.test_nope"], runner="unittest")
    assert (suite.status, suite.not_found) == ("not_found", ("test_sums.Sums.test_nope",))


def test_layouts_are_found(tmp_path: Path) -> None:
    case = "import unittest\n{}\nclass A(unittest.TestCase):\n    def test_a(self): pass\n"
    root = write(
        tmp_path,
        {
            "src/pack/__init__.py": "x = 1\n",
            "src/pack/tests/__init__.py": "",
            "src/pack/tests/test_inner.py": case.format("from pack import x"),
            "tests/unit-tests/test_odd_folder.py": case.format("import neighbour"),
            "tests/unit-tests/neighbour.py": "",
            "test_top.py": case.format(""),
            "examples/test_not_ours.py": "raise RuntimeError\n",
        },
    )
    suite = run(root, runner="unittest")
    assert statuses(suite) == {
        "test_top.A.test_a": "passed",
        "pack.tests.test_inner.A.test_a": "passed",
        "test_odd_folder.A.test_a": "passed",
    }


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    suite = run(
        write(tmp_path, {"tests/test_a.py": "import unittest, no_such_module\nunittest.TestCase\n"}), runner="unittest"
    )
    assert (suite.status, suite.missing_module) == ("cannot_start", "no_such_module")


def test_leaving_early_never_looks_green(tmp_path: Path) -> None:
    source = """
        import os, unittest
        class A(unittest.TestCase):
            def test_1(self): pass
            def test_2(self): os._exit(0)
    """
    suite = run(write(tmp_path, {"test_a.py": source}), runner="unittest")
    assert suite.status == "interrupted"
    assert "test_a.A.test_2" in suite.message


def test_a_hanging_test_is_named(tmp_path: Path) -> None:
    source = """
        import time, unittest
        class A(unittest.TestCase):
            def test_1(self): pass
            def test_2(self): time.sleep(600)
    """
    suite = run(write(tmp_path, {"test_a.py": source}), runner="unittest", timeout_sec=6)
    assert (suite.status, statuses(suite)) == ("timeout", {"test_a.A.test_1": "passed"})
    assert "test_a.A.test_2" in suite.message


def test_floods_and_raw_bytes_do_not_drown_the_report(tmp_path: Path) -> None:
    source = """
        import os, unittest
        class A(unittest.TestCase):
            def test_flood(self): print("x" * 20_000_000)
            def test_raw(self): os.write(1, b"\\xff" * 1000); self.fail("no")
    """
    suite = run(write(tmp_path, {"test_a.py": source}), runner="unittest")
    assert statuses(suite) == {"test_a.A.test_flood": "passed", "test_a.A.test_raw": "failed"}
    assert len(suite.log_tail) < 20_000


def test_no_tests_and_skipped_modules(tmp_path: Path) -> None:
    assert run(write(tmp_path / "none", {"a.py": ""}), runner="unittest").status == "no_tests"
    skipped = run(
        write(tmp_path / "all", {"test_a.py": "import unittest\nraise unittest.SkipTest('no')\n"}), runner="unittest"
    )
    assert (skipped.status, statuses(skipped)) == ("finished", {"test_a": "skipped"})
