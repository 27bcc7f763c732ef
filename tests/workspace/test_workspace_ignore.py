"""Ignore rules: the same answers as git's own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from codepilot.workspace.ignore import IgnoreRules

PIECES = st.sampled_from(
    [
        *"abc*?/\\!# .-]^\r\t",
        "**",
        "/**/",
        "**/",
        "[ab]",
        "[!a]",
        "[^b]",
        "[a-c]",
        "[c-a]",
        "[]a]",
        "[[:alpha:]]",
        "[[:foo:]]",
        "[",
        "[a",
        "é",
        "[é]",
        "\\*",
        "\\ ",
        "[a-",
        "[\\]]",
        "[!]]",
        "[[:",
        "[--a]",
    ]
)
LINES = st.lists(PIECES, min_size=1, max_size=6).map("".join)
FILES = st.lists(LINES, min_size=1, max_size=5).flatmap(
    lambda lines: st.sampled_from(["", "\n", "\r\n"]).map(lambda end: "\n".join(lines) + end)
)
NAMES = st.one_of(
    st.sampled_from(["a", "b", "c"]),
    st.text(alphabet="abc.- é[]*\\!#", min_size=1, max_size=3).filter(lambda name: name not in (".", "..")),
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries({"": FILES}, optional={"a": FILES, "a/b": FILES}),
    st.lists(st.tuples(PATHS, st.booleans()), min_size=5, max_size=30),
)
@example({"": "a**/a"}, [("aa", False), ("ab/a", False), ("ab/c/a", False)])
@example({"": "b/a**/\\*c"}, [("b/a*c", False), ("b/ab/*c", False), ("b/a/*c", False)])
def test_the_answers_are_those_of_git(files: dict[str, str], wanted: list[tuple[str, bool]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        subprocess.run(["git", "init", "-q", "--template=", directory], check=True, timeout=300)
        for place, content in files.items():
            (root / place).mkdir(parents=True, exist_ok=True)
            (root / place / ".gitignore").write_bytes(content.encode())
        paths = _lay_out(root, wanted)
        done = subprocess.run(
            ["git", "check-ignore", "--no-index", "-z", "--stdin"],
            cwd=root,
            env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": "/dev/null"},
            input=b"\0".join(os.fsencode(path) for path, _ in paths),
            capture_output=True,
            timeout=300,
        )
        ignored = {os.fsdecode(raw) for raw in done.stdout.split(b"\0") if raw}
        rules = IgnoreRules.read({place: content.encode() for place, content in files.items()}, always=b"")
        assert {path for path, is_directory in paths if rules.ignores(path, is_directory)} == ignored


def _lay_out(root: Path, wanted: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Make the paths that can exist together; each with whether it is a directory."""
    made = {}
    for path, is_directory in wanted:
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            if is_directory:
                (root / path).mkdir(exist_ok=True)
            elif not (root / path).is_dir():
                (root / path).touch()
        except (FileExistsError, NotADirectoryError):
            continue
        made[path] = (root / path).is_dir()
    return list(made.items())


@pytest.mark.parametrize(
    ("path", "is_directory", "expected"),
    [
        ("build/out.o", False, True),
        ("src/build", False, False),
        ("keep.log", False, False),
        ("x.log", False, True),
        ("deep/down/x.log", False, True),
        ("vendor/keep.log", False, True),
        ("__pycache__/m.cpython-311.pyc", False, True),
        ("src/.pytest_cache", True, True),
        ("src/.pytest_cache", False, False),
    ],
)
def test_the_rules_people_write(path: str, is_directory: bool, expected: bool) -> None:
    rules = IgnoreRules.read({"": b"# built\n/build/\n*.log\n!keep.log\nvendor/\n"})
    assert rules.ignores(path, is_directory) is expected
