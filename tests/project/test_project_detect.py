"""The runner is recognised from the files alone, and the map from their names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from project_kit import find, make_venv, write

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.project import Interpreter, Project, map_repo
from codepilot.project.detect import survey

UNITTEST = {"tests/test_a.py": "import unittest\nclass A(unittest.TestCase):\n    def test_a(self): pass\n"}


@pytest.fixture(scope="session")
def without_pytest(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_venv(tmp_path_factory.mktemp("bare") / "env", pytest_too=False))


@pytest.mark.parametrize(
    "files",
    [
        {"pytest.ini": ""},
        {"pyproject.toml": "[tool.pytest.ini_options]\n"},
        {"setup.cfg": "[tool:pytest]\n"},
        {"tox.ini": "[pytest]\n"},
        {"tests/conftest.py": ""},
        {"tests/test_a.py": "import pytest\n"},
        {"pack/thing_test.py": "async def test_a(): pass\n"},
        {"tests/test_a.py": "class TestA:\n    def test_a(self): pass\n"},
    ],
)
def test_signs_of_pytest(tmp_path: Path, files: dict[str, str], without_pytest: str) -> None:
    root = write(tmp_path, files)
    assert find(root).runner == "pytest"
    with pytest.raises(CodePilotError) as caught:
        find(root, python=without_pytest)
    assert caught.value.kind is FailureKind.ENVIRONMENT_MISSING
    assert "pip install pytest" in caught.value.failure.advice
    assert without_pytest in str(caught.value)


def test_a_unittest_suite_runs_with_either(tmp_path: Path, without_pytest: str) -> None:
    root = write(tmp_path, UNITTEST)
    assert find(root).runner == "pytest"
    assert find(root, runner="unittest").runner == "unittest"
    assert find(root, python=without_pytest).runner == "unittest"


@pytest.mark.parametrize(
    "files",
    [
        {"main.py": "def test_a(): pass\n"},
        {"pyproject.toml": "[tool.black]\n", "setup.cfg": "[metadata]\n", "tox.ini": "[tox]\n"},
        {".venv/lib/x/test_a.py": "import pytest\n", "node_modules/test_b.py": "import pytest\n"},
        {"env2/pyvenv.cfg": "", "env2/conftest.py": ""},
        {"pyproject.toml": b"\xff[[[", "setup.cfg": b"\xff\n[", "tests/test_a.py": b"\xff\xfe"},
    ],
)
def test_no_tests_at_all_is_refused(tmp_path: Path, files: dict[str, str | bytes]) -> None:
    with pytest.raises(CodePilotError) as caught:
        find(write(tmp_path, files))
    assert caught.value.kind is FailureKind.NO_TEST_RUNNER


def test_nothing_of_the_checkout_is_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    source = f"open({str(marker)!r}, 'w')\nimport pytest\n"
    files = dict.fromkeys(("conftest.py", "setup.py", "sitecustomize.py", "json.py", "tests/test_a.py"), source)
    find(write(tmp_path / "repo", files))
    assert not marker.exists()


def test_links_and_special_files_do_no_harm(tmp_path: Path) -> None:
    import os

    root = write(tmp_path / "repo", UNITTEST)
    (root / "tests" / "loop").symlink_to(root)
    (root / "tests" / "test_gone.py").symlink_to("/no/such/file")
    os.mkfifo(root / "tests" / "test_pipe.py")
    assert survey(root).unittest_style


PROJECT = Project("pytest", Interpreter("/usr/bin/python3", (3, 11, 0), "/usr", "/usr", "--python"), "/repo")
FILES = [
    "README.md",
    "pyproject.toml",
    "uv.lock",
    "src/pack/__init__.py",
    "src/pack/core.py",
    "src/pack/sub/__init__.py",
    "src/single.py",
    "tests/__init__.py",
    "tests/conftest.py",
    "tests/test_core.py",
    "docs/deep/er/README.md",
]


def test_a_map_lists_parts_and_tests() -> None:
    found = map_repo(FILES, PROJECT)
    assert found.build_system == "uv"
    assert found.test_cmd == ("python", "-m", "pytest")
    assert found.modules == ("pack", "pack.sub", "single")
    assert found.test_files == ("tests/test_core.py",)
    assert found.key_files == ("README.md", "pyproject.toml", "tests/conftest.py")


def test_a_map_of_another_language_names_its_build_and_tests() -> None:
    files = ["pom.xml", "src/main/java/shop/Basket.java", "src/test/java/shop/BasketTest.java", "README.md"]
    found = map_repo(files, replace(PROJECT, runner="maven"))
    assert (found.build_system, found.test_cmd[0]) == ("maven", "mvn")
    assert found.key_files == ("README.md", "pom.xml")
    assert found.test_files == ("src/test/java/shop/BasketTest.java",)


@given(st.permutations(FILES))
def test_a_map_does_not_depend_on_order(files: list[str]) -> None:
    assert map_repo([*files, *files[:3]], PROJECT) == map_repo(FILES, PROJECT)


@given(st.lists(st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name), max_size=10))
def test_any_names_can_be_mapped(names: list[str]) -> None:
    map_repo(names, PROJECT)
