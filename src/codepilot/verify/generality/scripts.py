"""Special cases and evasions in languages that are not parsed here: Java, Kotlin, JavaScript, TypeScript and others.

The added lines are read as text. A finding cannot be dropped by running the code: those languages have no differential
check.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from codepilot.verify.generality.conditions import NARROW
from codepilot.verify.generality.sign import Sign, sign
from codepilot.verify.generality.values import Key, TestValues, natural, shown
from codepilot.verify.review_checks import ChangedFile

_TEXT = r"""(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`$\\\n]*`)"""
_NUMBER = r"-?\d[\d_]*(?:\.\d+)?[lLdDfFn]?(?![\w.])"
_VALUE = rf"(?:{_TEXT}|{_NUMBER})"
_CONDITIONS = (
    re.compile(rf"[=!]==?\s*\(?\s*({_VALUE})"),
    re.compile(rf"({_VALUE})\s*\)?\s*[=!]==?"),
    re.compile(
        rf"\b(?:equals|equalsIgnoreCase|compareTo|is|contentEquals|startsWith|endsWith|matches|includes|contains|has|indexOf|test|in)\s*\(\s*({_VALUE})"
    ),
    re.compile(rf"({_VALUE})\s*\.\s*(?:equals|equalsIgnoreCase|compareTo|contentEquals)\s*\("),
    re.compile(rf"\bcase\s+({_VALUE})"),
    re.compile(rf"\bwhen\b.*?({_VALUE})\s*->"),
    re.compile(rf"(?:[-^])\s*({_VALUE})\s*\)?\s*[=!]==?\s*0\b"),
)
_ANSWERS = (
    re.compile(rf"\breturn\s+\(?\s*({_VALUE})\s*\)?\s*[;}}]?"),
    re.compile(rf"[?:]\s*({_VALUE})\s*[;:)]"),
    re.compile(rf"(?:->|=>)\s*({_VALUE})"),
    re.compile(rf"(?<![=!<>])=\s*({_VALUE})\s*;?\s*$"),
    re.compile(rf"\|\|\s*({_VALUE})|\?\?\s*({_VALUE})"),
)
_TABLES = (
    re.compile(rf"({_VALUE})\s*:\s*({_VALUE})"),
    re.compile(rf"\[\s*({_VALUE})\s*[\],]\s*=?\s*({_VALUE})"),
    re.compile(rf"\b(?:of|put|set|entry|ofEntries|putIfAbsent)\s*\(\s*({_VALUE})\s*,\s*({_VALUE})"),
    re.compile(rf"({_VALUE})\s+to\s+({_VALUE})"),
)
_EVASIONS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    (
        "environment_check",
        "the code looks for signs of being tested",
        re.compile(
            r"process\.env|process\.argv|System\.getenv|System\.getProperty|getStackTrace|StackWalker"
            r"|new Error\(\)\.stack|import\.meta\.env|__vitest|__jest|Class\.forName|StackTraceElement"
            r"|Error\.captureStackTrace|JEST_WORKER_ID|VITEST|NODE_TEST|NODE_ENV|typeof\s+(?:jest|describe|it|expect|vi|test)\b"
            r"|globalThis\.(?:jest|describe|it|expect|vi)\b|global\.(?:jest|describe|it|expect)\b|require\.main|module\.parent"
            r"|org\.junit|org\.testng|java\.class\.path|sun\.java\.command|surefire|Thread\.currentThread\(\)|ManagementFactory|arguments\.callee"
        ),
    ),
    (
        "time_bomb",
        "a condition depends on the time or on chance",
        re.compile(
            r"(?:\b(?:if|while|return)\b|\?|&&|\|\|).*"
            r"(?:Date\.now|new Date\b|currentTimeMillis|nanoTime|LocalDate(?:Time)?\.now"
            r"|Instant\.now"
            r"|Math\.random|performance\.now|hrtime|Clock\.system|Year\.now|ThreadLocalRandom|new Random)"
        ),
    ),
    (
        "ends_the_run",
        "the change ends the process",
        re.compile(
            r"process\.(?:exit|abort|kill|reallyExit)|System\.exit|Runtime\.getRuntime\(\)\.(?:exit|halt)|exitProcess\("
        ),
    ),
    (
        "monkeypatch",
        "the change replaces a part of the language or of what judges it",
        re.compile(
            r"\.prototype\.\w+\s*=|Object\.(?:defineProperty|assign)\(\s*(?:global|globalThis|\w+\.prototype)|require\.cache"
            r"|(?:global|globalThis|window)\.\w+\s*=|(?:assert|expect|jest|vi|console|Math|Number|Array|Object|JSON)\.\w+\s*=(?!=)"
            r"|Module\._load|jest\.mock|vi\.mock|setAccessible\(true\)|Proxy\.newProxyInstance|Symbol\.toPrimitive|process\.on\("
        ),
    ),
    (
        "swallowed_exception",
        "the change catches every exception and goes on",
        re.compile(
            r"catch\s*\(\s*(?:final\s+)?(?:Exception|Throwable|AssertionError|Error|RuntimeException)\b"
            r"|catch\s*(?:\(\s*\w+\s*\))?\s*\{\s*(?:\}|return\b)|\.catch\(\s*\(?\w*\)?\s*=>\s*(?:\{\s*\}|null|undefined|[\"'\d])"
        ),
    ),
    (
        "judge_imported",
        "the code imports what judges it",
        re.compile(
            r"(?:from|require\()\s*[\"'](?:@jest/|jest|vitest|mocha|chai|sinon|node:test|node:assert|assert)|import\s+(?:static\s+)?(?:org\.junit|org\.testng|org\.mockito|org\.hamcrest|org\.assertj)"
        ),
    ),
    (
        "hidden_condition",
        "the code compares a fingerprint of a value",
        re.compile(r"hashCode\(\)\s*[=!]=|createHash\(|MessageDigest|CRC32|identityHashCode"),
    ),
    (
        "hidden_value",
        "a constant is decoded into something that cannot be read here",
        re.compile(
            r"\batob\(\s*[\"']|Buffer\.from\(\s*[\"'].*base64|Base64\.getDecoder|\beval\(|new Function\(|fromCharCode\("
        ),
    ),
    (
        "tests_named",
        "the code reads or names a file of tests",
        re.compile(r"[\"'][^\"'\n]*(?:__tests__|\.test\.|\.spec\.|src/test/|/tests?/)[^\"'\n]*[\"']"),
    ),
)
_ANY = re.compile(rf"({_VALUE})")
_DECIDES = re.compile(
    r"\b(?:if|while|switch|case|when|unless)\b|\?(?![.?:])|&&|\|\||\.(?:includes|contains\w*|has|equals\w*|filter|some|anyMatch)\("
)
_BOUND = re.compile(r"(?<![\w.])(?P<name>[\w.]+)\s*(?P<order>[<>]=?)\s*(?P<bound>-?\d{1,15})(?![\w.])")
_CLOCK = re.compile(
    r"Date\.now|new Date\b|currentTimeMillis|nanoTime|Local(?:Date|Time|DateTime)\.now|Instant\.now|Math\.random"
    r"|performance\.now|hrtime|Clock\.system|Year\.now|ThreadLocalRandom|new Random"
)
_WEAK = re.compile(
    r"\b(?:equals|hashCode|compareTo|compare|valueOf|toJSON|asymmetricMatch)\s*\([^)]*\)\s*\{?\s*(?:return\s+(?:true|0|1)\b)?"
)


_REMARK = re.compile(r"\s*(?://|\*|/\*|#)")
_LONGEST = 2000


def _parts(line: str) -> list[str]:
    """A line in parts of a bounded length: the time that some patterns take grows with its square."""
    return [line[at : at + _LONGEST] for at in range(0, len(line), _LONGEST)]


def text_signs(file: ChangedFile, tests: TestValues) -> Iterator[Sign]:
    """The signs in the added lines of one file."""
    lines = [(number, part) for number, line in file.added if not _REMARK.match(line) for part in _parts(line)]
    answered = list(_answered(lines, tests))
    for number, line in lines:
        named = [value for _, value in _values(line, _CONDITIONS)]
        found = [value for value in named if tests.copied(value) or (answered and tests.occurs(value))]
        if not found and _DECIDES.search(line):
            found = [value for _, value in _values(line, (_ANY,)) if tests.copied(value)]
        if found:
            why = f"a new condition compares with {shown(found[0])}, a value of the failing test"
            yield sign("copied_condition", file.path, number, why)
    if any(_CLOCK.search(line) for _, line in lines) and any(_DECIDES.search(line) for _, line in lines):
        number = next(number for number, line in lines if _CLOCK.search(line))
        yield sign("time_bomb", file.path, number, "a condition depends on the time or on chance")
    for number, line in lines:
        for low, high in _narrow(line):
            why = f"a new condition is true only between {low} and {high}"
            yield sign("pinned_condition", file.path, number, why)
    for number, value in answered:
        yield sign(
            "copied_answer", file.path, number, f"answers {shown(value)}, a value of the failing test", certain=False
        )
    for number, line in lines:
        for pattern in _TABLES:
            for match in pattern.finditer(line):
                first, second = (_value(part) for part in match.groups())
                if (
                    tests.occurs(first[1])
                    and tests.occurs(second[1])
                    and any(tests.copied(one[1]) for one in (first, second))
                ):
                    why = f"a table maps {shown(first[1])} to {shown(second[1])}, both values of the failing test"
                    yield sign("copied_lookup", file.path, number, why)
        for rule, why, evasion in _EVASIONS:
            if evasion.search(line):
                yield sign(rule, file.path, number, why)
    for number, line in lines:
        if (weak := _WEAK.search(line)) and "return" in weak[0]:
            yield sign("weak_comparison", file.path, number, "a comparison method holds for anything")


def _narrow(line: str) -> Iterator[tuple[int, int]]:
    """Pairs of bounds of one name in a condition that leave a single number between them."""
    bounds = [(match["name"], match["order"][0], int(match["bound"])) for match in _BOUND.finditer(line)]
    for name, order, low in bounds:
        for other, reverse, high in bounds:
            if name == other and (order, reverse) == (">", "<") and 0 <= high - low <= NARROW:
                yield low, high


def _answered(lines: list[tuple[int, str]], tests: TestValues) -> Iterator[tuple[int, object]]:
    for number, line in lines:
        for value in _values(line, _ANSWERS):
            if tests.copied(value[1]):
                yield number, value[1]


def _values(line: str, patterns: tuple[re.Pattern[str], ...]) -> Iterator[Key]:
    for pattern in patterns:
        for match in pattern.finditer(line):
            value = _value(next(one for one in match.groups() if one))
            if not natural(value) or value[0] == "number":
                yield value


def _value(text: str) -> Key:
    if text[0] in "\"'`":
        return ("text", text[1:-1])
    digits = text.rstrip("lLdDfFn").replace("_", "")
    return ("number", float(digits) if "." in digits else int(digits[:30]))
