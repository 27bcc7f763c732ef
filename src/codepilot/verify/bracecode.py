"""Tests in Java, Kotlin, JavaScript and TypeScript, read from their text: which there are, and whether they assert.

There is no parser for these here: comments and strings are blanked, brackets are matched. What cannot be followed is
taken for well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

MAX_SOURCE_BYTES = 1 << 19
MAX_FOUND = 500
MAX_BODY = 10_000
MAX_HEAD = 1_000
JVM = (".java", ".kt", ".groovy", ".scala")
SCRIPT = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")

_QUOTED = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|""".*?(?:"""|\Z)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|`(?:\\.|[^`\\])*(?:`|\Z)',
    re.DOTALL,
)
_JVM_TEST = re.compile(r"@(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Property)\b")
_METHOD = re.compile(r"(?:`[^`\n]*`|\b(\w+))\s*\([^()]*(?:\([^()]*\)[^()]*)*\)[^;{}()=]*\{")
_SCRIPT_TEST = re.compile(r"(?<![.\w$])(?:it|test)(?:\.(?:only|concurrent|serial|each|fails|failing))*\s*[(`]")
_FUNCTION = re.compile(
    r"(?:function\s+(\w+)\s*\([^()]*\)|(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s*)?(?:function\s*)?\(?[^()=]*\)?\s*(?:=>)?"
    r"|\b(\w+)\s*\([^()]*\)(?:\s*throws\s+[\w.,\s]+)?)\s*\{"
)
_NAME = re.compile(r"""\s*(["'`])((?:\\.|(?!\1)[^\\])*)\1""", re.DOTALL)
_CALL = re.compile(r"(?:(?<![.\w])|\bthis\.)(\w+)\s*\(")
ASSERTS = re.compile(
    r"assert|expect|verif|should|\bfail\w*\s*\(|thrown|throws\s*\(|reject|check|ensure|must|statusCode|matchesSnapshot"
    r"|\bt\.(?:is|ok|not|equal|equals|deepEqual|same|true|false|truthy|falsy|like|pass|match)\b",
    re.IGNORECASE,
)


def reads(path: str) -> bool:
    return path.endswith((*JVM, *SCRIPT))


def silent_tests(path: str, content: bytes | None) -> dict[str, bool]:
    """The tests of a file by name, and of each whether it is seen to assert nothing."""
    if content is None or len(content) > MAX_SOURCE_BYTES or not reads(path):
        return {}
    text = content.decode("utf-8", "replace")
    plain = _QUOTED.sub(_blanked, text)
    ends = _brackets(plain)
    tests = _jvm_tests(text, plain, ends) if path.endswith(JVM) else _script_tests(text, plain, ends)
    found = dict(tests)
    helpers = {name for name, body in _functions(plain, ends) if name not in found and ASSERTS.search(body)}
    return {name: body is not None and not _asserts(body, helpers) for name, body in found.items()}


def _blanked(match: re.Match[str]) -> str:
    """As long as it was, and with its lines; a string keeps its quotes."""
    said = match[0]
    inner = re.sub(r"[^\n]", " ", said)
    return inner if said[0] == "/" else said[0] + inner[1:-1] + said[-1]


def _asserts(body: str, helpers: set[str]) -> bool:
    return bool(ASSERTS.search(body)) or any(call in helpers for call in _CALL.findall(body))


def _jvm_tests(text: str, plain: str, ends: Mapping[int, int]) -> Iterator[tuple[str, str | None]]:
    for mark in islice(_JVM_TEST.finditer(plain), MAX_FOUND):
        method = _METHOD.search(plain, mark.end(), mark.end() + MAX_HEAD)
        if method is not None:
            body = _within(plain, method.end() - 1, ends)
            name = method[1] or text[method.start() : method.end()].split("(")[0].strip()
            yield name, None if body is None else plain[mark.start() : method.start()] + body


def _script_tests(text: str, plain: str, ends: Mapping[int, int]) -> Iterator[tuple[str, str | None]]:
    for mark in islice(_SCRIPT_TEST.finditer(plain), MAX_FOUND):
        named = _NAME.match(text, mark.end(), mark.end() + MAX_HEAD)
        body = _within(plain, mark.end() - 1, ends) if named else None
        name = named[2] if named else text[mark.start() : mark.end() + 40].split("\n")[0]
        yield name, body if body and ("=>" in body or "function" in body) else None


def _functions(plain: str, ends: Mapping[int, int]) -> Iterator[tuple[str, str]]:
    for head in islice(_FUNCTION.finditer(plain), MAX_FOUND):
        name = head[1] or head[2] or head[3]
        body = _within(plain, head.end() - 1, ends)
        if body is not None and name not in ("if", "for", "while", "switch", "catch", "describe", "it", "test"):
            yield name, body


def _within(plain: str, at: int, ends: Mapping[int, int]) -> str | None:
    """What stands between the bracket at a place and the one that closes it; None for what cannot be told."""
    end = ends.get(at)
    return plain[at + 1 : end] if end is not None and end - at <= MAX_BODY else None


def _brackets(plain: str) -> dict[int, int]:
    """Where each bracket that is opened is closed, by kinds of bracket."""
    open_at: dict[str, list[int]] = {")": [], "}": []}
    ends: dict[int, int] = {}
    for match in re.finditer(r"[(){}]", plain):
        if match[0] in "({":
            open_at[")" if match[0] == "(" else "}"].append(match.start())
        elif open_at[match[0]]:
            ends[open_at[match[0]].pop()] = match.start()
    return ends
