"""Real commits: what is shown, and which offers count as right besides the fix."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from codepilot.bench.attempt import history
from codepilot.bench.bugs import Judgement, Repair
from codepilot.bench.checkout import prepare, write_version
from codepilot.bench.judge import judge_real
from codepilot.bench.report import write_reports
from codepilot.bench.sets import load_set
from codepilot.bench.sweep import BenchSpec, chosen, run_sweep
from codepilot.core.failures import CodePilotError
from codepilot.repair.rank import FEATURES

pytestmark = pytest.mark.timeout(240)

FIX = (
    "LIMIT = 9\n\n\n"
    "class Cart:\n"
    "    def __init__(self, prices):\n        self.prices = list(prices)\n\n"
    "    def total(self, count):\n"
    '        """What the first ones cost."""\n'
    "        chosen = self.prices[:count]\n"
    "        return sum(chosen)\n"
)
BUG = FIX.replace("[:count]", "[: count - 1]")
TESTS = (
    "from shop.cart import Cart\n\n\nclass TestCart:\n"
    "    def test_two(self):\n        assert Cart([1, 2, 4]).total(2) == 3\n\n"
    "    def test_all(self):\n        assert Cart([5, 5, 6]).total(3) == 16\n\n"
    "    def test_one(self):\n        assert Cart([8, 1, 1]).total(1) == 8\n"
)


def _data(folder: Path, before: str = "") -> Path:
    work = folder / "work"
    (work / "shop").mkdir(parents=True)
    (work / "tests").mkdir()

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b.invalid", "-C", str(work), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(files: dict[str, str]) -> str:
        for name, text in files.items():
            (work / name).write_text(text)
        git("add", "-A")
        git("commit", "-qm", "x")
        return git("rev-parse", "HEAD")

    git("init", "-q")
    commit({"shop/cart.py": before})
    parent = commit({"shop/__init__.py": "", "shop/cart.py": BUG, "tests/test_cart.py": "def test_old():\n    pass\n"})
    fix = commit({"shop/cart.py": FIX, "tests/test_cart.py": TESTS})
    data = folder / "data"
    (data / "repos").mkdir(parents=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(data / "repos/shop.git")], check=True)
    task = {
        "repo": "somebody/shop",
        "parent": parent,
        "fix": fix,
        "src_file": "shop/cart.py",
        "src_lines_added": 1,
        "src_lines_removed": 1,
        "test_files": ["tests/test_cart.py"],
        "failing_tests": ["tests.test_cart.TestCart::test_two", "tests.test_cart.TestCart::test_all"],
    }
    (data / "list.json").write_text(json.dumps({"tasks": [task]}))
    return data


def test_the_search_knows_the_past_of_the_bug_and_nothing_of_its_fix(tmp_path: Path) -> None:
    (bug,) = load_set("realfix", _data(tmp_path, before=BUG.replace("LIMIT = 9\n", "")))
    reported = history(bug, tmp_path)(("shop/cart.py",))
    assert [row.decode() for row, _ in reported["shop/cart.py"]] == BUG.splitlines()
    assert [(row, age) for row, age in reported["shop/cart.py"] if age] == [(b"LIMIT = 9", 1)]


def _judged(folder: Path, *texts: str) -> list[Judgement]:
    (bug,) = load_set("realfix", _data(folder))
    checkout = folder / "checkout"
    checkout.mkdir()
    prepare(checkout, bug)
    return judge_real(bug, [Repair({"shop/cart.py": text}, "") for text in texts], checkout, folder / "home", None)


def test_the_parent_is_shown_with_the_tests_of_the_fix(tmp_path: Path) -> None:
    (bug,) = load_set("realfix", _data(tmp_path))
    assert bug.tests == ("tests/test_cart.py::TestCart::test_two", "tests/test_cart.py::TestCart::test_all")
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    prepare(checkout, bug)
    assert (checkout / "shop/cart.py").read_text() == BUG
    assert (checkout / "tests/test_cart.py").read_text() == TESTS


def test_the_file_that_a_build_would_write_the_version_to_is_there(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "pyproject.toml").write_text('[tool.hatch.build.hooks.vcs]\nversion-file = "src/_version.py"\n')
    write_version(tmp_path)
    assert "__version__" in (tmp_path / "src/_version.py").read_text()
    (tmp_path / "pyproject.toml").write_text('[tool.setuptools_scm]\nwrite_to = "../_version.py"\n')
    write_version(tmp_path)
    assert not (tmp_path.parent / "_version.py").exists()


def test_the_same_code_and_the_same_behaviour_are_right_and_an_overfit_is_wrong(tmp_path: Path) -> None:
    same_code = FIX.replace("        chosen", "        # as many as asked for\n        chosen")
    same_behaviour = BUG.replace("chosen = self.prices[: count - 1]", "chosen = self.prices[0 : count - 1 + 1]")
    overfit = BUG.replace("return sum(chosen)", "return {2: 3, 3: 16, 1: 8}[count]")
    found = _judged(tmp_path, same_code, same_behaviour, overfit)
    assert [one.correct for one in found] == [True, True, False]
    assert found[1].inputs > 10 and "Cart.total differs" in found[2].reason


def test_what_cannot_be_compared_is_not_called_right(tmp_path: Path) -> None:
    found = _judged(
        tmp_path, FIX.replace("LIMIT = 9", "LIMIT = 8"), FIX.replace("total(self, count)", "total(self, count=1)")
    )
    assert [one.correct for one in found] == [False, False]
    assert "outside of functions" in found[0].reason


def test_a_missing_repository_and_a_broken_list_are_reported(tmp_path: Path) -> None:
    data = _data(tmp_path)
    (data / "repos/shop.git").rename(data / "repos/other.git")
    with pytest.raises(CodePilotError, match="the repository is missing"):
        chosen(BenchSpec(set="realfix", data=data, out=tmp_path / "out"))
    (data / "list.json").write_text('{"tasks": [{"repo": "a/b"}]}')
    with pytest.raises(CodePilotError, match="task 1 has no 'parent'"):
        load_set("realfix", data)
    (data / "list.json").write_text("[]")
    with pytest.raises(CodePilotError, match="not a list of commits"):
        load_set("realfix", data)


@pytest.mark.slow
def test_a_bug_that_cannot_be_tried_is_a_row_and_the_others_go_on(tmp_path: Path) -> None:
    data = _data(tmp_path)
    tasks = json.loads((data / "list.json").read_text())["tasks"]
    lost = {**tasks[0], "repo": "somebody/lost"}
    (data / "list.json").write_text(json.dumps({"tasks": [lost, *tasks]}))
    sweep = BenchSpec(set="realfix", data=data, out=tmp_path / "out", seconds=5.0, search_only=True)
    swept = run_sweep(sweep)
    assert swept.complete and [one.status for one in swept.results] == ["ERROR", "DONE"]
    assert "the repository is missing" in swept.results[0].reason
    assert swept.results[1].first_correct and set(swept.results[1].features) == set(FEATURES)
    assert "| all | 2 | 1 | 1 | 1 | 0 | 0 |" in write_reports(sweep, swept)[0].read_text()
