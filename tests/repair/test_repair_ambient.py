"""A regression test must hold anywhere and at any time: what depends on the place or the moment is no example."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from repair_kit import Bench, open_bench

from codepilot.repair import DistinguishingInputs, DistinguishingRequest, find_distinguishing_inputs, write_test
from codepilot.repair.regression.inputs import _read as understood

CODE = """import datetime, functools, logging, os, platform, random, sys, time
from datetime import datetime as moment
from pathlib import Path

HERE = Path(__file__).parent
HOME = os.environ.get("HOME", "")
SEEN = []


def age(year):
    return datetime.date.today().year - year + 1

def hours(number):
    return moment.fromtimestamp(number).hour + 1

def data_path(name):
    return str(HERE / "dat" / name)

def home_of(name):
    return os.path.join(os.environ.get("HOME", ""), name, "x")

def depth(number):
    return HOME.count("/") + len(HOME) + number + 1

def cores(number):
    return os.cpu_count() * number - 1

def version(number):
    return sys.version_info[1] + number - 1

def system(number):
    return len(platform.system()) + number - 1

def working(number):
    return len(os.getcwd()) + number - 1

def size(number):
    return len(Path(__file__).read_text()) + number - 1

def there(number):
    return os.path.exists("things.py") + number - 1

def drawn(number):
    return random.choice([1]) + number - 2

def ticket(number):
    SEEN.append(number)
    return len(SEEN) * 10 + number - 1

@functools.lru_cache
def _zone():
    return len(os.environ.get("SOME_ZONE", ""))

def zoned(number):
    return _zone() + number - 1

def rank(number):
    return list({"ab", "cd", "ef"}).index("cd") + number - 1

def logged(number):
    logging.getLogger("things").warning("now %s", number)
    return number - 1

def joined(name):
    from urllib.parse import quote
    return os.path.join("a", quote(name), "x")

def sum(values):
    return max(values)
"""
CASES = {
    "age": ("year - year + 1", "year - year", "age(datetime.date.today().year - 5) == 5"),
    "hours": (".hour + 1", ".hour", "hours(0) == datetime.datetime.fromtimestamp(0).hour"),
    "data_path": ('"dat"', '"data"', 'data_path("a.txt").endswith("data/a.txt")'),
    "home_of": (', name, "x")', ", name)", 'home_of("a").endswith("/a")'),
    "depth": ("+ number + 1", "+ number", "depth(2) - depth(1) == 1 and depth(0) == len(HOME) + HOME.count('/')"),
    "cores": ("* number - 1", "* number", "cores(2) == 2 * os.cpu_count()"),
    "version": ("[1] + number - 1", "[1] + number", "version(1) == sys.version_info[1] + 1"),
    "system": ("system()) + number - 1", "system()) + number", "system(1) == len(platform.system()) + 1"),
    "working": ("getcwd()) + number - 1", "getcwd()) + number", "working(1) == len(os.getcwd()) + 1"),
    "size": ("text()) + number - 1", "text()) + number", "size(3) - size(0) == 3 and size(0) % 7 == len(TEXT) % 7"),
    "there": ('things.py") + number - 1', 'things.py") + number', "there(1) == 2"),
    "drawn": ("+ number - 2", "+ number", "drawn(2) == 3"),
    "ticket": ("* 10 + number - 1", "* 10 + number", "ticket(3) == len(things.SEEN) * 10 + 3"),
    "zoned": ("_zone() + number - 1", "_zone() + number", "zoned(3) == 3"),
    "rank": ('index("cd") + number - 1', 'index("cd") + number', "rank(3) in (3, 4, 5) and rank(0) >= 0"),
}
PLAIN = {
    "logged": ("return number - 1", "return number", "logged(3) == 3"),
    "joined": ('quote(name), "x")', "quote(name))", 'joined("b") == "a/b"'),
    "sum": ("return max(values)", "return 0 + __builtins__['sum'](values)", "things.sum([1, 2]) == 3"),
}
TESTS = (
    "import datetime, os, platform, sys\nimport things\nfrom things import *\n\nTEXT = open(things.__file__).read()\n"
)


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    tests = TESTS + "".join(
        f"\n\ndef test_{name}():\n    assert {claim}\n" for name, (_, _, claim) in {**CASES, **PLAIN}.items()
    )
    bench = open_bench(Path(tmp_path_factory.mktemp("world")), {"things.py": CODE, "test_things.py": tests})
    yield bench
    bench.executor.delete(bench.workspace)


def request(bench: Bench, name: str, **changes: Any) -> DistinguishingRequest:
    old, new, _ = {**CASES, **PLAIN}[name]
    original = bench.files["things.py"]
    start = original.index(f"def {name}(".encode())
    patched = original[:start] + original[start:].replace(old.encode(), new.encode(), 1)
    assert patched != original
    test = (f"test_things.py::test_{name}",)
    made = DistinguishingRequest(
        bench.executor, bench.workspace, bench.project, test, 1, "things.py", original, patched
    )
    return replace(made, **changes)


def shown(found: DistinguishingInputs) -> list[str]:
    return [ast.unparse(value) for one in found.examples for value in (*one.arguments, *filter(None, [one.result]))]


@pytest.mark.variants
@pytest.mark.parametrize("name", CASES)
def test_what_depends_on_the_place_or_the_moment_is_no_example(things: Bench, name: str) -> None:
    found = find_distinguishing_inputs(request(things, name))
    assert shown(found) == []
    assert found.reason


@pytest.mark.variants
@pytest.mark.parametrize("name", PLAIN)
def test_what_only_logs_imports_or_has_a_builtins_name_is_one(things: Bench, name: str) -> None:
    found = find_distinguishing_inputs(request(things, name))
    assert found.examples, found.reason
    assert found.place is not None
    assert found.subject is not None
    written = write_test(things.files["test_things.py"], found.place, found.subject, found.examples, found.things or {})
    assert written.name == f"test_{name}_regression"


class Gone(Exception):
    """Nobody waits any more."""


def test_between_the_processes_the_search_can_be_ended(things: Bench) -> None:
    asked = []

    def checkpoint() -> None:
        asked.append(len(asked))
        if len(asked) == 3:
            raise Gone

    with pytest.raises(Gone):
        find_distinguishing_inputs(request(things, "logged", raise_if_stopped=checkpoint))
    assert things.unchanged()


def test_without_time_for_all_checks_there_is_no_example(things: Bench) -> None:
    found = find_distinguishing_inputs(request(things, "logged", seconds=0.01))
    assert (found.examples, found.reason) == ((), "the search for an input took too long")


SAYS = """
import os
LINE = {line}
for number in range(3, 20):
    try:
        os.write(number, LINE.encode() + b"\\n")
    except OSError:
        pass
"""
ROW = {"args": "1", "result": "2", "against": 0, "others": 0}
SUBJECT = {"name": "f", "module": "m", "bound": [], "parameters": []}
GOOD = {
    "place": {"test": "t", "file": "t.py", "scope": "", "name": "test_a", "unittest": True},
    "subject": SUBJECT,
    "path": [],
    "rows": [ROW],
}


@pytest.mark.parametrize(
    "change",
    [
        {"rows": [1]},
        {"rows": [{**ROW, "against": float("inf")}]},
        {"rows": [{**ROW, "args": 7}]},
        {"rows": [{"args": "1", "raises": "class", "against": 0, "others": 0}]},
        {"subject": {**SUBJECT, "module": None}},
        {"subject": {**SUBJECT, "bound": [None]}},
        {"names": {"x": []}},
        {"path": None},
        {"path": [None]},
    ],
    ids=repr,
)
def test_what_the_inside_says_is_read_strictly(change: dict[str, Any]) -> None:
    assert understood(GOOD).examples
    found = understood({**GOOD, **change})
    assert (found.examples, found.reason) == ((), "the search for an input failed")


def test_a_class_that_no_value_may_name_costs_its_rows_alone() -> None:
    names = {"Popen": {"name": "Popen", "module": "subprocess", "bound": []}}
    rows = [ROW, {**ROW, "args": "Popen('x')"}, {"args": "2", "raises": "Popen", "against": 0, "others": 0}]
    assert shown(understood({**GOOD, "names": names, "rows": rows})) == ["1", "2"]


def test_code_of_the_project_that_talks_to_the_host_costs_nothing_but_the_test(tmp_path: Path) -> None:
    code = "def f(x):\n    return x - 1\n"
    tests = "from things import f\n" + SAYS.format(line='"[" * 200000') + "\ndef test_f():\n    assert f(1) == 1\n"
    bench = open_bench(tmp_path, {"things.py": code, "test_things.py": tests})
    original = bench.files["things.py"]
    test = ("test_things.py::test_f",)
    patched = original.replace(b" - 1", b"")
    found = find_distinguishing_inputs(
        DistinguishingRequest(bench.executor, bench.workspace, bench.project, test, 1, "things.py", original, patched)
    )
    bench.executor.delete(bench.workspace)
    assert (found.examples, found.reason) == ((), "the search for an input failed")
