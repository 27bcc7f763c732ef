"""The tree that judges a change: the change's product, the base's tests and runner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codepilot.core.artifacts import Concern
from codepilot.verify import Grade, grade, judged_tree
from codepilot.verify.confidence import AGREEMENT_FLOOR, CONFIRMED_LEAST, MOST, STRONG_MUTANTS, STRONG_SCORE
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
    covering = 3

    def __init__(
        self, mutants: int, killed: int, near: int = 1, near_killed: int = 1, still_failing: tuple[str, ...] = ()
    ) -> None:
        self.mutants, self.killed = mutants, killed
        self.near, self.near_killed = near, near_killed
        self.still_failing = still_failing
        self.score = killed / mutants if mutants else 0.0


DOUBT = Concern(rule="copied_condition", path="a.py", line=3, why="a new condition compares with 8")


def given_worth(
    strength: Measured | None,
    suite: str = "full",
    flaky: tuple[str, ...] = (),
    agreement: float | None = 1.0,
    concerns: tuple[Concern, ...] = (),
) -> Grade:
    return grade(strength, suite, ("t",), flaky, agreement, concerns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        ("confirmed", given_worth(Measured(10, 9))),
        ("plausible", given_worth(None)),
        ("plausible", given_worth(Measured(10, 6))),
        ("plausible", given_worth(Measured(20, 18, near=4, near_killed=2))),
        ("plausible", given_worth(Measured(20, 20, near=0, near_killed=0))),
        ("confirmed", given_worth(Measured(20, 18, near=5, near_killed=4))),
        ("plausible", given_worth(Measured(4, 4))),
        ("plausible", given_worth(Measured(10, 9), suite="partial")),
        ("plausible", given_worth(Measured(10, 9), suite="none")),
        ("plausible", given_worth(Measured(10, 9), flaky=("t",))),
        ("confirmed", given_worth(Measured(10, 9), flaky=("other",))),
        ("plausible", given_worth(Measured(10, 9), agreement=AGREEMENT_FLOOR - 0.01)),
        ("confirmed", given_worth(Measured(10, 9), agreement=None)),
        ("plausible", given_worth(Measured(10, 10), concerns=(DOUBT,))),
        ("plausible", given_worth(Measured(10, 10, still_failing=("other",)))),
    ],
)
def test_only_strong_evidence_is_called_confirmed(expected: str, given: Grade) -> None:
    assert given.verdict == expected


def test_a_doubted_change_says_where_and_why() -> None:
    doubted = given_worth(Measured(40, 40), concerns=(DOUBT, DOUBT))
    assert "a.py:3: a new condition compares with 8 (and 1 more)" in doubted.reason
    assert doubted.parts["generality"] < 0.5


@given(
    st.integers(0, 50),
    st.floats(0, 1),
    st.sampled_from(["full", "partial", "none"]),
    st.booleans(),
    st.floats(0, 1),
    st.booleans(),
)
def test_confirmed_is_never_claimed_on_less(
    mutants: int, share: float, suite: str, wavers: bool, agreement: float, doubted: bool
) -> None:
    strength = Measured(mutants, int(mutants * share))
    found = given_worth(strength, suite, ("t",) if wavers else (), agreement, (DOUBT,) if doubted else ())
    strong = strength.mutants >= STRONG_MUTANTS and strength.score >= STRONG_SCORE and not doubted
    expected = strong and suite == "full" and not wavers and agreement >= AGREEMENT_FLOOR
    assert (found.verdict == "confirmed") is expected
    assert found.reason
    assert (found.confidence >= CONFIRMED_LEAST) is expected
    assert 0 < found.confidence <= MOST
