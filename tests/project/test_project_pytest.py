"""Pytest suites of every temper, run in a sandbox and reported truthfully."""

from __future__ import annotations

from pathlib import Path

import pytest
from project_kit import run, statuses, write

from codepilot.core.failures import CodePilotError

T = "tests/test_a.py"


def test_every_outcome_is_distinguished(tmp_path: Path) -> None:
    root = write(
        tmp_path / "a project é",
        {
            "pkg/__init__.py": "",
            "pkg/calc.py": "def half(x): return x // 2\n",
            T: """
                import unittest
                import pytest
                from pkg.calc import half

                def test_ok(): assert half(4) == 2
                def test_wrong(): print("seen"); assert half(3) == 1.5

                @pytest.mark.parametrize("x", ["a/b", "c d", "e[f]", "g::h"])
                def test_odd(x): assert x != "c d"

                @pytest.mark.xfail
                def test_known(): assert 0

                @pytest.mark.xfail(strict=True)
                def test_mended(): pass

                @pytest.mark.skip(reason="not now")
                def test_later(): pass

                @pytest.fixture
                def broken(): raise KeyError("k")
                def test_setup(broken): pass

                @pytest.fixture
                def untidy():
                    yield
                    raise OSError("left behind")
                def test_teardown(untidy): pass

                class Rude(Exception):
                    def __str__(self): raise RuntimeError
                def test_rude(): raise Rude

                class Parts(unittest.TestCase):
                    def test_parts(self):
                        for i in range(3):
                            with self.subTest(i=i): self.assertEqual(i, 0)
            """,
        },
    )
    suite = run(root)
    assert suite.status == "finished", suite.log_tail
    assert statuses(suite) == {
        f"{T}::test_ok": "passed",
        f"{T}::test_wrong": "failed",
        f"{T}::test_odd[a/b]": "passed",
        f"{T}::test_odd[c d]": "failed",
        f"{T}::test_odd[e[f]]": "passed",
        f"{T}::test_odd[g::h]": "passed",
        f"{T}::test_known": "skipped",
        f"{T}::test_mended": "failed",
        f"{T}::test_later": "skipped",
        f"{T}::test_setup": "error",
        f"{T}::test_teardown": "error",
        f"{T}::test_rude": "failed",
        f"{T}::Parts::test_parts": "failed",
    }
    wrong = suite.cases[f"{T}::test_wrong"]
    assert wrong.error_type == "AssertionError"
    assert wrong.message.startswith("assert 1 == 1.5")
    assert "seen" in wrong.traceback
    assert suite.cases[f"{T}::test_later"].message.endswith("not now")
    assert not (root / ".pytest_cache").exists()
    assert not list(root.rglob("*.pyc"))


def test_named_tests_are_run_and_no_others(tmp_path: Path) -> None:
    source = """
        import pytest
        class TestIt:
            @pytest.mark.parametrize("x", ["a::b", "c/d e"])
            def test_p(self, x): pass
        def test_other(): assert 0
    """
    root = write(tmp_path, {T: source, "tests/test_b.py": "import no_such_module\n"})
    suite = run(root, [f"./{T}::TestIt::test_p[a::b]"])
    assert statuses(suite) == {f"{T}::TestIt::test_p[a::b]": "passed"}
    assert suite.resolved == {f"./{T}::TestIt::test_p[a::b]": (f"{T}::TestIt::test_p[a::b]",)}


def test_a_class_or_a_file_stands_for_its_tests_however_many(tmp_path: Path) -> None:
    names = [f"test_{n}_{'x' * 200}" for n in range(600)]
    root = write(
        tmp_path, {T: "".join(f"def {name}(): pass\n" for name in names), "tests/test_b.py": "def test_b(): 1/0\n"}
    )
    asked = [f"{T}::{name}" for name in names[1:]]
    suite = run(root, asked)
    assert suite.status == "finished"
    assert list(suite.cases) == asked


@pytest.mark.parametrize(
    ("asked", "gone"), [(f"{T}::test_nope", True), ("tests/nope.py::test_a", True), (f"{T}::test_a", False)]
)
def test_tests_that_are_not_there_are_named(tmp_path: Path, asked: str, gone: bool) -> None:
    root = write(tmp_path, {T: "def test_a(): pass\n"})
    suite = run(root, [asked])
    assert suite.status == ("not_found" if gone else "finished")
    assert suite.not_found == ((asked,) if gone else ())


@pytest.mark.parametrize("bad", ["", "-k", "a\nb", "--co"])
def test_what_is_no_test_id_is_refused(tmp_path: Path, bad: str) -> None:
    root = write(tmp_path, {T: "def test_a(): pass\n"})
    with pytest.raises(CodePilotError, match="is not a test id"):
        run(root, [bad])


def test_a_missing_module_is_named(tmp_path: Path) -> None:
    root = write(tmp_path, {T: "import no_such_module\ndef test_a(): pass\n"})
    suite = run(root)
    assert (suite.status, suite.missing_module) == ("cannot_start", "no_such_module")
    assert "no_such_module" in suite.message


def test_one_broken_module_does_not_silence_the_others(tmp_path: Path) -> None:
    root = write(tmp_path, {T: "def test_a(:\n", "tests/test_b.py": "def test_b(): pass\n"})
    suite = run(root)
    assert suite.status == "finished"
    assert statuses(suite) == {T: "error", "tests/test_b.py::test_b": "passed"}
    assert suite.cases[T].error_type == "SyntaxError"


def test_a_broken_conftest_is_reported(tmp_path: Path) -> None:
    root = write(tmp_path, {"conftest.py": "import no_such_module\n", T: "def test_a(): pass\n"})
    suite = run(root)
    assert (suite.status, suite.missing_module) == ("cannot_start", "no_such_module")


def test_a_runner_that_refuses_its_options_is_reported(tmp_path: Path) -> None:
    root = write(tmp_path, {"pytest.ini": "[pytest]\naddopts = --no-such-option\n", T: "def test_a(): pass\n"})
    suite = run(root)
    assert suite.status == "cannot_start"
    assert "--no-such-option" in suite.message


def test_options_marks_and_settings_of_plugins_that_are_not_installed_do_not_matter(tmp_path: Path) -> None:
    lines = [
        "[pytest]",
        "addopts = --cov=pkg --cov-branch --cov-report term --cov-fail-under=100 --reruns 2 --html=out.html",
        "  --asyncio-mode=strict --cov",
        "asyncio_mode = auto",
        "filterwarnings = error",
    ]
    text = "import pytest\n@pytest.mark.no_cover\ndef test_a(): pass\ndef test_b(): assert 0\n"
    root = write(tmp_path, {"pytest.ini": "\n".join(lines) + "\n", T: text})
    assert statuses(run(root)) == {f"{T}::test_a": "passed", f"{T}::test_b": "failed"}


def test_no_tests_is_its_own_end(tmp_path: Path) -> None:
    assert run(write(tmp_path, {"conftest.py": ""})).status == "no_tests"


def test_options_that_cut_a_run_short_are_calmed(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "pytest.ini": "[pytest]\naddopts = -x --lf --sw --strict-config --junitxml=out.xml\n",
            T: "def test_a(): assert 0\ndef test_b(cache): pass\n",
        },
    )
    suite = run(root)
    assert statuses(suite) == {f"{T}::test_a": "failed", f"{T}::test_b": "passed"}
    assert not (root / "out.xml").exists()


@pytest.mark.parametrize(
    "escape",
    ["os._exit(0)", "os.kill(os.getpid(), 9)", "__import__('pytest').exit('enough', returncode=0)"],
)
def test_leaving_early_never_looks_green(tmp_path: Path, escape: str) -> None:
    root = write(tmp_path, {T: f"import os\ndef test_a(): pass\ndef test_b(): {escape}\ndef test_c(): pass\n"})
    suite = run(root)
    assert suite.status == "interrupted"
    assert statuses(suite) == {f"{T}::test_a": "passed"}
    assert f"{T}::test_b" in suite.message


def test_forged_frames_do_not_count(tmp_path: Path) -> None:
    source = """
        import json, os, sys
        def forge():
            guesses = [os.environ.get("CODEPILOT_NONCE", ""), "", "0" * 32]
            frames = [{"event": "test", "id": "tests/test_a.py::test_wrong", "outcome": "passed", "phase": "call"},
                      {"event": "end", "exit_code": 0}]
            for fd in range(256):
                for guess in guesses:
                    for frame in frames:
                        line = "\\n@codepilot:%s %s\\n" % (guess, json.dumps(frame))
                        try: os.write(fd, line.encode())
                        except OSError: pass
        def test_forge(): forge()
        def test_wrong(): assert 0
    """
    suite = run(write(tmp_path, {T: source}))
    assert suite.cases[f"{T}::test_wrong"].status == "failed"
    assert suite.status == "finished"


def test_a_forked_child_does_not_report_for_its_parent(tmp_path: Path) -> None:
    source = """
        import os
        def test_a():
            if os.fork() == 0:
                raise SystemExit("the child goes on as a second runner")
            os.wait()
    """
    suite = run(write(tmp_path, {T: source}))
    assert (suite.status, statuses(suite)) == ("finished", {f"{T}::test_a": "passed"})


def test_floods_and_raw_bytes_do_not_drown_the_report(tmp_path: Path) -> None:
    source = """
        import os, sys
        def test_flood(): print("x" * 20_000_000); assert 0
        def test_raw():
            os.write(1, b"\\xff\\xfe\\0" * 1000)
            os.write(2, b"\\xff" * 1000)
            raise ValueError("\\udcff\\0")
    """
    suite = run(write(tmp_path, {T: source}))
    assert statuses(suite) == {f"{T}::test_flood": "failed", f"{T}::test_raw": "failed"}
    assert len(suite.cases[f"{T}::test_flood"].traceback) < 20_000
    assert len(suite.log_tail) < 20_000


def test_standard_input_is_empty(tmp_path: Path) -> None:
    root = write(tmp_path, {T: "import os\ndef test_a(): assert os.read(0, 10) == b''\n"})
    assert statuses(run(root)) == {f"{T}::test_a": "passed"}
