"""Task documents: what a person or a program writes down as JSON, brought into the shape of the task contract.

`//` comments are allowed. Older names are accepted: `type: BUGFIX`, `prompt`, `repoUrl`, and follow-ups as a run prints
them. Pure: nothing is looked up.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability, TaskKind

MAX_BYTES = 16 << 20
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"?|//[^\n]*')  # an open string counts too: a search beyond it is quadratic
_KINDS = {"code_refactor": "change", "edit_code": "bugfix", "test": "change", "docs": "change"}
"""Kinds of follow-ups and older documents that are called otherwise here."""
_FOLLOW_UP = frozenset({"title", "kind", "inputs", "origin"})


def read_task_document(text: str, repo: str = ".") -> JsonObject:
    """The document in the names of the task contract, with `repo` if it names none; raise if it is no task."""
    document = _parsed(text)
    if "tasks" in document:
        raise _wrong("This is a list of tasks.", "Run it with `codepilot batch`, or write down one of its tasks alone.")
    if "title" in document and document.keys() <= _FOLLOW_UP:
        document = _from_follow_up(document)
    if "failingTest" in document or "failing_test" in document:
        document = _from_bench(document)
    if "prompt" in document:
        document.setdefault("goal", document.pop("prompt"))
    if isinstance(goal := document.get("goal"), str):
        document["goal"] = {"natural": goal}
    for name in ("kind", "type"):
        if isinstance(kind := document.get(name), str):
            document[name] = _KINDS.get(kind.lower(), kind.lower())
    if document.get("repo") == "workspace" or not document.keys() & {"repo", "repoUrl", "repo_url"}:
        document["repo"] = repo
    _read_ceiling(document)
    if _only_reads(document) and document.get("kind", document.get("type", "bugfix")) in ("bugfix", "change"):
        document.pop("type", None)
        document["kind"] = TaskKind.QUESTION.value
    return document


def _only_reads(document: dict[str, Any]) -> bool:
    profile = document.get("risk_profile", document.get("riskProfile"))
    return isinstance(profile, dict) and profile.get("capability") == Capability.READ_ONLY


def _from_bench(document: dict[str, Any]) -> dict[str, Any]:
    """A task of a benchmark as a task. What is known of its fix is not shown to an agent."""
    left = {"failingTest", "failing_test", "verificationCmd", "verification_cmd", "knownFixSummary"}
    task = {name: value for name, value in document.items() if name not in left}
    test = document.get("failingTest", document.get("failing_test"))
    command = document.get("verificationCmd", document.get("verification_cmd"))
    if isinstance(test, str):
        task.setdefault("tests", [test])
    if isinstance(command, list) and all(isinstance(one, str) for one in command):
        command = shlex.join(command)
    if isinstance(command, str) and command.strip():
        task.setdefault("accept", [command])
    return task


def _parsed(text: str) -> dict[str, Any]:
    if len(text) > MAX_BYTES:
        raise _wrong(f"The task document is larger than {MAX_BYTES >> 20} MiB.")
    text = text.removeprefix("\ufeff")  # what some editors put first
    plain = _COMMENT.sub(lambda match: match[0] if match[0].startswith('"') else "", text)
    try:
        document = json.loads(plain)
    except json.JSONDecodeError as error:
        raise _wrong(
            f"The task document is not JSON: line {error.lineno}, column {error.colno}: {error.msg}."
        ) from error
    except (RecursionError, ValueError) as error:
        raise _wrong(f"The task document cannot be read: {error}.") from error
    if not isinstance(document, dict):
        raise _wrong("The task document is not a JSON object.")
    _check_texts(document)
    return document


def _check_texts(value: object, place: str = "") -> None:
    """Raise at the first text that no path, argument or database can hold."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _check_text(name, f"{place}{name!a}")
            _check_texts(inner, f"{place}{name}.")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _check_texts(inner, f"{place}{number}.")
    elif isinstance(value, str):
        _check_text(value, place.rstrip("."))


def _check_text(text: str, place: str) -> None:
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise _wrong(f"{place}: a text cannot hold a zero byte or half of a character.")


def _from_follow_up(document: dict[str, Any]) -> dict[str, Any]:
    """A follow-up as a task: its title is the goal; files that it names are a constraint."""
    inputs = document.get("inputs") or {}
    if not isinstance(inputs, dict):
        raise _wrong("inputs: must be an object.")
    task: dict[str, Any] = {"goal": document["title"], "kind": document.get("kind", "bugfix")}
    if "origin" in document:
        task["origin"] = document["origin"]
    if tests := inputs.get("tests"):
        task["tests"] = tests
    if isinstance(paths := inputs.get("paths"), list) and paths:
        task["constraints"] = [f"change only {', '.join(map(str, paths))}"]
    return task


def _read_ceiling(document: dict[str, Any]) -> None:
    """`cost_ceiling` of a budget: a number is the limit; "ask" leaves the default, at which a person is asked."""
    budget = document.get("budget")
    if not isinstance(budget, dict):
        return
    budget = dict(budget)
    ceiling = budget.pop("cost_ceiling", budget.pop("costCeiling", None))
    if isinstance(ceiling, int | float) and not isinstance(ceiling, bool):
        budget["cost_usd"] = ceiling
    elif ceiling not in (None, "ask"):
        raise _wrong(f'budget.cost_ceiling: {ceiling!r} is neither "ask" nor a number of dollars.')
    document["budget"] = budget


def _wrong(message: str, advice: str = "`codepilot spec bugfix` prints an example that works.") -> CodePilotError:
    return CodePilotError(FailureKind.INVALID_SPEC, message, next_action=advice)


EXAMPLES: dict[TaskKind, str] = {
    TaskKind.BUGFIX: """{
  "kind": "bugfix",
  // In words; a failing test may say it all.
  "goal": "The report counts refunds",
  // A checkout or a URL. Left out: the directory in which the command runs.
  "repo": ".",
  // Tests as their runner names them. Left out: the first that fails.
  "tests": ["tests/test_report.py::test_refunds"],
  "constraints": ["keep the public API"],
  // Any of: iterations wall_sec step_wall_sec turns_per_step command_sec tokens cost_usd patch_lines.
  "budget": {"wall_sec": 900},
  // repair needs no model; codeact needs one.
  "agent": "repair"
}
""",
    TaskKind.CHANGE: """{
  "kind": "change",
  "goal": "Totals are rounded to cents",
  // Tests must fail before and pass after the change.
  "tests": [],
  // Commands must succeed after the change.
  "accept": ["python -m pytest -q tests/test_totals.py"],
  "agent": "codeact",
  "model": "anthropic:claude-sonnet-4-6",
  // read_only, write_with_diff, write_and_run_tests or full_shell.
  "risk_profile": {"capability": "write_and_run_tests", "interaction": {"mode": "ask_before_risky"}},
  // Further gates: compiles, lint_clean.
  "evaluation": {"success": ["tests_pass", "compiles"]}
}
""",
    TaskKind.PROVE: """{
  "kind": "prove",
  "goal": "Judge the branch of the pull request",
  // The commit that the change is judged on.
  "ref": "main",
  // A commit, branch or tag, or a "diff" as text. Neither: the uncommitted files.
  "proposed": {"ref": "HEAD"}
}
""",
    TaskKind.BUILD: """{
  "kind": "build",
  // What the program does: 10 to 500 characters.
  "goal": "A command that converts CSV files to JSON, one object a line",
  // The new directory.
  "repo": "./csv2json",
  // python, node or java.
  "language": "python",
  "agent": "codeact",
  "model": "anthropic:claude-sonnet-4-6",
  "budget": {"iterations": 15}
}
""",
    TaskKind.SCAFFOLD: """{
  "kind": "scaffold",
  // Left out: the name of the module is all that is asked. With a model, what the module does.
  "goal": "Make the module",
  // The new directory; with "join", the repository whose build the module joins.
  "repo": "./order-history",
  "scaffold": {
    // maven, python or npm.
    "ecosystem": "python",
    "name": "order-history",
    // The Java or Python package. Left out: from the name.
    "package": "order_history",
    // github or gitlab.
    "ci": "github",
    "join": false
  },
  // True: plan, commands and diff are shown, and nothing is written.
  "dry_run": false
}
""",
    TaskKind.QUESTION: """{
  "kind": "question",
  "goal": "Where are totals rounded, and to how many digits?",
  // A question only reads; a bugfix or change with this capability is one, too.
  "risk_profile": {"capability": "read_only"},
  "agent": "codeact",
  "model": "anthropic:claude-sonnet-4-6"
}
""",
}
"""One commented example for each kind of task."""
