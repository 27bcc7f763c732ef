"""What the templates propose: each edit parses, stays in its span, and the well-known repairs are among them."""

from __future__ import annotations

import ast
import itertools
import textwrap
from collections.abc import Iterator
from functools import cache

import pytest

from codepilot.repair.backend import Failure
from codepilot.repair.edit import Edit
from codepilot.repair.localise import Suspicion
from codepilot.repair.python.context import Context
from codepilot.repair.python.enumerate import candidates
from codepilot.repair.python.priors import PRIORS
from codepilot.repair.python.sketches import PREFIX
from codepilot.repair.python.source import PythonSource
from codepilot.repair.python.templates import TEMPLATES

CORPUS = '''
"""A module."""
from __future__ import annotations

import copy

LIMIT = 10
NAMES = {"a": 1, "b": 2}


class Stack:
    shared = []

    def __init__(self, items=[], *, size: int = 3):
        self.items = items
        self.size = size

    @property
    def top(self):
        return self.items[-1] if self.items else None

    def push(self, item, /, *rest):
        if len(self.items) >= self.size and not rest: return False
        self.items.append(item); self.size += 1
        for other in rest:
            try:
                self.items.append(int(other))
            except (ValueError, TypeError) as error:
                raise KeyError(str(error)) from error
        else:
            pass
        return True

    async def drain(self):
        async for x in self.source():
            await x.close()
        with open(self.name) as f, self.lock:
            yield f


def middle(values, key=None, *args, **kwargs):
    """Docstring."""
    total = 0
    seen, best = set(), None
    grid = [[0] * 3] * len(values)
    while total < LIMIT or best is None:
        for i in range(1, len(values) - 1):
            if values[i] in seen:
                continue
            elif values[i - 1] > values[i + 1] and key is not None:
                best = max(values[i:], key=lambda v: -v)
                break
            else:
                total = total + values[i] * 2 ** i  # weight
            seen.add(values[i])
        total -= NAMES.get("a", 0) // 2 % 3
    text = f"{total:>{LIMIT}} of {best!r}".strip().lower()
    if (count := NAMES.get(text)):
        total += count
    match text:
        case "x" if total:
            return {k: v for k, v in NAMES.items() if v}
        case _:
            del grid[0]
    return [c.upper() for c in text if c.isalpha()][::-1] or sorted(seen, reverse=True)
'''


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_edits_parse_and_keep_to_their_span(template: object, newline: str) -> None:
    source, contexts = _corpus(newline)
    for context in contexts:
        for node in ast.walk(context.root):
            if isinstance(node, template.nodes):  # type: ignore[attr-defined]
                for edit in itertools.islice(template.edits(node, context), 4):  # type: ignore[attr-defined]
                    _check(source, edit, newline)


@cache
def _corpus(newline: str) -> tuple[PythonSource, list[Context]]:
    source = PythonSource.read("m.py", CORPUS.replace("\n", newline).encode())
    inner = [Context(source, unit, Failure(("KeyError",))) for unit in source.units]
    return source, [*inner, Context(source, None)]


def _check(source: PythonSource, edit: Edit, newline: str) -> None:
    patched = source.apply(edit)
    assert patched is not None and patched != source.data
    head, tail = source.data[: edit.start], source.data[edit.end :]
    assert patched == head + edit.replacement.encode() + tail
    assert b"\n" not in patched.replace(newline.encode(), b"") or newline == "\n"
    unit = source.unit_at(edit.start)
    ast.parse(unit.segment(edit) if unit and unit.holds(edit) else patched)


def test_every_template_has_a_prior_and_no_prior_is_left_over() -> None:
    sketched = {name for name in PRIORS if name.startswith(PREFIX)}
    assert {template.name for template in TEMPLATES} | sketched == set(PRIORS)


def proposals(text: str, limit: int = 3000, failure: Failure | None = None) -> Iterator[str]:
    source = PythonSource.read("m.py", textwrap.dedent(text).encode())
    lines = Suspicion({"m.py": dict.fromkeys(range(1, text.count("\n") + 2), 1.0)})
    found = itertools.islice(candidates({"m.py": source}, lines, failure or Failure()), limit)
    return (ast.unparse(ast.parse(source.apply(one.edit) or b"")) for one in found)


REPAIRS = {
    "boundary": ("def f(a, b):\n    return a < b\n", "def f(a, b):\n    return a <= b\n"),
    "operator": ("def f(a, b):\n    return a + b * 2\n", "def f(a, b):\n    return a - b * 2\n"),
    "boolean": ("def f(a, b):\n    return a and b\n", "def f(a, b):\n    return a or b\n"),
    "middle": ("def f(a, b):\n    return (-1) ** 2 * len(a)\n", "def f(a, b):\n    return (-1) ** len(a)\n"),
    "augmented": ("def f(x):\n    x -= 2\n    return x\n", "def f(x):\n    x //= 2\n    return x\n"),
    "constant": ("def f(x):\n    return x % 3\n", "def f(x):\n    return x % 4\n"),
    "off by one": ("def f(x):\n    return x[len(x)]\n", "def f(x):\n    return x[len(x) - 1]\n"),
    "range": (
        "def f(n):\n    for i in range(n):\n        g(i)\n",
        "def f(n):\n    for i in range(1, n + 1):\n        g(i)\n",
    ),
    "variable": ("def f(a, b):\n    return a[a]\n", "def f(a, b):\n    return a[b]\n"),
    "attribute": (
        "class C:\n    def g(self):\n        self.a = self.b = 1\n    def f(self):\n        return self.a\n",
        "class C:\n    def g(self):\n        self.a = self.b = 1\n    def f(self):\n        return self.b\n",
    ),
    "negate": ("def f(a):\n    if a:\n        return 1\n", "def f(a):\n    if not a:\n        return 1\n"),
    "strengthen": (
        "def f(i, n):\n    while n > 1:\n        n -= i\n",
        "def f(i, n):\n    while n > 1 and i > 0:\n        n -= i\n",
    ),
    "filter": ("def f(x):\n    return [v for v in x]\n", "def f(x):\n    return [v for v in x if v > 0]\n"),
    "combine": ("def f(x, n):\n    return g(x)\n", "def f(x, n):\n    return g(x * n)\n"),
    "attribute of the same object": (
        "class L:\n    price: int\n    count: int\ndef f(x):\n    a = 0\n    for v in x:\n        a = a + v.price\n",
        "class L:\n    price: int\n    count: int\ndef f(x):\n    a = 0\n    for v in x:\n"
        "        a = a + v.price * v.count\n",
    ),
    "normal form": (
        "def f(name):\n    'Say it.'\n    return 'hello ' + name\n",
        "def f(name):\n    'Say it.'\n    name = name.strip().lower()\n    return 'hello ' + name\n",
    ),
    "normal form by a function": (
        "def g(t):\n    return t.split()\ndef f(a, b):\n    return h(a, b)\n",
        "def g(t):\n    return t.split()\ndef f(a, b):\n    b = g(b)\n    return h(a, b)\n",
    ),
    "next round": (
        "def f(x, d):\n    for v in x:\n        if v not in d:\n            d[v] = v\n        d[v] = g(d[v], v)\n",
        "def f(x, d):\n    for v in x:\n        if v not in d:\n            d[v] = v\n            continue\n"
        "        d[v] = g(d[v], v)\n",
    ),
    "guard": (
        "def f(x):\n    return max(x)\n",
        "def f(x):\n    if not x:\n        return None\n    return max(x)\n",
    ),
    "presence": (
        "def f(x):\n    if x:\n        return 1\n",
        "def f(x):\n    if x is not None:\n        return 1\n",
    ),
    "key in": (
        "def f(d, k):\n    if d.get(k):\n        return 1\n",
        "def f(d, k):\n    if k in d:\n        return 1\n",
    ),
    "delete": ("def f(x):\n    x.sort()\n    return x\n", "def f(x):\n    return x\n"),
    "swap": ("def f(a):\n    b = a\n    a = 1\n    return b\n", "def f(a):\n    a = 1\n    b = a\n    return b\n"),
    "dedent": (
        "def f(x):\n    for v in x:\n        g(v)\n        return v\n",
        "def f(x):\n    for v in x:\n        g(v)\n    return v\n",
    ),
    "indent": (
        "def f(x):\n    for v in x:\n        g(v)\n    h(v)\n",
        "def f(x):\n    for v in x:\n        g(v)\n        h(v)\n",
    ),
    "missing return": ("def f(x):\n    y = x + 1\n", "def f(x):\n    y = x + 1\n    return y\n"),
    "returned": ("def f(x):\n    g(x)\n", "def f(x):\n    return g(x)\n"),
    "function": ("def f(x):\n    return min(x)\n", "def f(x):\n    return max(x)\n"),
    "method": ("def f(x):\n    return x.upper()\n", "def f(x):\n    return x.lower()\n"),
    "arguments": ("def f(a, b):\n    return g(a, b)\n", "def f(a, b):\n    return g(b, a)\n"),
    "wrap": ("def f(a, b):\n    return a - b\n", "def f(a, b):\n    return abs(a - b)\n"),
    "keyword": ("def f(x):\n    return sorted(x)\n", "def f(x):\n    return sorted(x, reverse=True)\n"),
    "jump": ("def f(x):\n    for v in x:\n        break\n", "def f(x):\n    for v in x:\n        continue\n"),
    "copy": (
        "class C:\n    def f(self):\n        return self.items\n",
        "class C:\n    def f(self):\n        return list(self.items)\n",
    ),
    "rows": ("def f(n):\n    return [[0] * n] * n\n", "def f(n):\n    return [[0] * n for _ in range(n)]\n"),
    "default": (
        "def f(x, acc=[]):\n    acc.append(x)\n    return acc\n",
        "def f(x, acc=None):\n    if acc is None:\n        acc = []\n    acc.append(x)\n    return acc\n",
    ),
    "shared": (
        "class C:\n    items = []\n    def __init__(self):\n        self.n = 0\n    def f(self):\n"
        "        return self.items\n",
        "class C:\n    def __init__(self):\n        self.items = []\n        self.n = 0\n    def f(self):\n"
        "        return self.items\n",
    ),
    "table": (
        "T = {'a': 1}\ndef f(x):\n    return T[x]\n",
        "T = {'a': 2}\ndef f(x):\n    return T[x]\n",
    ),
    "progress": (
        "def f(n):\n    while n:\n        g(n)\n    return 1\n",
        "def f(n):\n    while n:\n        g(n)\n        n -= 1\n    return 1\n",
    ),
    "remember": (
        "def f(x, y):\n    seen = set()\n    for v in x:\n        if v in seen:\n            return v\n        g(v)\n",
        "def f(x, y):\n    seen = set()\n    for v in x:\n        if v in seen:\n            return v\n"
        "        seen.add(v)\n        g(v)\n",
    ),
    "except": (
        "def f(x):\n    try:\n        return int(x)\n    except ValueError:\n        return 0\n",
        "def f(x):\n    try:\n        return int(x)\n    except (ValueError, TypeError):\n        return 0\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), REPAIRS.values(), ids=REPAIRS)
def test_known_repairs_are_proposed(before: str, after: str) -> None:
    assert ast.unparse(ast.parse(after)) in proposals(before, failure=Failure(("TypeError",)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return sum(x) / (len(x) - 1)", "return sum(x) / len(x)"),
        ("return 2 * (x + 1)", "return 2 * x"),
        ("return len((x + 1) * 2)", "return len(x * 2)"),
        ("return (1 - x).real", "return (1).real"),
        ("return x *(x - 1)if x else x", "return x *(x)if x else x"),
    ],
)
def test_no_needless_parentheses_stay_around_what_is_left(before: str, after: str) -> None:
    source = PythonSource.read("m.py", f"def f(x):\n    {before}\n".encode())
    lines = Suspicion({"m.py": dict.fromkeys(range(1, 4), 1.0)})
    made = {source.apply(one.edit) for one in itertools.islice(candidates({"m.py": source}, lines, Failure()), 3000)}
    texts = {one.decode().splitlines()[1].strip() for one in made if one is not None}
    assert after in texts, texts
    assert all(ast.parse(one) for one in made if one is not None)


def test_a_number_is_written_as_the_code_around_it_writes_it() -> None:
    source = PythonSource.read("m.py", b"def f(x):\n    return x >> 8 & 0x0F, x & 0xFF\n")
    lines = Suspicion({"m.py": {2: 1.0}})
    made = {source.apply(one.edit) for one in itertools.islice(candidates({"m.py": source}, lines, Failure()), 3000)}
    assert b"def f(x):\n    return x >> 8 & 0xFF, x & 0xFF\n" in made
    assert b"def f(x):\n    return x >> 8 & 255, x & 0xFF\n" not in made


def test_what_the_failing_tests_spell_out_is_proposed() -> None:
    failure = Failure(("AssertionError",), expected=("cannot make the folder", "else"))
    found = list(proposals("def f():\n    return 'cannot make the replay folder'\n", failure=failure))
    assert "def f():\n    return 'cannot make the folder'" in found
    assert not any("'else'" in text for text in found)


def test_an_edge_is_refused_where_the_tests_miss_an_exception() -> None:
    failure = Failure(("Failed",), ("DID NOT RAISE <class 'ValueError'>",))
    wanted = "def f(n):\n    if n < 0:\n        raise ValueError\n    return g(n)"
    assert wanted in proposals("def f(n):\n    return g(n)\n", failure=failure)
    assert wanted not in proposals("def f(n):\n    return g(n)\n")


def test_keywords_of_functions_in_other_files_are_known() -> None:
    here = PythonSource.read("a.py", b"def f(x):\n    return clean(x)\n")
    there = PythonSource.read("b.py", b"def clean(text, strip=True):\n    return text\n")
    suspicion = Suspicion({"a.py": {2: 1.0}})
    found = itertools.islice(candidates({"a.py": here, "b.py": there}, suspicion, Failure()), 500)
    assert any(one.edit.replacement == "clean(x, strip=False)" for one in found)


def test_no_program_is_proposed_twice_nor_the_base_itself() -> None:
    base = "def f(a, b):\n    if a > b and b:\n        return a + b\n    return [x for x in a if x]\n"
    found = list(proposals(base, limit=800))
    assert len(found) == len(set(found))
    assert ast.unparse(ast.parse(base)) not in found


def test_no_order_is_proposed_where_a_method_says_what_is_equal() -> None:
    text = "class Span:\n    def __eq__(self, other):\n        return self.days == other.days\n"
    found = "".join(proposals(text))
    assert "self.days != other.days" in found and "self.days >= other.days" not in found


def test_operations_that_say_nothing_are_left_out() -> None:
    found = list(proposals("def f(x):\n    return x - 1\n"))
    assert "def f(x):\n    return x" in found
    assert not any(text.endswith(("x - 0", "x * 1", "x // 1", "x - 1 + 1")) for text in found)


def test_names_of_a_loop_that_is_over_come_last() -> None:
    text = "def f(x):\n    n = 0\n    for c in x:\n        if c == 'a':\n            n += 1\n    return True\n"
    source = PythonSource.read("m.py", text.encode())
    here = Context(source, source.units[0], Failure())
    function = source.units[0].node
    loop = function.body[1]
    assert here.names_at(function.body[2])[-1] == "c" and not here.stale_at(loop)
    found = [text for text in proposals(text) if "return True" not in text]
    assert found.index(next(one for one in found if "return n == 0" in one)) < found.index(
        next(one for one in found if "return c == 'a'" in one)
    )


def test_a_loop_that_ends_by_returning_is_not_left_otherwise() -> None:
    text = "def f(x):\n    while True:\n        if x.next is None:\n            return False\n        x = x.next\n"
    found = list(proposals(text, failure=Failure(("AttributeError",))))
    assert any("if x is None or x.next is None" in one for one in found)
    assert all("while True" in one for one in found if "while" in one)


def test_a_loop_keeps_the_use_of_its_variable_for_long() -> None:
    text = "def f(x, y):\n    return any((g(v) for v in x)) + y\n"
    found = list(proposals(text))
    assert found.index("def f(x, y):\n    return any((g(v) for v in x)) - y") < found.index(
        "def f(x, y):\n    return any((g(y) for v in x)) + y"
    )


def test_the_order_is_the_same_every_time() -> None:
    source = PythonSource.read("m.py", CORPUS.encode())
    suspicion = Suspicion({"m.py": {line: 1.0 / (1 + line % 5) for line in range(1, 70)}})

    def order() -> list[tuple[int, int, str]]:
        found = itertools.islice(candidates({"m.py": source}, suspicion, Failure()), 800)
        return [(one.edit.start, one.edit.end, one.edit.replacement) for one in found]

    assert order() == order()


def test_scores_fall_and_suspicious_lines_come_first() -> None:
    text = "def f(a):\n    return a < 1\n\n\ndef g(a):\n    return a < 2\n"
    source = PythonSource.read("m.py", text.encode())
    suspicion = Suspicion({"m.py": {2: 0.2, 6: 1.0}})
    found = list(itertools.islice(candidates({"m.py": source}, suspicion, Failure()), 60))
    assert found[0].line == 6
    scores = [one.score for one in found]
    assert scores == sorted(scores, reverse=True)


def test_no_number_is_added_to_a_truth_value_or_a_text() -> None:
    text = "def f(a):\n    b = a.endswith('x')\n    c = a.find('y')\n    return b, c\n"
    source = PythonSource.read("m.py", text.encode())
    found = itertools.islice(candidates({"m.py": source}, Suspicion({"m.py": {2: 1.0, 3: 1.0}}), Failure()), 400)
    edited = {one.edit.replacement for one in found}
    assert "a.find('y') + 1" in edited and "not a.endswith('x')" in edited
    assert not any(one.startswith("a.endswith('x') ") and one[-1] == "1" for one in edited)
