"""Missing logic: expressions that no template spells out are found over recorded states, inside the sandbox."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping

import pytest
from repair_kit import Bench, trial_of

from codepilot.repair.backend import Failure, SearchFacts
from codepilot.repair.edit import Edit
from codepilot.repair.localise import Suspicion
from codepilot.repair.python.context import Context
from codepilot.repair.python.sketches import sketches
from codepilot.repair.python.source import PythonSource
from codepilot.repair.python.synthesis import is_known, synthesise
from codepilot.repair.selection import TestSelector

Open = Callable[[Mapping[str, str | bytes]], Bench]
MODULE = textwrap.dedent(
    '''
    def pick(rows, limit):
        """The first rows."""
        found = []
        for row in rows:
            if row > limit:
                found.append(row)
            elif not row:
                break
            else:
                limit = (row +
                         1)
        return [one for one in found], limit >= 2 and len(rows)
    '''
)


def context(text: str = MODULE) -> Context:
    source = PythonSource.read("m.py", text.encode())
    return Context(source, source.units[0], Failure())


def test_every_sketch_is_a_program_when_its_hole_is_filled() -> None:
    here = context()
    lines = Suspicion({"m.py": dict.fromkeys(range(1, MODULE.count("\n") + 1), 1.0)})
    drawn = sketches(here, lines)
    texts = [here.source.apply(sketch.edit("limit or rows")).decode() for sketch in drawn]  # type: ignore[union-attr]
    for text in texts:
        compile(text, "m.py", "exec")
    assert len(set(texts)) > 100
    assert any("        elif limit or rows:\n            break\n        else:" in text for text in texts)
    assert any("if limit or rows:\n        return found\n    for row in rows:" in text for text in texts)
    assert any("for one in found if limit or rows]" in text for text in texts)
    assert any("(limit or rows) and len(rows)" in text for text in texts)


@pytest.mark.parametrize(
    "text", ["limit + len(rows)", "any(e > limit for e in rows)", "rows[0] is None", "'a'.join(rows)"]
)
def test_expressions_of_names_in_reach_are_taken(text: str) -> None:
    assert is_known(text, context())


@pytest.mark.parametrize(
    "text",
    [
        *("open('x')", "rows.__class__", "__import__('os')", "limit; rows", "", "eval(rows)", "x" * 400, "rows.pop()"),
        *("lambda: limit", "(limit := 3)", "f'{limit}'"),
    ],
)
def test_what_a_worker_says_is_taken_only_where_it_is_plain(text: str) -> None:
    assert not is_known(text, context())


def test_a_missing_branch_is_found_by_turning_answers(bench: Open) -> None:
    text = (
        "def fee(weight, distance, express):\n"
        "    cost = weight * 3\n"
        "    if express:\n"
        "        cost += 20\n"
        "    return cost\n"
    )
    cases = [
        (2, 5, False, 6),
        (4, 9, False, 32),
        (9, 3, False, 27),
        (9, 3, True, 47),
        (1, 1, False, 3),
        (3, 7, False, 29),
    ]
    rows = "".join(f"    assert fee({w}, {d}, {e}) == {cost}\n" for w, d, e, cost in cases)
    project = bench({"fee.py": text, "test_fee.py": f"from fee import fee\n\n\ndef test_fee():\n{rows}"})
    result = project.search()
    assert result.candidates, result.reason
    assert b"cost += 20" in result.candidates[0].patched
    assert project.unchanged()


@pytest.mark.variants
def test_a_missing_case_of_types_is_found_with_the_text_that_the_tests_spell_out(bench: Open) -> None:
    text = (
        "def name(kind):\n"
        "    if kind == int:\n"
        "        return 'integer'\n"
        "    elif kind == list:\n"
        "        return 'array'\n"
        "    return 'string'\n"
    )
    rows = "".join(
        f"    assert name({kind}) == {word!r}\n"
        for kind, word in (("int", "integer"), ("str", "string"), ("dict", "object"), ("list", "array"))
    )
    project = bench({"name.py": text, "test_name.py": f"from name import name\n\n\ndef test_name():\n{rows}"})
    result = project.search()
    assert result.candidates, result.reason
    assert b"kind == dict" in result.candidates[0].patched and b"'object'" in result.candidates[0].patched


@pytest.mark.variants
def test_a_missing_value_is_composed_of_several_parts(bench: Open) -> None:
    text = "def area(width, height, border):\n    inner = width * height\n    return inner\n"
    cases = [(w, h, b, w * h - b // 2) for w, h, b in ((4, 5, 3), (10, 10, 0), (10, 8, 9), (7, 9, 4))]
    rows = "".join(f"    assert area({w}, {h}, {b}) == {size}\n" for w, h, b, size in cases)
    project = bench({"area.py": text, "test_area.py": f"from area import area\n\n\ndef test_area():\n{rows}"})
    result = project.search()
    assert result.candidates and b"border // 2" in result.candidates[0].patched


def test_how_many_children_compose_changes_nothing(bench: Open) -> None:
    text = "def fare(age):\n    price = 9\n    if age > 60:\n        price = 5\n    return price\n"
    cases = [(30, 9), (70, 5), (3, 5), (12, 9), (5, 5), (6, 9)]
    rows = "".join(f"    assert fare({age}) == {price}\n" for age, price in cases)
    project = bench({"fare.py": text, "test_fare.py": f"from fare import fare\n\n\ndef test_fare():\n{rows}"})
    one, two = (_composed(project, "fare.py", places) for places in (1, 2))
    assert one == two and any("age <" in edit.replacement for edit in one)


def _composed(project: Bench, path: str, places: int) -> list[Edit]:
    targets, source = project.baseline.red, PythonSource.read(path, project.files[path])
    suspicion = Suspicion({path: dict.fromkeys(source.units[0].lines, 1.0)})
    with trial_of(project, places) as trial:
        trial.start()
        related = TestSelector(targets, trial.trace(project.baseline.collected, alone=targets))
        known = SearchFacts({path: source}, suspicion, Failure(), related)
        return [one.edit for one in synthesise(trial, known, 20.0, 0, lambda: False)]
