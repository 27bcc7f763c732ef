"""Generates a repository of many files in four languages, in which modules import and call each other."""

from __future__ import annotations

import random
from collections.abc import Iterator

LANGUAGES = ("py", "java", "js", "ts")
_VERBS = ("load", "store", "merge", "parse", "render", "check", "count", "find", "update", "remove")
_NOUNS = ("order", "basket", "customer", "price", "invoice", "shipment", "session", "report", "account", "ledger")


def repository(files: int, seed: int = 5) -> dict[str, bytes]:
    """Sources by path, an equal share in each language, and a README."""
    share = max(1, files // len(LANGUAGES))
    made = {path: text.encode() for language in LANGUAGES for path, text in _modules(language, share, seed)}
    made["README.md"] = b"# Generated\n\nOrders, baskets and ledgers.\n"
    return made


def _modules(language: str, count: int, seed: int) -> Iterator[tuple[str, str]]:
    chance = random.Random(f"{language}{seed}")
    for number in range(count):
        others = sorted({chance.randrange(count) for _ in range(3)} - {number})
        functions = [f"{chance.choice(_VERBS)}_{chance.choice(_NOUNS)}_{number}_{k}" for k in range(14)]
        yield _WRITERS[language](number, functions, others)


def _python(number: int, functions: list[str], others: list[int]) -> tuple[str, str]:
    lines = ["from __future__ import annotations", "", "import logging", ""]
    lines += [f"from shop.part{other % 20}.module_{other} import Module{other}" for other in others]
    lines += ["", f"LIMIT_{number} = {number}", "", "", f"class Module{number}:", f'    """Part {number}."""', ""]
    for function in functions[:10]:
        lines += [f"    def {function}(self, value: int, *, deep: bool = False) -> list[int]:"]
        lines += _body("    " * 2, others, "self.helper = Module{other}().count_all(value)", "#")
        lines += ["        return [value for value in range(value) if value % 3]", ""]
    lines += [
        "    def count_all(self, value: int) -> int:",
        "        return value + len(logging.root.handlers)",
        "",
        "",
    ]
    for function in functions[10:]:
        lines += [f"def {function}(rows: dict[str, int]) -> int:", *_body("    ", others, "Module{other}()", "#")]
        lines += ["    return sum(rows.values())", "", ""]
    return f"shop/part{number % 20}/module_{number}.py", "\n".join(lines)


def _java(number: int, functions: list[str], others: list[int]) -> tuple[str, str]:
    lines = [f"package com.shop.part{number % 20};", "", "import java.util.List;"]
    lines += [f"import com.shop.part{other % 20}.Type{other};" for other in others]
    lines += ["", f"public class Type{number} {{", f"    private int total = {number};", ""]
    for function in functions:
        lines += [f"    public int {_camel(function)}(int value, List<String> names) {{"]
        lines += _body("        ", others, "new Type{other}().countAll(value);", "//")
        lines += ["        for (String name : names) {", "            total += name.length() + value;", "        }"]
        lines += ["        return total;", "    }", ""]
    lines += ["    public int countAll(int value) {", "        return value;", "    }", "}", ""]
    return f"java/src/main/java/com/shop/part{number % 20}/Type{number}.java", "\n".join(lines)


def _script(number: int, functions: list[str], others: list[int], typed: bool) -> tuple[str, str]:
    ending, number_type, list_type = ("ts", ": number", ": string[]") if typed else ("js", "", "")
    lines = [f"import {{ Part{other} }} from '../part{other % 20}/unit_{other}';" for other in others]
    lines += ["", f"export class Part{number} {{", f"  total{number_type} = {number};", ""]
    for function in functions[:10]:
        lines += [f"  {_camel(function)}(value{number_type}, names{list_type}){number_type} {{"]
        lines += _body("    ", others, "new Part{other}().countAll(value);", "//")
        lines += ["    return names.filter((name) => name.length > 2).length + this.total;", "  }", ""]
    lines += [f"  countAll(value{number_type}){number_type} {{", "    return value;", "  }", "}", ""]
    for function in functions[10:]:
        lines += [f"export const {_camel(function)} = (value{number_type}){number_type} => {{"]
        lines += [*_body("  ", others, "new Part{other}().countAll(value);", "//"), "  return value * 2;", "};", ""]
    return f"web/{ending}/part{number % 20}/unit_{number}.{ending}", "\n".join(lines)


def _body(indent: str, others: list[int], use: str, comment: str) -> list[str]:
    """A dozen lines as bodies have them."""
    used = [indent + use.format(other=other) for other in others]
    return [f"{indent}{comment} this part counts what the others return, in a comment of usual size", *used]


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


_WRITERS = {
    "py": _python,
    "java": _java,
    "js": lambda number, functions, others: _script(number, functions, others, False),
    "ts": lambda number, functions, others: _script(number, functions, others, True),
}
