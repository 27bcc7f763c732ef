"""Failures that no search can repair: names that the repository does not define, and files that do not parse."""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from typing import NamedTuple

from codepilot.core.artifacts import TestStatus
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.executor import Executor, RunCommand
from codepilot.project import Project, SuiteRun, TestCase

_MODEL = "use an agent with a model: `codepilot fix --agent codeact --model PROVIDER:NAME`."
_KINDS = ("ImportError", "ModuleNotFoundError", "AttributeError", "NameError")
_BUILT_IN = ("NoneType", "function", "module", "method", "generator")
_WORDS_SEC = 60.0
TOP = "the top directory"
_MISSING = (
    (re.compile(r"cannot import name '(?P<name>\w+)' from (?:partially initialized module )?'(?P<of>[\w.]+)'"), "name"),
    (re.compile(r"No module named '(?:(?P<of>[\w.]+)\.)?(?P<name>\w+)'"), "module"),
    (re.compile(r"module '(?P<of>[\w.]+)' has no attribute '(?P<name>\w+)'"), "name"),
    (re.compile(r"(?:type object )?'(?P<of>\w+)'(?: object)? has no attribute '(?P<name>\w+)'"), "attribute"),
    (re.compile(r"name '(?P<name>\w+)' is not defined"), "name"),
)
_UNPARSED = re.compile(r"\b(SyntaxError|IndentationError|TabError)\b:? ?([^\n]*)")
_FRAME = re.compile(r"(?m)^([^\s:]+\.py):(\d+): in ")
_PLACE = re.compile(r'File "([^"\n]+)", line (\d+)')


class Missing(NamedTuple):
    """A name that a failing test needs."""

    name: str
    of: str
    """The module or class that lacks it; empty if unknown."""
    kind: str
    """`name`, `attribute` or `module`."""

    @property
    def text(self) -> str:
        return f"{self.of}.{self.name}" if self.of else self.name


def missing_name(message: str) -> Missing | None:
    """The name that an ImportError, AttributeError or NameError reports as missing."""
    for pattern, kind in _MISSING:
        match = pattern.search(message)
        if match:
            return Missing(match["name"], match.groupdict().get("of") or "", kind)
    return None


def unparsed(text: str, root: str) -> str:
    """The place at which a file does not parse: `shop.py:3: SyntaxError: invalid syntax`; empty if all parse."""
    error = _UNPARSED.search(text)
    places = _PLACE.findall(text[: error.start()]) if error else []
    if error is None or not places:
        return ""
    path, line = places[-1]
    path = path.removeprefix(root).lstrip("/") if path.startswith(root) else path
    return f"{path}:{line}: {error[1]}" + (f": {error[2].strip()}" if error[2].strip() else "")


def obstacle(
    executor: Executor, workspace: str, project: Project, baseline: SuiteRun, targets: Sequence[str]
) -> Failure | None:
    """Why no search can make the targets pass; None if one may."""
    for test, case in baseline.cases.items():
        unloaded = case.status is TestStatus.ERROR and test not in baseline.collected
        named = test in targets or any(test in baseline.resolved.get(target, ()) for target in targets)
        if named or (unloaded and any(target.partition("::")[0] == test for target in targets)):
            place = unparsed(f"{case.traceback}\n{case.error_type}: {case.message}", project.root)
            if place:
                return Failure(
                    kind=FailureKind.STUCK,
                    message=f"{place}. The embedded agent repairs only files that parse.",
                    next_action=f"Correct the syntax, or {_MODEL}",
                )
            missing = missing_name(case.message) if case.error_type in _KINDS else None
            if missing is not None and _undefined(executor, workspace, project, test, missing):
                return Failure(
                    kind=FailureKind.STUCK,
                    message=f"{test} needs `{missing.text}`, which the repository does not define. The embedded agent "
                    "cannot write new functions, classes or modules.",
                    next_action=f"{_MODEL[:1].upper()}{_MODEL[1:]}",
                )
            if unloaded:
                return _unloaded(executor, workspace, project, case, missing)
    return None


def _unloaded(executor: Executor, workspace: str, project: Project, case: TestCase, missing: Missing | None) -> Failure:
    """Why a file of tests that cannot be imported is nothing for a search."""
    if missing is not None and missing.kind == "module" and not missing.of:
        place = _words(executor, workspace, project, missing.name).removeprefix("at ").strip()
        if place.endswith(("/" + missing.name, "/" + missing.name + ".py")):
            folder = place.rpartition("/")[0].removeprefix(".").removeprefix("/")
            other = (
                f"Name the project that the test belongs to, for example `codepilot fix {folder.removesuffix('/src')}`"
            )
            return Failure(
                kind=FailureKind.ENVIRONMENT_MISSING,
                message=f"{case.test} needs the module `{missing.name}`, which lies in {folder or TOP}, "
                f"and the project in {project.folder or TOP} does not import from there.",
                next_action=f"{other if folder else 'Add that directory to `pythonpath` of pytest'}, or install that "
                "package into the environment.",
            )
    text = next(iter(case.message.splitlines()), "")
    own = [one for one in _FRAME.findall(case.traceback) if "site-packages/" not in one[0]]
    where = f" (line {own[-1][1]} of {own[-1][0].removeprefix(project.root).lstrip('/')})" if own else ""
    return Failure(
        kind=FailureKind.STUCK,
        message=f"{case.test} cannot be loaded: {case.error_type}{': ' if text else ''}{text[:300]}{where}. "
        "The embedded agent repairs what tests run, not what runs when they are loaded.",
        next_action=f"Correct that first, or {_MODEL}",
    )


def _undefined(executor: Executor, workspace: str, project: Project, test: str, missing: Missing) -> bool:
    """True if the test itself uses the name and no code of the repository defines it."""
    file = test.partition("::")[0] if "::" in test or test.endswith(".py") else ""
    if file:
        try:
            text = executor.read_file(workspace, file).decode("utf-8", "replace")
        except CodePilotError:
            return False
        if not re.search(rf"\b{re.escape(missing.name)}\b", text):
            return False
    owner = missing.of if missing.kind == "attribute" else ""
    if owner and (hasattr(builtins, owner) or owner in _BUILT_IN):
        return False
    imported = missing.kind == "name" and bool(missing.of)
    return _words(executor, workspace, project, missing.name, "defined" if imported else "used") == "unknown"


def _words(executor: Executor, workspace: str, project: Project, name: str, how: str = "used") -> str:
    """`unknown` if no code of the repository has the name, else where it is; empty if that is not known.

    With `defined` parameters and other uses of the name do not count.
    """
    argv = (project.interpreter.executable, "-I", "-S", "-c", _WORDS, name, how)
    result = executor.run_command(RunCommand(workspace=workspace, argv=argv, timeout_sec=_WORDS_SEC))
    ended = result.status == "ok" and result.exit_code == 0
    return result.stdout.decode("utf-8", "replace").strip() if ended else ""


_WORDS = """
import ast, os, sys
for folder, folders, files in os.walk("."):
    folders[:] = [one for one in folders if not one.startswith(".") and one not in ("tests", "test", "node_modules")]
    inner = os.path.join(folder, sys.argv[1])
    if sys.argv[1] in folders and any(one.endswith(".py") for one in os.listdir(inner)):
        sys.exit(print("at", inner))
    for file in files:
        if not file.endswith(".py") or file.startswith("test_") or file.endswith("_test.py"):
            continue
        try:
            with open(os.path.join(folder, file), "rb") as stream:
                tree = ast.parse(stream.read())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        nodes = list(ast.walk(tree))
        if sys.argv[2] == "defined":
            nodes = [one for one in nodes if not isinstance(one, (ast.arg, ast.keyword, ast.Attribute))]
            nodes = [one for one in nodes if not isinstance(getattr(one, "ctx", None), ast.Load)]
        words = (getattr(node, part, "") for node in nodes for part in ("id", "attr", "name", "arg", "asname"))
        if file == sys.argv[1] + ".py":
            sys.exit(print("at", os.path.join(folder, file)))
        if sys.argv[1] in words:
            sys.exit(print("in", os.path.join(folder, file)))
print("unknown")
"""
"""Prints where the code below its folder, tests left out, has the word of its first argument, or `unknown`."""
