"""The tree that judges a change: the change's product, the base's tests and runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codepilot.verify import judged_tree, worth
from codepilot.verify.proof import CONFIDENCE_FLOOR, STRONG_MUTANTS, STRONG_SCORE
from codepilot.workspace import Entry, ObjectStore

BASE = {
    "calc.py": b"def add(a, b):\n    return a - b\n",
    "tests/test_calc.py": b"assert 1\n",
    "tests/conftest.py": b"\n",
    "tests/data/x.json": b"[]\n",
    "pyproject.toml": b"[project]\nname = 'x'\n[tool.pytest.ini_options]\naddopts = '-q'\n",
}


@pytest.fixture
def objects(tmp_path: Path) -> Iterator[ObjectStore]:
    with ObjectStore.open(tmp_path / "objects.git") as store:
        yield store


def tree_of(objects: ObjectStore, files: dict[str, bytes]) -> str:
    return objects.write_tree({path: Entry("100644", objects.write_blob(data)) for path, data in files.items()})


def files_of(objects: ObjectStore, tree: str) -> dict[str, bytes]:
    return {path: objects.read_blob(entry.oid) for path, entry in objects.read_tree(tree).items()}


def judged(objects: ObjectStore, after: dict[str, bytes]) -> tuple[dict[str, bytes], set[str]]:
    tree, restored = judged_tree(objects, tree_of(objects, BASE), tree_of(objects, after))
    return files_of(objects, tree), set(restored)


def test_a_change_of_the_product_is_judged_as_it_is(objects: ObjectStore) -> None:
    after = {**BASE, "calc.py": b"def add(a, b):\n    return a + b\n", "new.py": b"\n"}
    assert judged(objects, after) == (after, set())


def test_tests_and_configuration_come_from_the_base(objects: ObjectStore) -> None:
    mended = {"calc.py": b"mended\n", "tests/test_new.py": b"new\n"}
    bent = {
        "tests/test_calc.py": b"weak\n",
        "tests/conftest.py": b"cheat\n",
        "conftest.py": b"cheat\n",
        "pytest.py": b"cheat\n",
        "pyproject.toml": b"[tool.pytest.ini_options]\naddopts = '--co'\n",
    }
    after = {**{path: data for path, data in BASE.items() if path != "tests/data/x.json"}, **mended, **bent}
    files, restored = judged(objects, after)
    assert files == {**BASE, **mended}
    assert restored == {*bent, "tests/data/x.json"}


def test_a_change_of_the_project_file_alone_is_kept(objects: ObjectStore) -> None:
    after = {**BASE, "pyproject.toml": BASE["pyproject.toml"].replace(b"'x'", b"'y'")}
    assert judged(objects, after) == (after, set())


def test_a_file_put_in_the_place_of_the_tests_does_not_stay(objects: ObjectStore) -> None:
    product = {path: data for path, data in BASE.items() if not path.startswith("tests/")}
    assert judged(objects, {**product, "tests": b"gone\n"})[0] == BASE
    rest = {path: data for path, data in BASE.items() if path != "tests/test_calc.py"}
    assert judged(objects, {**rest, "tests/test_calc.py/x.py": b"\n"})[0] == BASE


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*BASE, "conftest.py", "pytest.ini", "pkg/mod.py", "tests/test_new.py", "sitecustomize.py"]),
        st.sampled_from([None, b"changed\n", b"[tool.pytest]\n"]),
    )
)
def test_whatever_changes_the_judge_stays_the_bases(objects: ObjectStore, edits: dict[str, bytes | None]) -> None:
    after = {path: data for path, data in {**BASE, **edits}.items() if data is not None}
    files, _ = judged(objects, after)
    for path in ("tests/test_calc.py", "tests/conftest.py", "tests/data/x.json"):
        assert files[path] == BASE[path]
    assert not {"conftest.py", "pytest.ini", "sitecustomize.py"} & files.keys()
    assert files.get("calc.py") == after.get("calc.py")


# What a proof is worth ------------------------------------------------------------------------------


class Measured:
    def __init__(self, mutants: int, killed: int, near: int = 1, near_killed: int = 1) -> None:
        self.mutants, self.killed = mutants, killed
        self.near, self.near_killed = near, near_killed
        self.score = killed / mutants if mutants else 0.0


def verdict(
    strength: Measured | None, suite: str = "full", flaky: tuple[str, ...] = (), confidence: float = 1.0
) -> str:
    return worth(strength, suite, ("t",), flaky, confidence).verdict  # type: ignore[arg-type]


def test_only_strong_evidence_is_called_confirmed() -> None:
    assert verdict(Measured(10, 9)) == "confirmed"
    assert verdict(None) == "plausible"
    assert verdict(Measured(10, 6)) == "plausible"
    assert verdict(Measured(20, 18, near=4, near_killed=2)) == "plausible"
    assert verdict(Measured(20, 20, near=0, near_killed=0)) == "plausible"
    assert verdict(Measured(20, 18, near=5, near_killed=4)) == "confirmed"
    assert verdict(Measured(4, 4)) == "plausible"
    assert verdict(Measured(10, 9), suite="partial") == "plausible"
    assert verdict(Measured(10, 9), suite="none") == "plausible"
    assert verdict(Measured(10, 9), flaky=("t",)) == "plausible"
    assert verdict(Measured(10, 9), flaky=("other",)) == "confirmed"
    assert verdict(Measured(10, 9), confidence=CONFIDENCE_FLOOR - 0.01) == "plausible"
    assert worth(Measured(10, 9), "full", ("t",), (), 1.0, unmended=("other",)).verdict == "plausible"


@given(
    st.integers(0, 50),
    st.floats(0, 1),
    st.sampled_from(["full", "partial", "none"]),
    st.booleans(),
    st.floats(0, 1),
)
def test_confirmed_is_never_claimed_on_less(
    mutants: int, share: float, suite: str, wavers: bool, confidence: float
) -> None:
    strength = Measured(mutants, int(mutants * share))
    given_worth = worth(strength, suite, ("t",), ("t",) if wavers else (), confidence)  # type: ignore[arg-type]
    strong = strength.mutants >= STRONG_MUTANTS and strength.score >= STRONG_SCORE
    expected = strong and suite == "full" and not wavers and confidence >= CONFIDENCE_FLOOR
    assert (given_worth.verdict == "confirmed") is expected
    assert given_worth.reason
