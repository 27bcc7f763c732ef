"""Edits touch their span and nothing else, whatever the encoding and the line ends."""

from __future__ import annotations

import ast
import itertools
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codepilot.repair.backend import Failure
from codepilot.repair.edit import Edit, Unreadable
from codepilot.repair.localise import Suspicion
from codepilot.repair.python.enumerate import candidates
from codepilot.repair.python.source import PythonSource

ROWS = ("def f(x):", "    # Grüße, naïve", "    y = 'ä' + x", "    return y", "", "class C:", "    def m(self):")
TEXT = "\n".join((*ROWS, "        return f('é')", ""))
ENCODINGS = {
    "utf-8": TEXT.encode(),
    "bom": b"\xef\xbb\xbf" + TEXT.encode(),
    "crlf": TEXT.replace("\n", "\r\n").encode(),
    "latin-1": ("# -*- coding: latin-1 -*-\n" + TEXT).encode("latin-1"),
    "shift_jis": "# coding: shift_jis\nx = '日本'\ny = x + '語'\n".encode("shift_jis"),
}


@pytest.mark.parametrize("data", ENCODINGS.values(), ids=ENCODINGS)
@given(choice=st.data())
def test_bytes_outside_the_edited_node_stay(data: bytes, choice: st.DataObject) -> None:
    source = PythonSource.read("m.py", data)
    nodes = [node for node in ast.walk(source.tree) if isinstance(node, ast.expr)]
    node = choice.draw(st.sampled_from(nodes))
    start, end = source.span(node)
    assert ast.dump(ast.parse(source.text[start:end], mode="eval").body) == ast.dump(
        ast.parse(ast.unparse(node), mode="eval").body
    )
    patched = source.apply(Edit(start, end, "other", "t"))
    assert patched is not None
    old = source.text[start:end].encode(source.encoding)
    at = patched.index(b"other")
    assert patched[:at] + old + patched[at + 5 :] == data


def test_text_the_encoding_lacks_is_no_edit() -> None:
    source = PythonSource.read("m.py", ENCODINGS["latin-1"])
    assert source.apply(Edit(0, 0, "'日本'", "t")) is None


@pytest.mark.parametrize("data", [b"def f(:", b"# coding: nonsense\n", b"x = '\xff'\n", b"x\0y"])
def test_a_file_that_python_refuses_is_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        PythonSource.read("m.py", data)


UNITS = """
class A:
    class B:
        @staticmethod
        def f(x):
            return x

if True:
    def g():
        def inner():
            return 1
        return inner
try:
    pass
except E:
    def h(): return 2
"""


def test_units_compile_alone_with_their_own_line_numbers() -> None:
    source = PythonSource.read("m.py", UNITS.encode())
    assert [unit.qualname for unit in source.units] == ["A.B.f", "g", "h"]
    for unit in source.units:
        tree = ast.parse(unit.segment())
        ast.increment_lineno(tree, unit.line_shift)
        found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == unit.node.name]
        assert found[0].lineno == unit.node.lineno
        assert ast.dump(found[0].body[0]) == ast.dump(unit.node.body[0])
    assert source.units[0].first_line == 4


def test_edits_of_the_body_and_of_the_signature_can_be_swapped_but_not_those_of_decorators() -> None:
    source = PythonSource.read("m.py", b"@g\ndef f(x=[]):\n    return x\n")
    (unit,) = source.units
    assert unit.holds(Edit(27, 28, "y", "t"))
    assert unit.holds(Edit(11, 13, "None", "t"))
    assert not unit.holds(Edit(1, 2, "h", "t"))
    assert unit.segment()[unit.body_place :] == "    return x\n"


def test_a_statement_that_is_data_is_no_place_for_edits() -> None:
    text = f"TABLE = [{'1, ' * 30_000}]\nSIZE = 3\n\n\ndef f(a):\n    return TABLE[a] + SIZE\n"
    source = PythonSource.read("m.py", text.encode())
    found = list(itertools.islice(candidates({"m.py": source}, Suspicion({"m.py": {6: 1.0}}), Failure()), 3000))
    assert {one.line for one in found} >= {2, 6} and 1 not in {one.line for one in found}


def test_edits_of_some_functions_and_of_the_rest_are_all_edits_in_their_order() -> None:
    text = b"SIZE = 3\n\n\n@print\ndef f(a, b=SIZE + 1):\n    return a + SIZE\n\n\ndef g(a):\n    return SIZE - a\n"
    source = PythonSource.read("m.py", text)
    made = partial(candidates, {"m.py": source}, Suspicion({"m.py": {6: 1.0, 10: 0.5}}), Failure())
    key = [(one.edit, one.score, one.unit) for one in made()]
    some = [
        (one.edit, one.score, one.unit)
        for one in made(wanted=lambda source, unit: unit is not None and unit.node.name == "f")
    ]
    rest = [
        (one.edit, one.score, one.unit)
        for one in made(wanted=lambda source, unit: unit is None or unit.node.name != "f")
    ]
    assert some == [one for one in key if one[2] is not None and one[2].node.name == "f"]
    assert rest == [one for one in key if one not in some] and {one[2] for one in rest} == {None, source.units[1]}


def test_columns_of_lines_that_are_not_ascii_count_characters() -> None:
    source = PythonSource.read("m.py", 'x = ("ä", "ß€", "𝄞", a)\ny = 1\n'.encode())
    names = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name | ast.Constant)]
    assert [source.segment(node) for node in names] == ["x", "y", "1", '"ä"', '"ß€"', '"𝄞"', "a"]
