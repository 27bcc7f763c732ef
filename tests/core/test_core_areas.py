"""Where a plan lets a change be made."""

from __future__ import annotations

import time

import pytest

from codepilot.core.areas import ALLOWED, FORBIDDEN, misnamed, outside
from codepilot.core.globs import covers, guards, leads_into
from codepilot.core.plan import Plan


@pytest.mark.parametrize(
    ("area", "inside", "elsewhere"),
    [
        ("src", ["src", "src/a.py", "src/deep/b.py"], ["srcs/a.py", "lib/src/a.py"]),
        ("src/", ["src/a.py"], ["a.py"]),
        ("./src/a.py", ["src/a.py"], ["src/a.pyc", "src/a_py"]),
        ("src/*.py", ["src/a.py"], ["src/deep/a.py", "a.py"]),
        ("src/**", ["src/a.py", "src/deep/a.py"], ["a.py"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/x/y/test_a.py"], ["src/a.py"]),
        ("*.md", ["README.md", "docs/a.md"], ["a.mdx"]),
        ("**", ["anything/at/all"], []),
        (".", ["a.py"], []),
        ("*", ["a", "anything/at/all"], []),
        ("src/*", ["src/a.py", "src/deep/a.py"], ["a.py", "lib/a.py"]),
        ("src/**/*.{js,ts}", ["src/a.js", "src/x/y/b.ts"], ["src/a.py", "src/{js,ts}"]),
        ("{src,lib}/a?.py", ["src/ab.py", "lib/ac.py"], ["src/a.py", "lib/abc.py", "a/ab.py"]),
        ("*/x", ["a/x", "a/x/y"], ["x", "a/b/x"]),
        ("src//./a.py", ["src/a.py"], ["a.py"]),
        ("**/a*b*c/d", ["abc/d", "x/y/a1b2b3c/d", "ab/acbc/d/e"], ["abcd", "x/abc"]),
        ("a*a.py", ["aa.py", "x/aba.py"], ["a.py"]),
        ("src/[id]/{only}.tsx", ["src/[id]/{only}.tsx"], ["src/i/only.tsx"]),
        ("a+b/[c]", ["a+b/[c]", "a+b/[c]/d"], ["aab/c"]),
    ],
)
def test_an_area_is_a_file_a_directory_or_a_pattern(area: str, inside: list[str], elsewhere: list[str]) -> None:
    assert [path for path in inside if not covers(area, path)] == []
    assert [path for path in elsewhere if covers(area, path)] == []


@pytest.mark.parametrize(
    ("area", "same", "others"),
    [
        ("ci/**", ["ci/x", "CI/x", "Ci./x", "c\u200ci/x", "CI"], ["c/x", "cix/y"]),
        ("caf\u00e9/a.py", ["cafe\u0301/A.py", "CAF\u00c9/a.py "], ["cafe/a.py"]),
        (".github/workflows/*.yml", [".GitHub/Workflows/a.yml"], [".github/workflows/a.YML"]),
        ("Test*", ["TestArea.java", "x/TestArea.java"], ["tests/a.py", "testing.py"]),
        ("*.pem", ["a.pem", "x/a.pem"], ["pem"]),
    ],
)
def test_a_guard_takes_names_for_the_same_that_some_file_system_does(
    area: str, same: list[str], others: list[str]
) -> None:
    assert [path for path in same if not guards(area, path)] == []
    assert [path for path in others if guards(area, path)] == []


@pytest.mark.parametrize(
    ("area", "link", "leads"),
    [
        (".github/workflows/**", ".github", True),
        (".github/workflows/**", ".GITHUB", True),
        (".github/**/x.yml", ".github", True),
        ("a/*/c", "a/b", True),
        ("a/b", "a/b", False),
        ("a/b/c", "a/c", False),
        ("**/x", "a", False),
        ("*.pem", "a", False),
        ("a", "a/b", False),
    ],
)
def test_a_link_above_an_area_leads_into_it(area: str, link: str, leads: bool) -> None:
    assert leads_into(area, link) is leads
    assert (outside(Plan(nodes=(), forbidden_areas=(area,)), [link], [link]) != {}) is (leads or covers(area, link))


def test_what_is_forbidden_stays_so_where_more_is_allowed() -> None:
    plan = Plan(nodes=(), allowed_areas=("src",), forbidden_areas=("src/secret",))
    paths = ("src/a.py", "src/secret/b.py", "docs/c.md")
    assert outside(plan, paths) == {"src/secret/b.py": FORBIDDEN, "docs/c.md": ALLOWED}


def test_allowed_areas_that_are_not_enforced_leave_the_forbidden_ones() -> None:
    plan = Plan(nodes=(), allowed_areas=("src",), forbidden_areas=("src/secret",))
    assert outside(plan, ["a.py", "src/secret/b.py"], enforce_allowed=False) == {"src/secret/b.py": FORBIDDEN}


def test_a_plan_without_areas_allows_everything() -> None:
    assert outside(Plan(nodes=()), ("a", "b")) == {}
    assert outside(None, ("a",)) == {}


@pytest.mark.parametrize(
    ("area", "path"),
    [
        ("**/" * 40 + "x.py", "a/" * 200 + "y"),
        ("a*" * 60 + "b", "a" * 250),
        ("{a,b}" * 40, "c"),
        ("{" + "," * 100_000, "c"),
        ("**/a*/" * 30 + "b", "a/" * 300),
    ],
)
def test_no_area_takes_long_to_be_held_against_a_path(area: str, path: str) -> None:
    began = time.process_time()
    assert not covers(area, path)
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("area", "wrong"), [("/src", True), ("~/src", True), ("src/../lib", True), ("src/..x", False), ("a b/*.py", False)]
)
def test_an_area_that_lies_nowhere_in_the_repository_is_known(area: str, wrong: bool) -> None:
    assert misnamed(area) is wrong
