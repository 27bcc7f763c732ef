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

_REGEX = r"(?<=[(,=:\[!&|?{};])[ ]{0,20}/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n]){0,200}+\]|[^/\\\n\[]){1,400}+/"
_COMMENT = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
_STRING = '""".*?(?:"""|\\Z)' + "".join(rf"|{mark}(?:\\.|[^{mark}\\\n]){{0,200}}+{mark}" for mark in "\"'")
_QUOTED = re.compile(rf"{_REGEX}|{_COMMENT}|{_STRING}|`(?:\\.|[^`\\])*(?:`|\Z)", re.DOTALL)
"""What is no code. What may be tried again and again on hostile text has a bounded length."""
_JVM_TEST = re.compile(r"@(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Property)\b")
_METHOD = re.compile(r"(?:`[^`\n]*`|\b(\w+))\s*\([^()]*(?:\([^()]*\)[^()]*)*\)[^;{}()=]*\{")
_SCRIPT_TEST = re.compile(r"(?<![.\w$])(?:it|test)(?:\.(?:only|concurrent|serial|each|fails|failing))*\s*[(`]")
_GIVEN = r"\((?:[^()]|\([^()]*\))*+\)"
_FUNCTION = re.compile(
    rf"(?:\bfunction\s+(\w+)\s*{_GIVEN}"
    rf"|\b(?:const|let|var)\s+(\w+)\s*=\s*(?:async\b\s*)?(?:function\b\s*)?(?:{_GIVEN}|\w+)(?::[^=(){{}};]{{0,100}})?\s*(?:=>)?"
    rf"|\b(\w+)\s*{_GIVEN}(?:\s*throws\s[\w.,\s]{{1,300}})?)\s*\{{"
)
_NAME = re.compile(r"""\s*(["'`])((?:\\.|(?!\1)[^\\])*)\1""", re.DOTALL)
_CALL = re.compile(r"(?:(?<![.\w])|\bthis\.)(?<!new )(\w+)\s*\(")
_FROM = re.compile(r"""(?:\bfrom\s*|=\s*require\s*\(\s*)["']([^"'\n]{1,300})["']""")
HELPS = re.compile(r"test|spec|help|support|util|fixture|assert|common|share", re.IGNORECASE)
_KEYWORDS = frozenset(
    {"if", "for", "while", "switch", "catch", "try", "synchronized", "return", "throw", "super", "this"}
    | {"describe", "it", "test"}
)
ASSERTS = re.compile(
    r"assert|expect|verif|should|\bfail\w*\s*\(|thrown|throws\s*\(|reject|check|ensure|must|statusCode|matchesSnapshot"
    r"|(?:get|find)(?:All)?By(?:Role|Text|\w+Text|Title|DisplayValue|TestId)\b|waitFor|\bt\.(?:is|ok|not|equal|equals|deepEqual|same|true|false|truthy|falsy|like|pass|match)\b",
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
    known = dict(_functions(plain, ends))
    helpers = {name for name, body in known.items() if name not in found and ASSERTS.search(body)} | _brought(text)
    own = None if path.endswith(SCRIPT) else {*known, *found}
    return {name: body is not None and not _asserts(body, helpers, own) for name, body in found.items()}


def _blanked(match: re.Match[str]) -> str:
    """As long as it was, and with its lines; a string keeps its quotes."""
    said = match[0]
    inner = re.sub(r"[^\n]", " ", said)
    return inner if said[0] == "/" else said[0] + inner[1:-1] + said[-1]


def _asserts(body: str, helpers: set[str], own: set[str] | None) -> bool:
    """Whether a test's body asserts, or calls what does, or what may: in Java, a function from elsewhere."""
    calls = {call for call in _CALL.findall(body) if call not in _KEYWORDS}
    inherited = () if own is None else [call for call in calls if call[0].islower() and call not in own]
    return bool(ASSERTS.search(body) or calls & helpers or inherited)


def _brought(text: str) -> set[str]:
    """The names that come from files which help tests."""
    places = _imports(text)
    return {
        name
        for place, names in places
        if place.startswith(".") and HELPS.search(place)
        for name in " ".join(names).split()
    }


def _imports(text: str) -> Iterator[tuple[str, set[str]]]:
    """The places that a script imports from, with what it takes from each as it is written, brackets included."""
    for match in _FROM.finditer(text):
        said = re.split(r"\b(?:import|const|let|var)\b", text[max(0, match.start() - MAX_HEAD) : match.start()])
        if len(said) > 1:
            yield match[1], {part.strip() for part in re.findall(r"[{}]|[^,{}]+", said[-1]) if part.strip()}


def widened(before: str, after: str) -> bool:
    """Whether a line only imports names, which `after` takes from the same place too."""
    old = list(_imports(before)) if re.match(r"\s*(?:import\b|(?:const|let|var)\s*\{)", before) else []
    return bool(old) and all(
        any(there == place and names <= more for there, more in _imports(after)) for place, names in old
    )


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
        if body is not None and name not in _KEYWORDS:
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
