"""Tests read from their source: which tests a file has, whether they assert, and what a change does to them.

Python is parsed. Java, Kotlin, JavaScript and TypeScript are read from their text: comments and strings are blanked and
brackets are matched, and a test that cannot be followed counts as one that asserts.
"""

from __future__ import annotations

import ast
import doctest
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from threading import Lock
from typing import NamedTuple

PYTHON = (".py", ".pyi")
JVM = (".java", ".kt", ".groovy", ".scala")
SCRIPT = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts")
HELPS = re.compile(r"test|spec|help|support|util|fixture|assert|common|share", re.IGNORECASE)
"""Files of such a name hold helpers of tests, which may assert."""


class TestCode(NamedTuple):
    """What the source of one test shows."""

    asserts: bool
    """False only if the test certainly asserts nothing."""
    empty: bool = False
    """True if the test ends before it does anything."""


def read_tests(path: str, content: bytes | None) -> dict[str, TestCode] | None:
    """The tests of a file by name; None if Python source cannot be parsed."""
    if path.endswith(PYTHON):
        return None if (tree := parsed(content)) is None else _python_tests(tree)
    return _brace_tests(path, content)


def silent_tests(path: str, before: bytes | None, after: bytes | None) -> list[str]:
    """The tests that a change adds to a file and that assert nothing."""
    known = read_tests(path, before) or {}
    return [name for name, test in (read_tests(path, after) or {}).items() if not test.asserts and name not in known]


def lost_lines(before: bytes, after: bytes) -> list[str]:
    """What a file in a language with braces checks no more: assertions that were removed, cut off or replaced."""
    old, new = _stripped(before), _stripped(after)
    gone, fresh = Counter(old) - Counter(new), Counter(new) - Counter(old)
    found = [f"`{line[:MAX_LINE]}` was removed" for line in gone if _BRACE_ASSERTS.search(line)]
    for number, line in enumerate(new):
        if line not in fresh:
            continue
        if _REPLACED.match(line):
            found.append(f"`{line[:MAX_LINE]}` replaces what checks")
        elif _RETURNS.fullmatch(line) and _cuts_off(new, number):
            found.append(f"`{line}` ends a test before `{_next(new, number)[:MAX_LINE]}`")
    return found


_REPLACED = re.compile(r"(?:global(?:This)?\.)?(?:assert|expect)(?:\.\w+)+ = ")
_RETURNS = re.compile(r"return;?")


def _cuts_off(lines: Sequence[str], number: int) -> bool:
    """True if lines of the same block follow a `return`, which is not the body of a condition without braces."""
    above = next((line for line in reversed(lines[:number]) if line), "")
    ended = ("}", ")", "case ", "default")
    return not above.endswith((")", "else", "=>")) and not _next(lines, number).startswith(ended)


def _next(lines: Sequence[str], number: int) -> str:
    """The next line that is not blank; a bracket at the end of the file."""
    return next((line for line in islice(lines, number + 1, None) if line), "}")


def _stripped(content: bytes) -> list[str]:
    return [line.strip() for line in content.decode("utf-8", "replace").splitlines()]


# Python ---------------------------------------------------------------------------------------------

MAX_PYTHON_BYTES = 4 << 20
_WARNINGS = Lock()
_ASSERTING = re.compile(r"assert|raises|warns|expect|verif|should|fail|check|ensure|must|approx|match", re.IGNORECASE)
EXPECTING = re.compile(r"assert|raises$|warns$|fail$")
MAX_LINE = 100
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(content: bytes | None) -> ast.Module | None:
    """The syntax tree; None if the source is missing, invalid, too large or nested too deeply."""
    if content is None or len(content) > MAX_PYTHON_BYTES:
        return None
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def compile_warnings(content: bytes | None) -> Counter[str]:
    """The warnings of the compiler. The code is not run."""
    if content is None or len(content) > MAX_PYTHON_BYTES:
        return Counter()
    with _WARNINGS, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            compile(content, "<change>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return Counter()
    return Counter(str(warning.message) for warning in caught)


def _python_tests(tree: ast.Module) -> dict[str, TestCode]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    helpers = frozenset(node.name for node in functions if _asserts(node, frozenset())) | _imported_helpers(tree)
    return {
        name: TestCode(_is_fixture(node) or _asserts(node, helpers | _parameters(node)), _is_empty(node))
        for name, node in _test_functions(tree).items()
    }


def _asserts(function: ast.AST, helpers: frozenset[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in helpers or _ASSERTING.search(name):
                return True
    return False


def _parameters(function: _Function) -> frozenset[str]:
    """The fixtures of a test, which may assert."""
    return frozenset(argument.arg for argument in (*function.args.args, *function.args.kwonlyargs))


def _imported_helpers(module: ast.Module) -> frozenset[str]:
    """Names imported from files of test helpers, which may assert."""
    imports = (node for node in ast.walk(module) if isinstance(node, ast.ImportFrom))
    helping = (node for node in imports if node.level or HELPS.search(node.module or ""))
    return frozenset(alias.asname or alias.name for node in helping for alias in node.names)


def _is_fixture(function: _Function) -> bool:
    """True for a fixture with the name of a test, which pytest does not run as a test."""
    parts = (part for mark in function.decorator_list for part in ast.walk(mark))
    return any("fixture" in getattr(part, "attr", getattr(part, "id", "")) for part in parts)


def _test_functions(tree: ast.Module) -> dict[str, _Function]:
    """The test functions of a module by qualified name; a later definition replaces an earlier one, as at run time."""
    return {name: node for name, node in functions(tree.body, "") if node.name.startswith("test")}


def functions(body: Sequence[ast.stmt], prefix: str = "") -> Iterator[tuple[str, _Function]]:
    """The functions of a block and of its classes by qualified name."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from functions(node.body, f"{prefix}{node.name}.")


def _is_empty(function: _Function) -> bool:
    """True if the first statement after the docstring is `pass` or `return`, or there is none."""
    for node in function.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        return isinstance(node, ast.Pass | ast.Return)
    return True


def edits(before: ast.Module, after: ast.Module) -> list[str]:
    """Statements of `before` that `after` lacks, and names that `after` binds again. Additions are no edits."""
    try:
        return list(_scope_edits(before.body, after.body, ""))
    except RecursionError:
        return ["it is nested too deeply to be compared"]


def _scope_edits(before: Sequence[ast.stmt], after: Sequence[ast.stmt], prefix: str) -> Iterator[str]:
    fresh: dict[str, list[ast.stmt]] = {}
    for node in after:
        fresh.setdefault(ast.dump(node), []).append(node)
    lacking = [node for node in before if not _take(fresh, node)]
    kept = {name for node in before if node not in lacking for name in _bound(node)}
    added = [node for nodes in fresh.values() for node in nodes]
    imported = _imports(after)
    for node in lacking:
        successor = _successor(node, added)
        if successor is not None and isinstance(node, ast.ClassDef):
            added.remove(successor)
            yield from _scope_edits(node.body, successor.body, f"{prefix}{node.name}.")
        elif not _is_docstring(node) and not (_imports([node]) and _imports([node]) <= imported):
            yield f"{prefix}{_label(node)} was edited or removed"
    for node in added:
        for name in sorted(_bound(node) & kept):
            yield f"{prefix}{name} is bound again"


def _take(pool: dict[str, list[ast.stmt]], node: ast.stmt) -> bool:
    same = pool.get(ast.dump(node))
    if not same:
        return False
    same.pop()
    return True


def _successor(node: ast.stmt, added: Sequence[ast.stmt]) -> ast.ClassDef | None:
    """The added class with the name, bases and decorators of `node`."""
    if not isinstance(node, ast.ClassDef):
        return None
    named = (other for other in added if isinstance(other, ast.ClassDef) and other.name == node.name)
    return next((other for other in named if _head(other) == _head(node)), None)


def _head(node: ast.ClassDef) -> list[str]:
    return [ast.dump(part) for part in (*node.bases, *node.keywords, *node.decorator_list)]


def _imports(body: Sequence[ast.stmt]) -> set[tuple[str, str, str]]:
    found = set()
    for node in body:
        if isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            found |= {(origin, alias.name, alias.asname or alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {("", alias.name, alias.asname or alias.name) for alias in node.names}
    return found


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _label(node: ast.stmt) -> str:
    names = sorted(_bound(node))
    return names[0] if names else f"the statement at line {node.lineno}"


def _bound(node: ast.stmt) -> set[str]:
    """Names that a statement binds in its scope."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {bound.split(".")[0] for _, _, bound in _imports([node])}
    stored = (part for part in ast.walk(node) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load))
    return {part.id for part in stored}


# Java, Kotlin, JavaScript, TypeScript ---------------------------------------------------------------

MAX_BRACE_BYTES = 1 << 19
MAX_FOUND = 500
MAX_BODY = 10_000
MAX_HEAD = 1_000
_REGEX = r"(?<=[(,=:\[!&|?{};])[ ]{0,20}/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n]){0,200}+\]|[^/\\\n\[]){1,400}+/"
_COMMENT = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
_STRING = '""".*?(?:"""|\\Z)' + "".join(rf"|{mark}(?:\\.|[^{mark}\\\n]){{0,200}}+{mark}" for mark in "\"'")
_QUOTED = re.compile(rf"{_REGEX}|{_COMMENT}|{_STRING}|`(?:\\.|[^`\\])*(?:`|\Z)", re.DOTALL)
"""Everything that is not code. Repetitions are bounded, so that hostile text takes linear time."""
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
_KEYWORDS = frozenset(
    {"if", "for", "while", "switch", "catch", "try", "synchronized", "return", "throw", "super", "this"}
    | {"describe", "it", "test"}
)
_BRACE_ASSERTS = re.compile(
    r"assert|expect|verif|should|\bfail\w*\s*\(|thrown|throws\s*\(|reject|check|ensure|must|statusCode|matchesSnapshot"
    r"|(?:get|find)(?:All)?By(?:Role|Text|\w+Text|Title|DisplayValue|TestId)\b|waitFor|\bt\.(?:is|ok|not|equal|equals|deepEqual|same|true|false|truthy|falsy|like|pass|match)\b",
    re.IGNORECASE,
)


def _brace_tests(path: str, content: bytes | None) -> dict[str, TestCode]:
    if content is None or len(content) > MAX_BRACE_BYTES or not path.endswith((*JVM, *SCRIPT)):
        return {}
    text = content.decode("utf-8", "replace")
    plain = _QUOTED.sub(_blanked, text)
    ends = _brackets(plain)
    tests = _jvm_tests(text, plain, ends) if path.endswith(JVM) else _script_tests(text, plain, ends)
    found = dict(tests)
    known = dict(_brace_functions(plain, ends))
    helpers = {name for name, body in known.items() if name not in found and _BRACE_ASSERTS.search(body)}
    helpers |= _script_helpers(text)
    own = None if path.endswith(SCRIPT) else {*known, *found}
    return {name: TestCode(body is None or _brace_asserts(body, helpers, own)) for name, body in found.items()}


def _blanked(match: re.Match[str]) -> str:
    """Blanks of the same length and line breaks; a string keeps its quotes."""
    text = match[0]
    blank = re.sub(r"[^\n]", " ", text)
    return blank if text[0] == "/" else text[0] + blank[1:-1] + text[-1]


def _brace_asserts(body: str, helpers: set[str], own: set[str] | None) -> bool:
    """True if a test asserts or calls a helper that may: in Java, also any function of another file."""
    calls = {call for call in _CALL.findall(body) if call not in _KEYWORDS}
    inherited = () if own is None else [call for call in calls if call[0].islower() and call not in own]
    return bool(_BRACE_ASSERTS.search(body) or calls & helpers or inherited)


def _script_helpers(text: str) -> set[str]:
    """Names imported from files of test helpers, which may assert."""
    places = _script_imports(text)
    return {
        name
        for place, names in places
        if place.startswith(".") and HELPS.search(place)
        for name in " ".join(names).split()
    }


def _script_imports(text: str) -> Iterator[tuple[str, set[str]]]:
    """The modules that a script imports from, and the names of each as they are written, brackets included."""
    for match in _FROM.finditer(text):
        parts = re.split(r"\b(?:import|const|let|var)\b", text[max(0, match.start() - MAX_HEAD) : match.start()])
        if len(parts) > 1:
            yield match[1], {part.strip() for part in re.findall(r"[{}]|[^,{}]+", parts[-1]) if part.strip()}


def widened(before: str, after: str) -> bool:
    """True if the line `before` only imports names that `after` imports from the same module, too."""
    old = list(_script_imports(before)) if re.match(r"\s*(?:import\b|(?:const|let|var)\s*\{)", before) else []
    return bool(old) and all(
        any(there == place and names <= more for there, more in _script_imports(after)) for place, names in old
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


def _brace_functions(plain: str, ends: Mapping[int, int]) -> Iterator[tuple[str, str]]:
    for head in islice(_FUNCTION.finditer(plain), MAX_FOUND):
        name = head[1] or head[2] or head[3]
        body = _within(plain, head.end() - 1, ends)
        if body is not None and name not in _KEYWORDS:
            yield name, body


def _within(plain: str, at: int, ends: Mapping[int, int]) -> str | None:
    """The text between the bracket at `at` and its closing one; None if that is missing or far away."""
    end = ends.get(at)
    return plain[at + 1 : end] if end is not None and end - at <= MAX_BODY else None


def _brackets(plain: str) -> dict[int, int]:
    """The positions of opening brackets, each with that of its closing one."""
    open_at: dict[str, list[int]] = {")": [], "}": []}
    ends: dict[int, int] = {}
    for match in re.finditer(r"[(){}]", plain):
        if match[0] in "({":
            open_at[")" if match[0] == "(" else "}"].append(match.start())
        elif open_at[match[0]]:
            ends[open_at[match[0]].pop()] = match.start()
    return ends


# Documented examples --------------------------------------------------------------------------------


def is_documented(test: str) -> bool:
    """True for the id of a doctest: a file, then the dotted name of what it documents."""
    path, mark, name = test.partition("::")
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    modules = (".".join(parts[at:]) for at in range(len(parts)))
    return bool(mark) and path.endswith(".py") and any(name == one or name.startswith(f"{one}.") for one in modules)


def examples(tree: ast.Module | None) -> list[tuple[str, str]]:
    """The examples in the docstrings of a file: what is run, and what it gives."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    walked = ast.walk(tree) if tree is not None else iter(())
    texts = (ast.get_docstring(node) or "" for node in walked if isinstance(node, documented))
    found = []
    for text in texts:
        try:
            found += [(one.source, one.want) for one in doctest.DocTestParser().get_examples(text)]
        except ValueError:
            continue
    return found
