"""Where a plan lets a change be made."""

from __future__ import annotations

import pytest

from codepilot.core.areas import ALLOWED, FORBIDDEN, covers, outside
from codepilot.core.plan import Plan


@pytest.mark.parametrize(
    ("area", "inside", "beside"),
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
        ("a+b/[c]", ["a+b/[c]", "a+b/[c]/d"], ["aab/c"]),
    ],
)
def test_an_area_is_a_file_a_directory_or_a_pattern(area: str, inside: list[str], beside: list[str]) -> None:
    assert [path for path in inside if not covers(area, path)] == []
    assert [path for path in beside if covers(area, path)] == []


def test_what_is_forbidden_stays_so_where_more_is_allowed() -> None:
    plan = Plan(nodes=(), allowed_areas=("src",), forbidden_areas=("src/secret",))
    paths = ("src/a.py", "src/secret/b.py", "docs/c.md")
    assert outside(plan, paths) == {"src/secret/b.py": FORBIDDEN, "docs/c.md": ALLOWED}


def test_a_plan_without_areas_allows_everything() -> None:
    assert outside(Plan(nodes=()), ("a", "b")) == {}
    assert outside(None, ("a",)) == {}
