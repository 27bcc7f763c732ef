"""Classifies files as tests by their paths, for review, context, repair and agents."""

from __future__ import annotations

from itertools import pairwise
from pathlib import PurePosixPath

TEST_DIRECTORIES = frozenset({"tests", "__tests__"})
SCRIPT_FOLDERS = frozenset({"test", "spec", "specs", "e2e", "cypress", "__mocks__", "__snapshots__"})
SCRIPTS = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".snap")
TEST_PATTERNS = (
    "*Spec.[jt]s",
    *("test_*.py", "*_test.py", "tests.py", "test.py", "*.test.*", "*.spec.*"),
    *(
        f"*{end}.{kind}"
        for end in ("Test", "Tests", "TestCase", "[a-z0-9]IT", "Spec")
        for kind in ("java", "kt", "groovy", "scala")
    ),
)


def is_test_file(path: str) -> bool:
    """True if a file holds tests, by its name alone."""
    pure = PurePosixPath(path)
    return any(pure.match(pattern) for pattern in TEST_PATTERNS)


def is_test(path: str) -> bool:
    """True if a path is a test, or a helper or data file next to tests."""
    pure = PurePosixPath(path)
    folders = [part.lower() for part in pure.parts[:-1]]
    if TEST_DIRECTORIES & set(folders):
        return True
    # Deeper down, `test` is often a package that a product ships; in JavaScript it is where a package's tests are.
    if folders[:1] == ["test"] or "src/test" in "/".join(folders):
        return True
    if pure.suffix in SCRIPTS and SCRIPT_FOLDERS & set(folders):
        return True
    if any(place == "src" and source.endswith("Test") for place, source in pairwise(pure.parts[:-1])):
        return True
    return is_test_file(path)
