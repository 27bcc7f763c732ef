"""Which files judge a repair: tests, what lies among them, and what configures their runner. None is ever edited."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

_TEST_FOLDER = re.compile(r"(?:^|[_-])(?:unit)?test(?:s|ing|case|cases|data|_data|suite)?$")
_NAMES = frozenset(
    ("conftest.py", "tests.py", "test.py", "setup.py", "noxfile.py", "sitecustomize.py", "usercustomize.py")
)
_SETTINGS = (".ini", ".cfg", ".toml", ".pth")


class TestFiles:
    """The files of these tests (node ids of pytest, dotted ids of unittest) and those that any runner takes for such.

    unittest names modules as they are seen from where it looks for tests, so that is how they are compared.
    """

    __test__ = False

    def __init__(self, tests: Iterable[str], runner: str = "pytest") -> None:
        self._starts = "test" if runner == "unittest" else "test_"
        ids = [test for test in tests if test]
        self._paths = {test.partition("::")[0] for test in ids if not _dotted(test) and not _is_doctest(test)}
        self._modules = {module for test in ids if _dotted(test) for module in _modules(test)}
        self._known: dict[str, bool] = {}

    def __contains__(self, path: str) -> bool:
        if path not in self._known:
            self._known[path] = self._judges(path)
        return self._known[path]

    def _judges(self, path: str) -> bool:
        pure = PurePosixPath(path)
        if pure.name.startswith(self._starts) or pure.name.endswith("_test.py") or pure.name in _NAMES:
            return True
        if pure.suffix in _SETTINGS or path in self._paths:
            return True
        parts = [*pure.parts[:-1], pure.stem] if pure.name != "__init__.py" else list(pure.parts[:-1])
        if any(".".join(parts[at:]) in self._modules for at in range(len(parts))):
            return True
        return any(_TEST_FOLDER.search(part.lower()) for part in pure.parts[:-1])


def file_of(test: str) -> str:
    """The unit that is loaded for the test: its file, or the module of a dotted id."""
    return test.rsplit(".", 2)[0] if _dotted(test) else test.partition("::")[0]


def _dotted(test: str) -> bool:
    return "::" not in test and "/" not in test and not test.endswith(".py")


def _is_doctest(test: str) -> bool:
    """True if pytest found the test in a docstring of a module: its name begins with that of the module."""
    path, _, name = test.partition("::")
    parts = PurePosixPath(path).with_suffix("").parts
    parts = parts[:-1] if parts[-1:] == ("__init__",) else parts
    modules = [".".join(parts[at:]) for at in range(len(parts))]
    return path.endswith(".py") and any(name == module or name.startswith(f"{module}.") for module in modules)


def _modules(test: str) -> Iterable[str]:
    """The module of `module.Case.test`; classes may be nested, and tests of classes are no tests of their package."""
    parts = test.split(".")[:-2]
    if parts:
        yield ".".join(parts)
    while len(parts) > 1 and parts[-1][:1].isupper():
        parts.pop()
        yield ".".join(parts)
