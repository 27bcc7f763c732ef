"""The forms that expressions are made of: operations, calls and comparisons, by the kinds of their operands.

Runs inside the sandbox; standard library alone, Python 3.8 or newer.
"""

# ruff: noqa: B905 - Python 3.8 has no strict zip

from __future__ import annotations

from typing import Any

OR, AND, NOT, COMPARE, ADD, MULTIPLY, UNARY, ATOM = 2, 3, 4, 5, 9, 10, 11, 20
"""How tightly expressions bind."""
MAX_LENGTH = 4000
MAX_POWER = 12


def _power(a: Any, b: Any) -> Any:
    if abs(b) > MAX_POWER or abs(a) > 10**6:
        raise ValueError
    return a**b


def _times(a: Any, b: Any) -> Any:
    if (isinstance(a, (str, list, tuple)) and b > MAX_LENGTH) or (isinstance(b, (str, list)) and a > MAX_LENGTH):
        raise ValueError
    return a * b


# The form, how tightly its operand must bind, how tightly it binds itself, and what it does.
_NUMBERS: list[Any] = [
    ("{} + 1", ADD, ADD, lambda x: x + 1),
    ("{} - 1", ADD, ADD, lambda x: x - 1),
    ("abs({})", 0, ATOM, abs),
    ("-{}", UNARY, UNARY, lambda x: -x),
    ("{} * 2", MULTIPLY, MULTIPLY, lambda x: x * 2),
    ("{} // 2", MULTIPLY, MULTIPLY, lambda x: x // 2),
    ("{} % 2", MULTIPLY, MULTIPLY, lambda x: x % 2),
    ("{} / 2", MULTIPLY, MULTIPLY, lambda x: x / 2),
    ("{} ** 2", ATOM, MULTIPLY + 2, lambda x: _power(x, 2)),
    ("str({})", 0, ATOM, str),
    ("int({})", 0, ATOM, int),
    ("round({})", 0, ATOM, round),
    ("{} % 10", MULTIPLY, MULTIPLY, lambda x: x % 10),
    ("{} // 10", MULTIPLY, MULTIPLY, lambda x: x // 10),
    ("[{}]", 0, ATOM, lambda x: [x]),
    ("range({})", 0, ATOM, lambda x: range(x)),
    ("bin({})", 0, ATOM, bin),
    ("chr({})", 0, ATOM, chr),
]
_ROWS: list[Any] = [
    ("len({})", 0, ATOM, len),
    ("{}[0]", ATOM, ATOM, lambda x: x[0]),
    ("{}[-1]", ATOM, ATOM, lambda x: x[-1]),
    ("{}[1:]", ATOM, ATOM, lambda x: x[1:]),
    ("{}[:-1]", ATOM, ATOM, lambda x: x[:-1]),
    ("{}[::-1]", ATOM, ATOM, lambda x: x[::-1]),
    ("{}[1]", ATOM, ATOM, lambda x: x[1]),
    ("set({})", 0, ATOM, set),
    ("sorted({})", 0, ATOM, sorted),
    ("list({})", 0, ATOM, list),
]
_TEXTS: list[Any] = [
    *_ROWS,
    *(
        (f"{{}}.{name}()", ATOM, ATOM, lambda x, name=name: getattr(x, name)())
        for name in (
            *("lower", "upper", "strip", "split", "isdigit", "isalpha", "isupper", "islower", "isalnum", "isspace"),
            *("swapcase", "rstrip", "lstrip", "capitalize", "title"),
        )
    ),
    ("int({})", 0, ATOM, int),
    ("float({})", 0, ATOM, float),
    ("ord({})", 0, ATOM, ord),
    ("[{}]", 0, ATOM, lambda x: [x]),
    ("''.join(sorted({}))", 0, ATOM, lambda x: "".join(sorted(x))),
]
_LISTS: list[Any] = [
    *_ROWS,
    ("sum({})", 0, ATOM, sum),
    ("max({})", 0, ATOM, max),
    ("min({})", 0, ATOM, min),
    ("tuple({})", 0, ATOM, tuple),
    ("sorted({}, reverse=True)", 0, ATOM, lambda x: sorted(x, reverse=True)),
    ("any({})", 0, ATOM, any),
    ("all({})", 0, ATOM, all),
    ("[{}]", 0, ATOM, lambda x: [x]),
    ("''.join({})", 0, ATOM, "".join),
    ("' '.join({})", 0, ATOM, " ".join),
    ("dict({})", 0, ATOM, dict),
]
_DICTS: list[Any] = [
    ("len({})", 0, ATOM, len),
    ("{}.values()", ATOM, ATOM, lambda x: list(x.values())),
    ("{}.keys()", ATOM, ATOM, lambda x: list(x)),
    ("{}.items()", ATOM, ATOM, lambda x: list(x.items())),
    ("max({}.values())", ATOM, ATOM, lambda x: max(x.values())),
    ("min({}.values())", ATOM, ATOM, lambda x: min(x.values())),
    ("sum({}.values())", ATOM, ATOM, lambda x: sum(x.values())),
    ("max({0}, key={0}.get)", ATOM, ATOM, lambda x: max(x, key=x.get)),
    ("sorted({})", 0, ATOM, sorted),
    ("list({})", 0, ATOM, list),
    ("{}.copy()", ATOM, ATOM, dict),
]
_SETS: list[Any] = [
    *(("len({})", 0, ATOM, len), ("sorted({})", 0, ATOM, sorted), ("list({})", 0, ATOM, list)),
    *(("max({})", 0, ATOM, max), ("min({})", 0, ATOM, min), ("sum({})", 0, ATOM, sum)),
]
UNARIES: dict[str, list[Any]] = {
    "number": _NUMBERS,
    "text": _TEXTS,
    "list": _LISTS,
    "dict": _DICTS,
    "set": _SETS,
    "thing": [("[{}]", 0, ATOM, lambda x: [x])],
    "bool": [("not {}", NOT, NOT, lambda x: not x), ("int({})", 0, ATOM, int)],
}
_ARITHMETIC: list[Any] = [
    ("{} + {}", ADD, ADD + 1, ADD, lambda a, b: a + b),
    ("{} - {}", ADD, ADD + 1, ADD, lambda a, b: a - b),
    ("{} * {}", MULTIPLY, MULTIPLY + 1, MULTIPLY, _times),
    ("{} // {}", MULTIPLY, MULTIPLY + 1, MULTIPLY, lambda a, b: a // b),
    ("{} % {}", MULTIPLY, MULTIPLY + 1, MULTIPLY, lambda a, b: a % b),
    ("{} / {}", MULTIPLY, MULTIPLY + 1, MULTIPLY, lambda a, b: a / b),
    ("max({}, {})", 0, 0, ATOM, max),
    ("min({}, {})", 0, 0, ATOM, min),
    ("{} ** {}", ATOM, ATOM, MULTIPLY + 2, _power),
]
_ORDER: list[Any] = [
    ("{} < {}", COMPARE + 1, COMPARE + 1, COMPARE, lambda a, b: a < b),
    ("{} <= {}", COMPARE + 1, COMPARE + 1, COMPARE, lambda a, b: a <= b),
]
_EQUAL: list[Any] = [
    ("{} == {}", COMPARE + 1, COMPARE + 1, COMPARE, lambda a, b: a == b),
    ("{} != {}", COMPARE + 1, COMPARE + 1, COMPARE, lambda a, b: a != b),
]
_TURNED: list[Any] = [
    ("{} > {}", COMPARE + 1, COMPARE + 1, COMPARE, lambda a, b: a > b),
    ("{} >= {}", COMPARE + 1, COMPARE + 1, COMPARE, lambda a, b: a >= b),
]
_WITHIN: list[Any] = [
    ("{} in {}", COMPARE + 1, COMPARE + 1, COMPARE, lambda a, b: a in b),
    ("{} not in {}", COMPARE + 1, COMPARE + 1, COMPARE, lambda a, b: a not in b),
]
_AT: list[Any] = [
    ("{}[{}]", ATOM, 0, ATOM, lambda a, b: a[b]),
    ("{}[:{}]", ATOM, 0, ATOM, lambda a, b: a[:b]),
    ("{}[{}:]", ATOM, 0, ATOM, lambda a, b: a[b:]),
    ("{} * {}", MULTIPLY, MULTIPLY + 1, MULTIPLY, _times),
]
_SAME: list[Any] = [("{} is {}", COMPARE + 1, COMPARE + 1, COMPARE, lambda a, b: a is b)]
BINARIES: dict[tuple[str, str], list[Any]] = {
    ("number", "number"): _ARITHMETIC,
    ("text", "text"): [
        ("{} + {}", ADD, ADD + 1, ADD, lambda a, b: a + b),
        ("{}.count({})", ATOM, 0, ATOM, lambda a, b: a.count(b)),
        ("{}.split({})", ATOM, 0, ATOM, lambda a, b: a.split(b)),
        ("{}.find({})", ATOM, 0, ATOM, lambda a, b: a.find(b)),
    ],
    ("text", "number"): _AT,
    ("list", "number"): [*_AT, ("{}.count({})", ATOM, 0, ATOM, lambda a, b: a.count(b))],
    ("list", "list"): [
        ("{} + {}", ADD, ADD + 1, ADD, lambda a, b: a + b),
        ("zip({}, {})", 0, 0, ATOM, lambda a, b: list(zip(a, b))),
    ],
    ("list", "text"): [("{}.count({})", ATOM, 0, ATOM, lambda a, b: a.count(b))],
    ("text", "list"): [("{}.join({})", ATOM, 0, ATOM, lambda a, b: a.join(b))],
    ("set", "set"): [
        ("{} - {}", ADD, ADD + 1, ADD, lambda a, b: a - b),
        ("{} & {}", 7, 8, 7, lambda a, b: a & b),
        ("{} | {}", 6, 7, 6, lambda a, b: a | b),
    ],
    **{
        ("dict", key): [
            ("{}[{}]", ATOM, 0, ATOM, lambda a, b: a[b]),
            ("{}.get({})", ATOM, 0, ATOM, lambda a, b: a.get(b)),
            ("{}.get({}, 0)", ATOM, 0, ATOM, lambda a, b: a.get(b, 0)),
        ]
        for key in ("number", "text", "thing", "list")
    },
}
RELATIONS: dict[tuple[str, str], list[Any]] = {
    ("number", "number"): [*_ORDER, *_EQUAL, *_TURNED],
    ("text", "text"): [
        *_EQUAL,
        *_WITHIN,
        ("{}.startswith({})", ATOM, 0, ATOM, lambda a, b: a.startswith(b)),
        ("{}.endswith({})", ATOM, 0, ATOM, lambda a, b: a.endswith(b)),
    ],
    ("list", "list"): [*_EQUAL, *_WITHIN],
    ("set", "set"): [*_EQUAL, ("{} <= {}", COMPARE + 1, COMPARE + 1, COMPARE, lambda a, b: a <= b)],
    ("dict", "dict"): _EQUAL,
    ("thing", "thing"): [*_EQUAL, *_SAME],
    ("bool", "bool"): _EQUAL,
    **{(one, many): _WITHIN for one in ("number", "text", "thing") for many in ("list", "dict", "set")},
    ("list", "dict"): _WITHIN,
    ("list", "set"): _WITHIN,
}
