"""The deterministic review: good changes are let through, bad ones are named."""

from __future__ import annotations

import difflib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.task import Budget, TaskKind
from codepilot.executor import DiffResult, FileChange, Violation
from codepilot.project import is_test
from codepilot.verify import review
from codepilot.verify.configuration import bends_runner, shadows_module
from codepilot.verify.review_checks import ChangedFile, entropy, no_hardcoded_secrets

Tree = dict[str, bytes]
PRODUCT = b"def add(a, b):\n    return a - b\n"
MENDED = b"def add(a, b):\n    return a + b\n"
TESTS = b"""import pytest
from calc import add


class TestAdd:
    def test_small(self):
        assert add(1, 2) == 3


def test_large():
    assert add(1000, 1) == 1001
"""


def diff_of(before: Tree, after: Tree, **more: object) -> DiffResult:
    changes, patch = [], []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        kind = "added" if old is None else "deleted" if new is None else "modified"
        changes.append(FileChange(path=path, change=kind, binary=b"\0" in (new or b"")))
        texts = [(side or b"").decode("latin-1").splitlines(keepends=True) for side in (old, new)]
        patch.extend(difflib.unified_diff(*texts, fromfile=f"a/{path}", tofile=f"b/{path}"))
    return DiffResult(
        patch="".join(patch).encode("latin-1", "replace"),
        base_tree="b" * 64,
        tree="c" * 64,
        changes=tuple(changes),
        **more,
    )


def refused(before: Tree, after: Tree, budget: Budget | None = None, kind: TaskKind = TaskKind.BUGFIX) -> set[str]:
    given_review = review(diff_of(before, after), before.get, after.get, budget or Budget(), kind)
    names = {check.name for check in given_review.policy_checks if not check.ok}
    assert (given_review.verdict == "REQUEST_CHANGES") is bool(names)
    assert len(given_review.reasons) == len(names)
    return names


def product(after: bytes, path: str = "calc.py", before: bytes = PRODUCT) -> set[str]:
    return refused({path: before}, {path: after})


def edited_tests(after: bytes | None, before: bytes = TESTS) -> set[str]:
    path = "tests/test_calc.py"
    return refused({path: before}, {} if after is None else {path: after})


def test_an_honest_repair_is_approved_and_measured() -> None:
    before, after = {"calc.py": PRODUCT, "tests/test_calc.py": TESTS}, {"calc.py": MENDED, "tests/test_calc.py": TESTS}
    approved = review(diff_of(before, after), before.get, after.get, Budget())
    assert (approved.verdict, approved.patch_loc, approved.reasons) == ("APPROVE", 2, ())


def test_a_change_of_nothing_is_no_change() -> None:
    assert review(diff_of({}, {}), {}.get, {}.get, Budget()).reasons == ("The patch changes nothing.",)


def test_violations_of_the_tree_are_reasons() -> None:
    diff = diff_of({"calc.py": PRODUCT}, {"calc.py": MENDED}, violations=(Violation(rule="nested_git", path="x/.git"),))
    verdict = review(diff, {"calc.py": PRODUCT}.get, {"calc.py": MENDED}.get, Budget())
    assert verdict.verdict == "REQUEST_CHANGES"
    assert "x/.git" in verdict.reasons[0]


def test_a_patch_beyond_its_budget_is_refused() -> None:
    grown = PRODUCT + b"".join(b"X%d = %d\n" % (n, n) for n in range(30))
    assert refused({"calc.py": PRODUCT}, {"calc.py": grown}, Budget(patch_lines=29)) == {"patch_within_size_limit"}
    assert refused({"calc.py": PRODUCT}, {"calc.py": grown}, Budget(patch_lines=30)) == set()


# Tests that are bent --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t + b"\n\ndef test_more():\n    assert add(0, 0) == 0\n",
        lambda t: t.replace(b"import pytest\n", b"import math\nimport pytest\n"),
        lambda t: t.replace(b"from calc import add\n", b"from calc import add, PI\n"),
        lambda t: t.replace(
            b"\n\ndef test_large", b"\n    def test_zero(self):\n        assert add(0, 0) == 0\n\n\ndef test_large"
        ),
        lambda t: b'"""Of addition."""\n' + t,
        lambda t: t.replace(b"\n", b"\r\n"),
    ],
)
def test_tests_may_be_added_to(edit) -> None:
    assert edited_tests(edit(TESTS)) == set()


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda t: t.replace(b"== 3", b"== -1"), {"tests_untouched_or_added"}),
        (lambda t: t.replace(b"    assert add(1000, 1) == 1001", b"    pass"), None),
        (lambda t: t.replace(b"def test_large", b"def check_large"), None),
        (lambda t: t.replace(b"def test_large", b"@pytest.mark.skip\ndef test_large"), None),
        (lambda t: t.replace(b"def test_large", b"@pytest.mark.xfail(reason='x')\ndef test_large"), None),
        (lambda t: t.replace(b"        assert", b"        self.skipTest('x')\n        assert"), None),
        (lambda t: t + b"\n\ndef test_large():\n    pass\n", None),
        (lambda t: t + b"\n\npytestmark = pytest.mark.skip('later')\n", {"no_disabled_tests"}),
        (lambda t: t.replace(b"from calc import add", b"from fake import add"), {"tests_untouched_or_added"}),
        (lambda t: t + b"\n\nadd = lambda a, b: a + b\n", {"tests_untouched_or_added"}),
        (lambda t: t + b"\n\ntest_large = None\n", {"tests_untouched_or_added"}),
        (lambda t: b"", None),
    ],
)
def test_a_weakened_test_is_found(edit, expected: set[str] | None) -> None:
    wanted = {"no_disabled_tests", "tests_untouched_or_added"} if expected is None else expected
    assert edited_tests(edit(TESTS)) == wanted


def test_a_deleted_test_file_is_found() -> None:
    assert edited_tests(None) == {"no_disabled_tests", "tests_untouched_or_added"}


def test_test_data_may_not_be_rewritten() -> None:
    path = "tests/data/expected.json"
    assert refused({path: b"[1]\n"}, {path: b"[2]\n"}) == {"tests_untouched_or_added"}
    assert refused({path: b"[1]\n"}, {path: b"[1]\n[2]\n"}) == set()


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("src/test/java/CalcTest.java", b"@Ignore\npublic void adds() {}\n"),
        ("src/test/java/CalcTest.java", b'@Disabled("later")\npublic void adds() {}\n'),
        ("web/calc.test.ts", b"it.skip('adds', () => {})\n"),
    ],
)
def test_disabled_tests_of_other_languages_are_found(path: str, content: bytes) -> None:
    assert refused({}, {path: content}) == {"no_disabled_tests"}


# The runner's configuration -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        ("conftest.py", None, b"collect = 1\n"),
        ("tests/conftest.py", b"A = 1\n", b"A = 1\nB = 2\n"),
        ("pytest.ini", b"[pytest]\n", None),
        ("sitecustomize.py", None, b"\n"),
        ("lib/hook.pth", None, b"import os\n"),
        ("pytest.py", None, b"\n"),
        ("src/json/__init__.py", None, b"\n"),
        (
            "pyproject.toml",
            b"[tool.pytest.ini_options]\naddopts = '-q'\n",
            b"[tool.pytest.ini_options]\naddopts = '-k x'\n",
        ),
        ("pyproject.toml", b"[project]\nname = 'x'\n", b"[project\n"),
        ("setup.cfg", b"[metadata]\nname = x\n", b"[metadata]\nname = x\n[tool:pytest]\naddopts = -x\n"),
        ("tox.ini", b"[pytest]\naddopts = -q\n", b"[tox]\n"),
    ],
)
def test_a_change_of_the_runner_is_found(path: str, before: bytes | None, after: bytes | None) -> None:
    assert bends_runner(path, before, after)
    trees = [{} if side is None else {path: side} for side in (before, after)]
    assert "no_runner_config_change" in refused(*trees)


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (
            "pyproject.toml",
            b"[project]\nname = 'x'\n[tool.pytest]\na = 1\n",
            b"[project]\nname = 'y'\n[tool.pytest]\na = 1\n",
        ),
        ("setup.cfg", b"[metadata]\nname = x\n", b"[metadata]\nname = y\n"),
        ("calc/json.py", None, b"\n"),
        ("json.py", b"A = 1\n", b"A = 2\n"),
        ("docs/pytest.rst", None, b"\n"),
    ],
)
def test_other_changes_leave_the_runner_alone(path: str, before: bytes | None, after: bytes | None) -> None:
    assert not bends_runner(path, before, after)


def test_a_configuration_that_is_slow_to_parse_counts_as_changed() -> None:
    began = time.thread_time()
    assert bends_runner("pyproject.toml", b"[tool.pytest]\n", b"a." * 100_000 + b"a = 1\n")
    assert time.thread_time() - began < 1.0


def test_a_new_project_brings_its_own_configuration() -> None:
    added = {"conftest.py": b"\n", "pyproject.toml": b"[tool.pytest.ini_options]\n"}
    assert refused({}, added) == {"no_runner_config_change"}
    assert refused({}, added, kind=TaskKind.BUILD) == set()


def test_tests_are_known_by_their_place_or_name() -> None:
    assert all(
        map(
            is_test,
            (
                "tests/x.py",
                "test/data.json",
                "src/test/x.txt",
                "pkg/tests/x.txt",
                "test_x.py",
                "pkg/x_test.py",
                "a/FooTest.java",
            ),
        )
    )
    assert not any(
        map(is_test, ("src/x.py", "contest.py", "latest/x.py", "testing/x.py", "pkg/test/client.py", "spec/x.py"))
    )
    assert shadows_module("random.py")
    assert not shadows_module("pkg/random.py")


# The product ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (MENDED, set()),
        (b"def add(a, b):\n    print(a)\n    return a + b\n", {"no_debug_left"}),
        (b"def add(a, b):\n    breakpoint()\n    return a + b\n", {"no_debug_left"}),
        (b"import pdb\ndef add(a, b):\n    pdb.set_trace()\n    return a + b\n", {"no_debug_left"}),
        (b"def add(a, b):\n    return a + b  # TODO: tidy\n", {"no_debug_left"}),
        (b"def add(a, b)\n    return a + b\n", {"no_new_syntax_errors"}),
        (b"def add(a, b):\n    return a + b if a is not 0 else b\n", {"no_new_compilation_warnings"}),
        (b"def add(a, b):\n    if 'PYTEST_CURRENT_TEST' in os.environ:\n        return 3\n", {"no_test_detection"}),
        (b"import os\nos._exit(0)\n", {"no_test_detection"}),
    ],
)
def test_what_a_product_may_not_gain(after: bytes, expected: set[str]) -> None:
    assert product(after) == expected


def test_lines_that_were_there_before_are_not_held_against_a_change() -> None:
    loud = b"def add(a, b):\n    print(a)  # TODO\n    return a - b\n"
    assert product(loud.replace(b"a - b", b"a + b"), before=loud) == set()
    assert product(loud.replace(b"print(a)", b"print(b)").replace(b"  # TODO", b""), before=loud) == set()
    assert product(b"def broken(:\n    pass\n", before=b"def broken(:\n") == set()
    noted = b"def add(a, b):\n    return a - b  # TODO: tidy\n"
    assert product(noted.replace(b"a - b", b"a + b"), before=noted) == set()
    leaky = b"connect('db://root:" + b"hunter22@host', tries=1)\n"
    assert product(leaky.replace(b"tries=1", b"tries=2"), before=leaky) == set()


def test_a_new_program_may_print() -> None:
    assert refused({}, {"tool.py": b"print('hello')\n"}) == set()
    assert refused({}, {"app.js": b"console.log(1)\n"}) == {"no_debug_left"}


GITHUB = "ghp_" + "a1B2" * 9
AWS = "AKIA" + "IOSFODNN7ABCDEFG"


@pytest.mark.parametrize(
    "line",
    [
        f'TOKEN = "{GITHUB}"',
        f"key: {AWS}",
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        'password = "h7Gk29xQpLm4"',
        '"api_key": "9f8e7d6c5b4a39281706"',
        "db = 'postgres://admin:" + "hunter22@db/prod'",
        'SALT = "qL8zXw3Rt7Yv2Bn5Mk9Jh4Gf6Ds1Aa0PoIuYtReWqZx"',
    ],
)
def test_secrets_are_found_and_not_repeated(line: str) -> None:
    file = ChangedFile(FileChange(path="settings.py", change="added"), None, line.encode() + b"\n")
    found = no_hardcoded_secrets([file])
    assert not found.ok
    assert "settings.py:1" in found.evidence
    assert not any(part in found.evidence for part in (GITHUB, AWS, "h7Gk29xQpLm4", "hunter22", "qL8zXw"))


@pytest.mark.parametrize(
    "line",
    [
        'password = os.environ["PASSWORD"]',
        'password = "changeme"',
        'token = "your-token-here"',
        'DIGEST = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"',
        'url = "https://example.org/path"',
        'name = "a perfectly ordinary sentence of some length, for people to read"',
    ],
)
def test_ordinary_lines_are_not_taken_for_secrets(line: str) -> None:
    file = ChangedFile(FileChange(path="settings.py", change="added"), None, line.encode() + b"\n")
    assert no_hardcoded_secrets([file]).ok


@given(st.binary(max_size=300), st.binary(max_size=300), st.sampled_from(["a.py", "tests/test_a.py", "pyproject.toml"]))
def test_no_content_breaks_the_review(before: bytes, after: bytes, path: str) -> None:
    if before != after:
        refused({path: before}, {path: after})


@pytest.mark.parametrize(
    "source",
    [b"x = " + b"a + " * 700 + b"a\n", b"x = " + b"-" * 100_000 + b"1\n", b"(" * 5000, b"# coding: undefined\nx = 1\n"],
)
def test_hostile_nesting_is_refused_and_not_fatal(source: bytes) -> None:
    assert "tests_untouched_or_added" in edited_tests(source)
    assert "tests_untouched_or_added" in edited_tests(TESTS, before=source)


def test_names_that_are_no_text_can_still_be_recorded() -> None:
    path = "tests/test_\udcff.py"
    verdict = review(diff_of({path: TESTS}, {}), {path: TESTS}.get, {}.get, Budget())
    assert verdict.model_dump_json()


@given(st.text(max_size=50))
def test_entropy_is_bounded(text: str) -> None:
    assert 0.0 <= entropy(text) <= 6.0
