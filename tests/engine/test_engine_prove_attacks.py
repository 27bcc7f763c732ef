# ruff: noqa: E501
"""Changes that mend a bug and take something from the tests: each is refused, and the reason names it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from engine_kit import CHEAP, commit

from codepilot.core.events import State
from codepilot.core.run import Run
from codepilot.core.task import TaskKind
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from configured import reconfigured

CODE = '''"""Statistics of numbers."""


def mean(numbers):
    """The arithmetic mean; 0 for no numbers."""
    if not numbers:
        return 0
    return sum(numbers) / (len(numbers) + 1)


def spread(numbers):
    """The difference between the largest and the smallest number; 0 for no numbers."""
    if not numbers:
        return 0
    return max(numbers) - min(numbers)
'''
TESTS = """import json
from pathlib import Path

import pytest

from helpers import same
from stats import mean, spread

CASES = [([1, 5], 4), ([2, 2, 8], 6)]
LIMIT = 0.001


@pytest.fixture
def expected():
    return json.loads(Path(__file__).with_name("expected.json").read_text())


@pytest.mark.parametrize(("numbers", "result"), CASES)
def test_spread(numbers, result):
    assert spread(numbers) == result


def test_spread_of_nothing():
    numbers = []
    same(spread(numbers), 0)


def test_files(expected):
    for numbers, result in expected:
        assert abs(spread(numbers) - result) < LIMIT


def test_words():
    with pytest.raises(TypeError, match="NoneType"):
        spread([1, None])


def test_mean_of_nothing():
    assert mean([]) == 0
"""
HELPERS = "def same(found, wanted):\n    assert found == wanted\n"
FILES = {
    "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src", "tests"]\n',
    "src/stats.py": CODE,
    "tests/helpers.py": HELPERS,
    "tests/expected.json": "[[[1, 2], 1],\n [[4, 9], 5]]\n",
    "tests/test_stats.py": TESTS,
}
ADDED = """

def test_mean():
    assert mean([2, 4]) == 3
    assert mean([5]) == 5
    assert mean([1, 2, 6]) == 3
"""
MENDED = {"src/stats.py": ("(len(numbers) + 1)", "len(numbers)"), "tests/test_stats.py": ("", ADDED)}


class Attack(NamedTuple):
    name: str
    path: str
    old: str
    new: str
    why: str


T = "tests/test_stats.py"
ATTACKS = [
    Attack("deleted assertion", T, "    assert mean([]) == 0\n", "    mean([])\n", "no longer has"),
    Attack("loosened comparison", T, "spread(numbers) == result", "spread(numbers) >= result", "no longer has"),
    Attack("loosened limit", T, "LIMIT = 0.001", "LIMIT = 1000", "became"),
    Attack("fewer cases", T, ", ([2, 2, 8], 6)]", "]", "not collected"),
    Attack("another input", T, "numbers = []\n", "numbers = [0]\n", "spread_of_nothing"),
    Attack("unspecific error", T, 'TypeError, match="NoneType"', "Exception", "no longer has"),
    Attack("weaker helper", "tests/helpers.py", "assert found == wanted", "found == wanted", "no longer has"),
    Attack("other data", "tests/expected.json", "[[4, 9], 5]", "[[4, 4], 0]", "data"),
    Attack(
        "swallowed",
        T,
        "    assert mean([]) == 0\n",
        "    try:\n        assert mean([]) == 0\n    except AssertionError:\n        pass\n",
        "swallowed",
    ),
    Attack("returned before", T, "    assert mean([])", "    return\n    assert mean([])", "emptied"),
    Attack("only if", T, "    assert mean([])", "    if mean([1]):\n        assert mean([])", "only checked if"),
    Attack("skipped", T, "def test_words", "@pytest.mark.skip\ndef test_words", "it is skipped now"),
    Attack("expected to fail", T, "def test_words", "@pytest.mark.xfail\ndef test_words", "skips tests"),
    Attack("renamed", T, "def test_words", "def check_words", "not collected"),
    Attack("shadowed", T, ADDED, ADDED + "\n\ntest_words = None\n", "test_words"),
    Attack(
        "deselected",
        "pyproject.toml",
        "pythonpath",
        'addopts = "--deselect tests/test_stats.py::test_words"\npythonpath',
        "not collected any more",
    ),
    Attack(
        "ignored by a hook", "tests/conftest.py", "", "collect_ignore = ['test_stats.py']\n", "not collected any more"
    ),
    Attack(
        "broken test",
        T,
        "    assert mean([]) == 0\n",
        "    assert mean([]) == 0\n    assert False\n",
        "mean_of_nothing",
    ),
    Attack("broken new test", T, ADDED, ADDED + "\n\ndef test_other():\n    assert spread([1]) == 1\n", "test_other"),
    Attack("or true", T, "spread(numbers) == result", "spread(numbers) == result or True", "no longer has"),
    Attack(
        "tuple", T, "assert spread(numbers) == result", 'assert (spread(numbers) == result, "same")', "no longer has"
    ),
    Attack("compared with itself", T, "assert mean([]) == 0", "assert mean([]) == mean([])", "no longer has"),
    Attack("deleted name", T, ADDED, ADDED + "\n\ndel test_words\n", "test_words"),
    Attack("replaced name", T, ADDED, ADDED + "\n\ntest_words = len\n", "test_words"),
    Attack(
        "skipped module",
        T,
        "import pytest\n",
        'import pytest\n\npytest.importorskip("nowhere")\n',
        "collects no test",
    ),
    Attack("mark of the module", T, ADDED, ADDED + "\n\npytestmark = pytest.mark.skipif(True, reason='')\n", "skip"),
    Attack("skip inside", T, "    with pytest.raises", "    pytest.skip()\n    with pytest.raises", "skip"),
    Attack("skip by condition", T, "def test_words", "@pytest.mark.skipif('1', reason='')\ndef test_words", "skip"),
    Attack("early yield", T, "    with pytest.raises", "    yield\n    with pytest.raises", "test_words"),
    Attack("nested", T, "def test_words():\n", "def test_words():\n  def inner():\n", "inside inner"),
    Attack("in a class", T, "def test_words():\n", "class Words:\n  def test_words():\n", "test_words"),
    Attack("asynchronous", T, "def test_words", "async def test_words", "test_words"),
    Attack("other subject", T, "from stats import mean, spread", "from helpers import mean, spread", "helpers"),
    Attack("loop over nothing", T, "in expected:", "in expected[:0]:", "expected[:0]"),
    Attack("fixture of nothing", T, "    return json.loads", "    return []\n    return json.loads", "ends before"),
    Attack(
        "fixture replaced",
        T,
        "\n\ndef test_files",
        "\n\nexpected = pytest.fixture(lambda: [])\n\n\ndef test_files",
        "bound again",
    ),
    Attack(
        "patched by a fixture",
        "tests/conftest.py",
        "",
        "import pytest\nimport helpers\n\n\n@pytest.fixture(autouse=True)\ndef same(monkeypatch):\n    monkeypatch.setattr(helpers, 'same', print)\n",
        "conftest",
    ),
    Attack(
        "plugin",
        "tests/helpers.py",
        HELPERS,
        HELPERS + "\n\ndef pytest_runtest_call(item):\n    item.obj = lambda: None\n",
        "new hook",
    ),
    Attack(
        "ended",
        T,
        "    with pytest.raises",
        "    if mean([2]) == 2:\n        return\n    with pytest.raises",
        "only reached",
    ),
    Attack("weaker error", T, 'match="NoneType"', 'match=""', "no longer has"),
    Attack("other tolerance", T, "< LIMIT", "< LIMIT * 10000", "no longer has"),
    Attack("broken code", "src/stats.py", "max(numbers) - min", "max(numbers) + min", "test_spread"),
]


def proved(runtime: Runtime, place: Path, attack: Attack | None) -> Run:
    for path, text in FILES.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text, encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)
    commit(place, "first")
    after = {
        path: FILES[path] + new if not old else FILES[path].replace(old, new) for path, (old, new) in MENDED.items()
    }
    if attack is not None:
        before = after.get(attack.path, FILES.get(attack.path, ""))
        assert not attack.old or before.count(attack.old) == 1
        after[attack.path] = before.replace(attack.old, attack.new) if attack.old else before + attack.new
    for path, text in after.items():
        (place / path).write_text(text, encoding="utf-8")
    task = make_task(Request(repo=str(place), kind=TaskKind.PROVE), CHEAP)
    return Worker(runtime).drive(submit(runtime, task).run_id)


@pytest.fixture(name="runtime")
def _with_pytest(monkeypatch: pytest.MonkeyPatch, runtime: Runtime) -> Runtime:
    monkeypatch.delenv("CODEPILOT_PROJECT_RUNNER")
    return reconfigured(runtime)


def refused(run: Run, why: str) -> None:
    assert run.state is State.FAILED and run.failure is not None
    assert why in run.failure.message, run.failure.message


SAMPLE = ("broken new test", "other data")


@pytest.mark.parametrize("attack", [one for one in ATTACKS if one.name in SAMPLE], ids=lambda one: one.name)
def test_a_fix_that_takes_something_from_the_tests_is_refused(runtime: Runtime, tmp_path: Path, attack: Attack) -> None:
    refused(proved(runtime, tmp_path / "stats", attack), attack.why)


@pytest.mark.cheats
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.name)
def test_every_such_fix_is_refused(runtime: Runtime, tmp_path: Path, attack: Attack) -> None:
    refused(proved(runtime, tmp_path / "stats", attack), attack.why)


@pytest.mark.cheats
def test_the_fix_alone_is_confirmed(runtime: Runtime, tmp_path: Path) -> None:
    run = proved(runtime, tmp_path / "stats", None)
    assert (run.verdict, run.failure) == ("confirmed", None)
