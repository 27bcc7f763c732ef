"""What speaks for a candidate next to its tests: documentation, and agreement with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repair_kit import Bench

from codepilot.repair.edit import Edit, Proposal
from codepilot.repair.messages import Evidence
from codepilot.repair.python.documentation import examples
from codepilot.repair.python.source import PythonSource
from codepilot.repair.rank import Plausible, rank

Open = Callable[[Mapping[str, str | bytes]], Bench]
SOURCE = PythonSource.read("m.py", b"def f(a, b):\n    c = a + b\n    return c < 100\n")


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (">>> f(1, [2])\n[3]", ("f(1, [2])", "[3]")),
        ("For f('a)') == 'b' you get it", None),
        ("f(3) ➞ True", ("f(3)", "True")),
        ("f((1, 2), x=3) => 'a, b'", ("f((1, 2), x=3)", "'a, b'")),
        ("f([]) should return None.", ("f([])", "None")),
        ("f(5) -> 7  # seven", ("f(5)", "7")),
        ("f(5) -> os.getcwd()", None),
        ("g(5) -> 7", None),
        (">>> round(f(1), 2)\n0.5", ("round(f(1), 2)", "0.5")),
    ],
)
def test_examples_are_read_where_they_are_plain(row: str, found: tuple[str, str] | None) -> None:
    assert examples(f"Says something.\n\n{row}\n", "f") == ((found,) if found else ())


@given(st.text(max_size=80))
def test_any_text_may_stand_in_a_docstring(text: str) -> None:
    assert len(examples(text, "f")) <= 12


def plausible(position: int, template: str, evidence: Evidence, score: float = 0.5) -> Plausible:
    edit = Edit(21, 26, f"a - {position}", template)
    patched = SOURCE.apply(edit)
    assert patched is not None
    return Plausible(Proposal(position, SOURCE, SOURCE.units[0], edit, score, 2), patched, 3, 0, evidence)


def test_a_candidate_that_breaks_the_documentation_comes_last() -> None:
    broken = plausible(0, "operator.binary", Evidence(2, 1, "x"), 0.9)
    kept = plausible(1, "operator.binary", Evidence(2, 2, "y"), 0.4)
    assert [ranked.one for ranked in rank([broken, kept])] == [kept, broken]
    assert not broken.trusted and kept.trusted


def test_different_edits_that_do_the_same_testify_for_each_other() -> None:
    lone = plausible(0, "operator.binary", Evidence(0, 0, "x"), 0.6)
    cluster = [
        plausible(n, template, Evidence(0, 0, "y"), 0.4) for n, template in ((1, "value.range"), (2, "value.cut"))
    ]
    assert [ranked.one for ranked in rank([lone, *cluster])] == [cluster[0], lone, cluster[1]]
    alike = [replace(one, proposal=replace(one.proposal, edit=lone.proposal.edit)) for one in cluster]
    assert rank([lone, *alike])[0][0] is lone


def test_the_documentation_decides_between_repairs_that_pass(bench: Open) -> None:
    text = (
        'def share(total, people):\n    """What each gets.\n\n    >>> share(10, 4)\n    2.5\n'
        "    >>> share(7, 7)\n    1.0\n"
        '    """\n    return total * people\n'
    )
    tests = "from share import share\n\n\ndef test_share():\n    assert share(6, 3) == 2\n    assert share(0, 9) == 0\n"
    project = bench({"share.py": text, "test_share.py": tests})
    result = project.search()
    assert b"return total / people" in result.candidates[0].patched
