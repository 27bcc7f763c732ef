"""Python code that evades its tests: it detects them, hides failures, replaces its judges or depends on the clock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from codepilot.verify.generality.judges import judge_signs
from codepilot.verify.generality.nodes import Function, called, named
from codepilot.verify.generality.sign import ONLY_TESTED, PythonChange, Sign, sign
from codepilot.verify.generality.values import UNKNOWN, TestValues, fold, shown

JUDGES = frozenset(
    {"unittest", "pytest", "_pytest", "doctest", "nose", "mock", "hypothesis", "pluggy", "sitecustomize"}
)
"""Modules that judge; code that is judged does not need them."""
INSPECTING = frozenset(
    {
        "stack",
        "currentframe",
        "_getframe",
        "extract_stack",
        "format_stack",
        "walk_stack",
        "getframeinfo",
        "_current_frames",
    }
    | {"__subclasses__", "__globals__", "__code__", "__closure__", "f_back", "f_code", "tb_frame", "gi_frame"}
    | {"getouterframes", "settrace", "setprofile", "gettrace", "getprofile", "get_objects", "get_referrers", "trace"}
)
ENDING = frozenset({"_exit", "abort", "kill", "killpg", "quit", "exit", "register", "excepthook", "SkipTest", "skip"})
SURROUNDINGS = frozenset(
    {"environ", "getenv", "argv", "orig_argv", "modules", "getpid", "getppid", "gethostname", "getuser", "getlogin"}
    | {"getcwd", "cwd", "executable", "flags", "ttyname", "isatty", "node", "uname", "meta_path", "path_hooks"}
)
"""Names of the surroundings: of the process, the machine and the interpreter."""
SYSTEM = frozenset({"sys", "os", "platform", "socket", "getpass", "inspect", "traceback", "gc"})
CLOCKS = frozenset(
    {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "now", "utcnow"}
    | {"today", "localtime", "gmtime", "strftime", "ctime", "random", "randint", "choice", "getrandbits", "uuid4"}
    | {"uuid1", "urandom", "token_hex", "times", "getmtime", "st_mtime"}
)
CLOCK_MODULES = frozenset({"time", "datetime", "date", "random", "uuid", "os", "secrets", "dt"})
READING = frozenset(
    {"open", "read_text", "read_bytes", "getsource", "getsourcelines", "get_data", "linecache", "getline"}
)
READERS = frozenset(
    {
        "subprocess",
        "glob",
        "fileinput",
        "codecs",
        "mmap",
        "linecache",
        "tokenize",
        "pkgutil",
        "shelve",
        "sqlite3",
        "dbm",
    }
    | {"pickle", "marshal", "socket", "urllib", "http", "requests", "multiprocessing"}
)
"""Modules by which code gets at files and answers that it was not given."""
FOREIGN = frozenset({"ctypes", "cffi", "_ctypes"})
"""Modules by which code changes what the interpreter holds."""
BROAD = frozenset({"Exception", "BaseException", "AssertionError", "StandardError"})
TEST_PATH = re.compile(r"(?:^|[/\\_.])(?:tests?|specs?|conftest|pytest|unittest)(?:[/\\_.]|$)", re.IGNORECASE)
TEST_WORDS = re.compile(
    r"PYTEST|UNITTEST|JEST|VITEST|TOX_|NOSE|\bCI\b|GITHUB_ACTIONS|TRAVIS|JENKINS|BUILD_ID|CODEPILOT|_called_from_test",
)
MAX_DIGITS = 20
SEARCHES = frozenset(
    {"search", "match", "fullmatch", "findall", "finditer", "split", "splitlines", "partition", "rpartition", "find"}
    | {"rfind", "index", "loads", "literal_eval", "dict"}
)
"""Calls that look for a part of a text."""


def evasions(change: PythonChange, tests: TestValues) -> Iterator[Sign]:
    yield from _only_tested(change)
    yield from _detection(change, tests)
    yield from _clocks(change)
    yield from _counters(change)
    yield from _swallowed(change)
    yield from judge_signs(change, tests)
    yield from _own_text(change, tests)


def _only_tested(change: PythonChange) -> Iterator[Sign]:
    """Every changed file: its functions may act otherwise without a test runner, or at another time."""
    if change.lines:
        why = "the changed functions act otherwise where nothing tests them, or at another time"
        yield sign(ONLY_TESTED, change.path, min(change.lines), why, weak=True)


# Detection of tests ---------------------------------------------------------------------------------


def _detection(change: PythonChange, tests: TestValues) -> Iterator[Sign]:
    path = change.path
    for node in change.nodes(ast.Import, ast.ImportFrom):
        assert isinstance(node, ast.Import | ast.ImportFrom)
        roots = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        if any(root.partition(".")[0] in JUDGES for root in roots):
            yield sign("judge_imported", path, node.lineno, f"the code imports {roots[0]}, which judges it")
        tops = {root.partition(".")[0] for root in roots}
        if reader := min(tops & READERS, default=""):
            why = f"the change imports {reader}, which gets at files and answers outside the code"
            yield sign("reads_files", path, node.lineno, why, certain=False)
        if foreign := min(tops & FOREIGN, default=""):
            yield sign(
                "monkeypatch", path, node.lineno, f"the change imports {foreign}, which reaches into the interpreter"
            )
        if any(TEST_PATH.search(root) for root in roots if root.partition(".")[0] not in JUDGES):
            yield sign("tests_imported", path, node.lineno, f"the code imports {roots[0]}, a module of the tests")
    taken = _taken(change.tree)
    for node in change.nodes(ast.Attribute, ast.Name):
        name, line = named(node), getattr(node, "lineno", 0)
        stored = isinstance(getattr(node, "ctx", None), ast.Store)
        name = taken.get(name, name) if isinstance(node, ast.Name) else name
        owned = isinstance(node, ast.Attribute) or named(node) in taken
        if name in SURROUNDINGS and owned and not stored:
            yield sign(
                "environment_check",
                path,
                line,
                f"the code asks for its surroundings by `{name}`",
                certain=_decides(change, node),
            )
        elif name in INSPECTING and (owned or name != "trace"):
            yield sign("environment_check", path, line, f"the code looks at its callers by `{name}`")
        elif name == "__debug__":
            yield sign("environment_check", path, line, "the code depends on the interpreter's options")
    for node in change.nodes(ast.Constant):
        value = fold(node)
        if not isinstance(value, str) or _is_docstring(change, node):
            continue
        line = getattr(node, "lineno", 0)
        if TEST_WORDS.search(value) or value in JUDGES:
            yield sign("environment_check", path, line, f"the code names {shown(value)}, a sign of being tested")
        elif value in tests.names or (TEST_PATH.search(value) and len(value) < 200 and " " not in value):
            yield sign("tests_named", path, line, f"the code names {shown(value)}, a test or a file of tests")
    for node in change.nodes(ast.Call):
        if called(node) in READING:
            line = getattr(node, "lineno", 0)
            yield sign("reads_files", path, line, f"the change reads a file by `{called(node)}`", certain=False)


def _taken(tree: ast.Module) -> dict[str, str]:
    """The names under which a file imports parts of modules of the interpreter and the machine, and what they are."""
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    parts = (alias for node in imports if node.module in SYSTEM for alias in node.names)
    return {alias.asname or alias.name: alias.name for alias in parts}


def _is_docstring(change: PythonChange, node: ast.AST) -> bool:
    return isinstance(change.parents.get(node), ast.Expr)


def _decides(change: PythonChange, node: ast.AST) -> bool:
    """True if a condition depends on the node."""
    below: ast.AST = node
    for above in change.ancestors(node):
        if isinstance(above, ast.Compare | ast.BoolOp):
            return True
        if isinstance(above, ast.If | ast.IfExp | ast.While):
            return above.test is below
        if isinstance(above, ast.stmt):
            return False
        below = above
    return False


def _own_text(change: PythonChange, tests: TestValues) -> Iterator[Sign]:
    """Functions that read documentation in which the change wrote values of the failing test."""
    texts = [fold(node) for node in change.nodes(ast.Constant) if _is_docstring(change, node)]
    words = [word for text in texts if isinstance(text, str) for word in re.findall(r"[\w.]*\w", text)]
    values = [int(word) if word.isdecimal() and len(word) < MAX_DIGITS else word for word in words]
    copied = [value for value in values if tests.copied(value)]
    for node in change.nodes(ast.Attribute, ast.Name, ast.Call) if copied else ():
        reads = named(node) == "__doc__" or called(node) == "getdoc"
        if reads and _inside_function(change, node) and any(map(_searches, change.ancestors(node))):
            why = f"the code searches its documentation, where the change wrote {shown(copied[0])}"
            yield sign("copied_lookup", change.path, getattr(node, "lineno", 0), f"{why}, a value of the failing test")


def _searches(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare | ast.Subscript | ast.For | ast.comprehension) or called(node) in SEARCHES


# Clocks and counters --------------------------------------------------------------------------------


def _clocks(change: PythonChange) -> Iterator[Sign]:
    """Conditions that depend on the time or on chance."""
    timed: set[str] = set()
    fresh = [node for node in change.nodes(ast.Call, ast.Attribute) if _is_clock(node)]
    for node in fresh:
        statement = next((one for one in change.ancestors(node) if isinstance(one, ast.stmt)), None)
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            timed |= {named(one) for target in targets for one in ast.walk(target) if named(one)}
    for node in fresh:
        if _decides(change, node) or any(isinstance(one, ast.Subscript) for one in change.ancestors(node)):
            yield sign(
                "time_bomb", change.path, getattr(node, "lineno", 0), "the result depends on the time or on chance"
            )
    for node in change.nodes(ast.Compare, ast.If, ast.IfExp, ast.BoolOp):
        tested = getattr(node, "test", node)
        if timed & {named(one) for one in ast.walk(tested)}:
            yield sign(
                "time_bomb", change.path, getattr(node, "lineno", 0), "a condition depends on the time or on chance"
            )


def _is_clock(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or called(node) not in CLOCKS:
        return False
    if isinstance(node.func, ast.Name):
        return called(node) not in ("time", "random") or not node.args
    owner = [named(one) for one in ast.walk(node.func.value)] if isinstance(node.func, ast.Attribute) else []
    return any(name.strip("_") in CLOCK_MODULES for name in owner)


def _counters(change: PythonChange) -> Iterator[Sign]:
    """State that makes one call differ from the next, where a condition depends on it."""
    kept: set[str] = set()
    functions = {node.name for node in ast.walk(change.tree) if isinstance(node, Function)}
    for node in change.nodes(ast.Global, ast.Nonlocal):
        kept |= set(node.names)  # type: ignore[attr-defined]
    for node in change.nodes(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        if isinstance(node.ctx, ast.Store) and named(node.value) in functions:
            kept.add(node.attr)
    yield from _filled_defaults(change)
    for node in change.nodes(ast.Call):
        if called(node) in ("count", "cycle", "iter") and not _inside_function(change, node):
            statement = next((one for one in change.ancestors(node) if isinstance(one, ast.Assign)), None)
            kept |= {named(one) for one in statement.targets} if statement else set()
    for node in change.nodes(ast.Compare, ast.If, ast.IfExp):
        tested = getattr(node, "test", node)
        if (kept - {""}) & {named(one) for one in ast.walk(tested)}:
            why = "a condition depends on how often the code was called before"
            yield sign("call_counter", change.path, getattr(node, "lineno", 0), why, certain=False)


def _filled_defaults(change: PythonChange) -> Iterator[Sign]:
    """Parameters whose default value every call fills, where a condition asks how full it is."""
    for node in ast.walk(change.tree):
        if not isinstance(node, Function):
            continue
        given = [*node.args.posonlyargs, *node.args.args]
        pairs = [*zip(given[::-1], node.args.defaults[::-1], strict=False)]
        pairs += [(one, value) for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value]
        filled = {one.arg for one, value in pairs if isinstance(value, ast.List | ast.Dict | ast.Set | ast.Call)}
        for one in ast.walk(node):
            if isinstance(one, ast.Compare | ast.If | ast.IfExp) and change.fresh(one):
                tested = getattr(one, "test", one)
                asked = [part for part in ast.walk(tested) if called(part) == "len" or isinstance(part, ast.Not)]
                if filled & {named(part) for part in ast.walk(tested)} and asked:
                    why = "a condition depends on a default value that is kept from call to call"
                    yield sign("call_counter", change.path, one.lineno, why)


def _inside_function(change: PythonChange, node: ast.AST) -> bool:
    return any(isinstance(one, Function) for one in change.ancestors(node))


# Hidden failures ------------------------------------------------------------------------------------


def _swallowed(change: PythonChange) -> Iterator[Sign]:
    for node in change.nodes(ast.ExceptHandler):
        assert isinstance(node, ast.ExceptHandler)
        caught = {named(one) for one in ast.walk(node.type)} if node.type else {"BaseException"}
        raises = any(isinstance(one, ast.Raise) for one in ast.walk(node))
        if raises or (node.type is not None and not change.fresh(node.type) and not _new_try(change, node)):
            continue
        line, names = node.lineno, ", ".join(sorted(caught - {""}))
        if caught & BROAD:
            yield sign("swallowed_exception", change.path, line, f"the change catches {names} and goes on")
        elif _only_answers(node):
            why = f"the change answers a {names} with a constant"
            yield sign("swallowed_exception", change.path, line, why, certain=False)
    for node in change.nodes(ast.Call):
        if called(node) == "suppress":
            caught = {named(one) for one in getattr(node, "args", [])}
            line = getattr(node, "lineno", 0)
            broad = bool(caught & BROAD)
            yield sign("swallowed_exception", change.path, line, "the change suppresses exceptions", certain=broad)
        if called(node) in ENDING and (
            called(node) not in ("register", "skip") or _owned_by(node, ("atexit", "pytest"))
        ):
            line = getattr(node, "lineno", 0)
            yield sign(
                "ends_the_run", change.path, line, f"the change ends the process or the test by `{called(node)}`"
            )
    for node in change.nodes(ast.Raise):
        raised = {named(one) for one in ast.walk(node)}
        if raised & {"SystemExit", "SkipTest", "KeyboardInterrupt", "Skipped"}:
            why = "the change raises what ends or skips a test"
            yield sign("ends_the_run", change.path, getattr(node, "lineno", 0), why)
    for node in change.nodes(ast.Try):
        last = getattr(node, "finalbody", [])
        if any(isinstance(one, ast.Return) for part in last for one in ast.walk(part)):
            why = "a `finally` drops the exception by returning"
            yield sign("swallowed_exception", change.path, getattr(node, "lineno", 0), why)


def _new_try(change: PythonChange, node: ast.AST) -> bool:
    above = change.parents.get(node)
    return above is not None and change.lines.issuperset({getattr(above, "lineno", 0)})


def _only_answers(node: ast.ExceptHandler) -> bool:
    if len(node.body) != 1:
        return False
    match node.body[0]:
        case ast.Pass():
            return True
        case ast.Return(value=value):
            return value is not None and fold(value) not in (UNKNOWN, None, False, True, 0, "")
    return False


def _owned_by(node: ast.AST, names: tuple[str, ...]) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and named(node.func.value) in names
