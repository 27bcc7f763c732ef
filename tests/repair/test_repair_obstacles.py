"""Failures that no search can repair are reported before one is tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from repair_kit import Bench

from codepilot.core.failures import FailureKind
from codepilot.repair import obstacle
from codepilot.repair.localise import TestTrace
from codepilot.repair.python.obstacles import missing_name, unparsed
from codepilot.repair.selection import nothing_to_edit

Open = Callable[[Mapping[str, str | bytes]], Bench]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("cannot import name 'net' from 'shop.price' (/w/shop/price.py)", "shop.price.net"),
        ("No module named 'shop.tax'", "shop.tax"),
        ("module 'shop' has no attribute 'tax'", "shop.tax"),
        ("type object 'Cart' has no attribute 'of'", "Cart.of"),
        ("'Cart' object has no attribute 'total'", "Cart.total"),
        ("name 'vat' is not defined", "vat"),
    ],
)
def test_the_missing_name_is_read_from_the_message(message: str, text: str) -> None:
    found = missing_name(message)
    assert found is not None and found.text == text


def test_a_file_that_does_not_parse_is_named_with_its_line() -> None:
    log = '  File "/w/test_a.py", line 1, in <module>\n    import shop\n  File "/w/shop.py", line 3\n    def f(:\n'
    log += "          ^\nSyntaxError: invalid syntax\n"
    assert unparsed(log, "/w") == "shop.py:3: SyntaxError: invalid syntax"
    assert unparsed("ValueError: no", "/w") == ""


def test_a_test_of_code_that_does_not_exist_is_distinguished_from_a_bug(bench: Open) -> None:
    tests = (
        "import shop\n\n\n"
        "def test_new():\n    assert shop.discount(100) == 90\n\n\n"
        "def test_method():\n    assert shop.Cart().total_weight() == 0\n\n\n"
        "def test_none():\n    assert shop.find('x').upper() == 'X'\n\n\n"
        "def test_typo():\n    assert shop.net(119) == 100\n"
    )
    code = "class Cart:\n    pass\n\n\ndef find(name):\n    return None\n\n\n"
    code += "def net(gross):\n    return gros * 100 / 119\n"
    project = bench({"shop.py": code, "test_shop.py": tests})
    output = {}
    for test in project.baseline.red:
        found = obstacle(project.executor, "w", project.project, project.baseline, (test,))
        output[test.partition("::")[2]] = found.message if found else ""
    assert "needs `shop.discount`, which the repository does not define" in output["test_new"]
    assert "`Cart.total_weight`" in output["test_method"] and "cannot write new functions" in output["test_method"]
    assert output["test_none"] == output["test_typo"] == ""


def test_a_name_that_only_a_parameter_has_is_not_defined(bench: Open) -> None:
    project = bench(
        {
            "shop.py": "def slug(title):\n    return title.lower()\n",
            "test_shop.py": "from shop import slug, title\n\n\ndef test_title():\n    assert title('a') == 'A'\n",
            "test_other.py": "def test_other():\n    pass\n",
        }
    )
    for named in ("test_shop.py", "test_shop.py::test_title"):
        found = obstacle(project.executor, "w", project.project, project.baseline, (named,))
        assert found is not None
        assert "needs `shop.title`, which the repository does not define. The embedded agent" in found.message


def test_a_search_without_candidates_says_why() -> None:
    def why(lines: Mapping[str, frozenset[int]], *unread: str) -> str:
        return nothing_to_edit([TestTrace("t", "failed", lines=lines)], lambda path: "test" in path, unread)

    assert "runs no Python file of the repository" in why({})
    assert "only files that judge a repair (tests/util.py)" in why({"tests/util.py": frozenset({1})})
    assert "cannot be edited safely: a.py: null bytes" in why({"a.py": frozenset({1})}, "a.py: null bytes")
    assert "no template fits what the failing test runs (a.py)" in why({"a.py": frozenset({1})})


def test_what_fails_when_a_test_is_loaded_is_named_with_its_line(bench: Open) -> None:
    files = {
        "shop.py": "RATE = 'a' - 'b'\n\n\ndef net(x):\n    return x\n",
        "test_shop.py": "import shop\n\n\ndef test_net():\n    assert shop.net(1) == 1\n",
    }
    project = bench({**files, "test_other.py": "def test_other():\n    pass\n"})
    found = obstacle(project.executor, "w", project.project, project.baseline, ("test_shop.py",))
    assert found is not None and found.kind is FailureKind.STUCK
    assert "test_shop.py cannot be loaded: TypeError: unsupported operand" in found.message
    assert "line 1 of shop.py" in found.message


def test_a_module_of_another_part_of_the_repository_is_named_with_its_place(bench: Open) -> None:
    files = {
        "parts/api/src/api/__init__.py": "",
        "parts/api/tests/test_api.py": "import api\n\n\ndef test_x():\n    pass\n",
    }
    project = bench({**files, "test_other.py": "def test_other():\n    pass\n"})
    test = "parts/api/tests/test_api.py"
    found = obstacle(project.executor, "w", project.project, project.baseline, (test,))
    assert found is not None and found.kind is FailureKind.ENVIRONMENT_MISSING
    assert "needs the module `api`, which lies in parts/api/src" in found.message
    assert "codepilot fix parts/api`" in found.next_action


def test_a_module_of_the_top_directory_is_named_with_its_place(bench: Callable[..., Bench]) -> None:
    files = {
        "top/__init__.py": "",
        "plugins/one/pyproject.toml": '[project]\nname = "one"\nversion = "1"\n',
        "plugins/one/test_one.py": "import top\n\n\ndef test_x():\n    pass\n",
        "plugins/one/test_other.py": "def test_other():\n    pass\n",
    }
    project = bench(files, part="plugins/one")
    test = "plugins/one/test_one.py"
    found = obstacle(project.executor, "w", project.project, project.baseline, (test,))
    assert found is not None and found.kind is FailureKind.ENVIRONMENT_MISSING
    assert "needs the module `top`, which lies in the top directory, and the project in plugins/one" in found.message
    assert "`pythonpath` of pytest" in found.next_action
