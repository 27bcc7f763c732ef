"""Which tests fail before the change: short names, tests whose files cannot be imported, and what is refused."""

from __future__ import annotations

import pytest
from verify_kit import ADD, BASE, MENDED, MUL, TESTS, LabMaker

from codepilot.core.failures import FailureKind

NEW = "tests/test_new.py"
UNWRITTEN = """from calc import cube


def test_cube():
    assert cube(2) == 8


class TestCube:
    def test_of_zero(self):
        assert cube(0) == 0
"""
CUBE = "\n\ndef cube(a):\n    return a * a * a\n"


@pytest.mark.variants
def test_a_short_name_is_enough_where_it_is_unique(make_lab: LabMaker) -> None:
    more = TESTS + "\n\nclass TestMore:\n    def test_add(self):\n        assert add(1, 2) == 3\n"
    lab = make_lab({**BASE, "tests/test_more.py": more, NEW: UNWRITTEN})
    assert lab.baseline("TestMore::test_add").targets == ("tests/test_more.py::TestMore::test_add",)
    assert lab.baseline("TestMore.test_add").targets == ("tests/test_more.py::TestMore::test_add",)
    assert lab.baseline("TestCube::test_of_zero").targets == (f"{NEW}::TestCube::test_of_zero",)
    several = lab.refused("test_add")
    assert several.kind is FailureKind.TEST_NOT_FOUND
    assert "3 tests are named test_add" in several.failure.message and ADD in several.failure.message
    assert "--test tests/" in several.failure.advice
    one_fails = "from calc import add\n\n\ndef test_add():\n    assert add(0, 0) == 0\n"
    lab = make_lab({**BASE, "tests/test_zero.py": one_fails})
    assert lab.baseline("test_add").targets == (ADD,)
    missing = lab.refused("test_ad")
    assert missing.kind is FailureKind.TEST_NOT_FOUND and "::test_add" in missing.failure.advice


def test_tests_for_code_that_does_not_exist_are_failing_tests(make_lab: LabMaker) -> None:
    """Named or not, with tests that can be loaded or none; other tests of the file were red before."""
    lab = make_lab({"calc.py": MENDED, "tests/test_calc.py": TESTS, NEW: UNWRITTEN})
    named = lab.baseline(f"{NEW}::test_cube")
    assert (named.targets, named.suite_kind) == ((f"{NEW}::test_cube",), "full")
    assert named.summary.errors == (NEW, f"{NEW}::test_cube")
    first = lab.baseline()
    assert first.targets == (NEW,)
    files = {**BASE, "calc.py": MENDED + CUBE.replace("return a * a * a", "return 8"), NEW: UNWRITTEN}
    half = lab.gate(named, files)
    assert half.passed and half.suite == "full"
    assert not lab.gate(first, files).passed
    assert lab.gate(first, {**files, "calc.py": MENDED + CUBE}).passed


@pytest.mark.variants
def test_nothing_but_tests_for_a_module_to_be_written(make_lab: LabMaker) -> None:
    lab = make_lab(
        {"shop/__init__.py": "", "tests/test_new.py": "from shop.basket import total\n\ndef test_a(): pass\n"}
    )
    assert lab.baseline().targets == (NEW,)
    whole = lab.baseline("test_a")
    assert (whole.targets, whole.suite_kind) == ((f"{NEW}::test_a",), "full")
    assert lab.gate(
        whole, {"shop/basket.py": "total = sum\n", NEW: "from shop.basket import total\n\ndef test_a(): pass\n"}
    ).passed


@pytest.mark.variants
@pytest.mark.parametrize("named", [(), (ADD,)])
def test_a_file_that_cannot_be_loaded_does_not_count_against_a_change(
    make_lab: LabMaker, named: tuple[str, ...]
) -> None:
    """An environment that lacks a module, and a file of tests that is no Python."""
    broken = {"tests/test_a.py": "import numpy_\n", "tests/test_z.py": "def test_z(:\n", "setup.cfg": ""}
    files = {**BASE, **broken, "requirements.txt": "numpy-\n"}
    lab = make_lab(files)
    baseline = lab.baseline(*named)
    assert baseline.targets == (ADD,)
    result = lab.gate(baseline, {**files, "calc.py": MENDED})
    assert result.passed and result.suite == "full" and not result.regressions


def test_a_missing_module_is_explained_and_no_package_is_guessed(make_lab: LabMaker) -> None:
    imports = "import no_such_module\n"
    lab = make_lab({**BASE, "tests/test_calc.py": imports + TESTS, "tests/test_more.py": imports})
    for problem in (lab.refused(), lab.refused(MUL)):
        assert problem.kind is FailureKind.SUITE_CANNOT_START
        assert "'no_such_module'" in problem.failure.message and "tests/test_calc.py" in problem.failure.message
        assert "not in the repository, and no file of the project declares it" in problem.failure.message
        assert "pip install" not in problem.failure.advice
    assert lab.baseline(MUL, writes=True).targets == (MUL,)


def test_a_declared_module_that_is_not_installed_is_the_environments(make_lab: LabMaker) -> None:
    declared = '[project]\nname = "x"\n[project.optional-dependencies]\ntest = ["No.Such_Module>=1"]\n'
    lab = make_lab({**BASE, "tests/test_calc.py": "import no_such_module\n" + TESTS, "pyproject.toml": declared})
    problem = lab.refused()
    assert "declares No.Such_Module in pyproject.toml, [project.optional-dependencies] test" in problem.failure.message
    assert "Run `codepilot prepare`" in problem.failure.advice
    assert lab.refused(MUL).kind is FailureKind.SUITE_CANNOT_START


@pytest.mark.variants
def test_async_tests_without_a_plugin_are_the_environments(make_lab: LabMaker) -> None:
    later = "async def test_later():\n    assert 1 == 1\n"
    lab = make_lab({**BASE, "tests/test_later.py": later, "requirements-dev.txt": "pytest-asyncio\n"})
    problem = lab.refused("tests/test_later.py")
    assert problem.kind is FailureKind.ENVIRONMENT_MISSING
    assert "tests/test_later.py::test_later is an async test" in problem.failure.message
    assert "declares pytest-asyncio in requirements-dev.txt" in problem.failure.message
    assert "Run `codepilot prepare`" in problem.failure.advice
    assert lab.baseline().targets == (ADD,)
    alone = make_lab({**BASE, "calc.py": MENDED, "tests/test_later.py": later, "requirements-dev.txt": ""}).refused()
    assert alone.kind is FailureKind.ENVIRONMENT_MISSING and "no file of the project declares" in alone.failure.message
    assert "pip install" not in alone.failure.advice


@pytest.mark.variants
def test_tests_without_the_plugin_of_their_fixture_come_last(make_lab: LabMaker) -> None:
    fast = "def test_fast(benchmark):\n    benchmark(len, '')\n"
    pyproject = '[dependency-groups]\nbench = ["pytest-codspeed"]\n'
    lab = make_lab({**BASE, "tests/test_a.py": fast, "pyproject.toml": pyproject})
    assert lab.baseline().targets == (ADD,)
    alone = make_lab({**BASE, "calc.py": MENDED, "tests/test_a.py": fast, "pyproject.toml": pyproject})
    problem = alone.refused()
    assert problem.kind is FailureKind.ENVIRONMENT_MISSING
    assert "tests/test_a.py::test_fast needs the fixture `benchmark`" in problem.failure.message
    assert "declares pytest-codspeed in pyproject.toml, [dependency-groups] bench" in problem.failure.message
    assert alone.baseline(writes=True).targets == ("tests/test_a.py::test_fast",)


@pytest.mark.variants
def test_tests_without_their_server_are_not_the_first_to_be_repaired(make_lab: LabMaker) -> None:
    served = "import pytest\n\n\n@pytest.fixture\ndef db():\n    raise ConnectionRefusedError('port 5432')\n\n\n"
    served += "def test_a(db): pass\n\n\ndef test_b(db): pass\n"
    lab = make_lab({**BASE, "tests/test_a.py": served})
    assert lab.baseline().targets == (ADD,)
    alone = make_lab({**BASE, "calc.py": MENDED, "tests/test_a.py": served}).refused()
    assert alone.kind is FailureKind.ENVIRONMENT_MISSING
    assert "tests/test_a.py::test_a and 1 more fail for lack of a server" in alone.failure.message
    assert "port 5432" in alone.failure.message and "[project] env" in alone.failure.advice


def test_tests_that_start_a_missing_program_come_last(make_lab: LabMaker) -> None:
    starting = "import subprocess\n\n\ndef test_a():\n    subprocess.run(['no-such-program'])\n"
    assert make_lab({**BASE, "tests/test_a.py": starting}).baseline().targets == (ADD,)
    lab = make_lab({**BASE, "calc.py": MENDED, "tests/test_a.py": starting})
    assert lab.baseline().targets == ("tests/test_a.py::test_a",)


def test_tests_that_set_a_missing_locale_are_not_repaired(make_lab: LabMaker) -> None:
    setting = "import locale\n\n\ndef test_a():\n    locale.setlocale(locale.LC_ALL, 'xx_XX')\n"
    assert make_lab({**BASE, "tests/test_a.py": setting}).baseline().targets == (ADD,)
    alone = make_lab({**BASE, "calc.py": MENDED, "tests/test_a.py": setting}).refused()
    assert alone.kind is FailureKind.ENVIRONMENT_MISSING
    assert "tests/test_a.py::test_a sets a locale" in alone.failure.message and "locales" in alone.failure.advice


@pytest.mark.variants
def test_a_wrong_statement_of_sql_is_a_bug_and_no_server_is_missing(make_lab: LabMaker) -> None:
    wrong = "import sqlite3\n\n\ndef test_a():\n    sqlite3.connect(':memory:').execute('select x from shop')\n"
    lab = make_lab({**BASE, "calc.py": MENDED, "tests/test_a.py": wrong})
    assert lab.baseline().targets == ("tests/test_a.py::test_a",)


def test_a_syntax_error_of_the_code_is_a_failure_and_names_its_line(make_lab: LabMaker) -> None:
    lab = make_lab({**BASE, "calc.py": "x = 1\ndef add(a, b)\n    return a + b\n"})
    found = lab.baseline()
    assert found.targets == ("tests/test_calc.py",)
    assert "calc.py, line 2" in found.suite.cases["tests/test_calc.py"].message
    conftest = make_lab({"conftest.py": "def f(:\n"}).refused()
    assert conftest.kind is FailureKind.SUITE_CANNOT_START and "conftest.py, line 1" in conftest.failure.message
    assert f"`{lab.project.interpreter.executable} -m pytest`" in conftest.failure.advice


@pytest.mark.variants
def test_only_failures_within_what_is_named_are_taken(make_lab: LabMaker) -> None:
    lab = make_lab({**BASE, "tests/unit/test_b.py": "def test_b():\n    assert 0\n"})
    assert lab.baseline(within=("tests/unit",)).targets == ("tests/unit/test_b.py::test_b",)
    assert lab.baseline(within=("tests/test_calc.py",)).targets == (ADD,)
    assert "no test in calc.py" in lab.refused(within=("calc.py",)).failure.message
