"""Parses a reply: exactly one action, or the role's result. Any other reply is answered with what is wrong."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from codepilot.agents.roles import Names, Role
from codepilot.agents.step_conversation import StepConversation
from codepilot.agents.text_calls import DECODER, TextCall, as_call, sole_object, tagged_calls
from codepilot.core.areas import outside
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import State
from codepilot.models import Reply

PYTHON_TOOL = "python"
_PYTHON_NAMES = frozenset({"python", "python3", "ipython", "run_python", "execute_python", "run_code", "execute_code"})
_PYTHON_NAMES |= {"code_interpreter", "python_interpreter"}
_CODE_NAMES = ("code", "source", "script", "input")
_PYTHON_TAGS = frozenset({"python", "py", "python3", "tool_code", "ipython"})
_FENCE = re.compile(r"^([ \t]*)```[ \t]*([\w+-]*)([^\n`]*)$", re.MULTILINE)
_OPEN, _CLOSE = "<result>", "</result>"


@dataclass(frozen=True)
class Code:
    """Python to run. `textual` is true if it was a tool call written as text."""

    code: str
    textual: bool = False


@dataclass(frozen=True)
class Result:
    """The object that ends the step, not yet validated. `bare` is true if no tags were around it."""

    value: JsonObject
    bare: bool = False


@dataclass(frozen=True)
class Malformed:
    """Neither of them; `message` says what to correct."""

    message: str


_NEITHER = (
    "Your reply has neither an action nor a result. Give one ```python block to act,"
    " or <result>{…}</result> with the JSON object to finish."
)


def read_reply(reply: Reply, functions: Collection[str] = (), *, may_quote: bool = False) -> Code | Result | Malformed:
    """The one thing a reply asks for. A call may name one of the `functions` in place of the tool.

    With `may_quote`, blocks of code next to the only result are quotations.
    """
    if reply.stop_reason == "length":
        return Malformed("Your reply was cut off at the length limit and nothing was run. Do less in one reply.")
    if reply.tool_calls:
        calls = [TextCall(call.name, call.arguments) for call in reply.tool_calls]
        return _from_calls(calls, functions)
    calls, rest = tagged_calls(reply.text)
    found, problem = _found_in(rest)
    if problem:
        return Malformed(problem)
    if calls and not found:
        return _textual(_from_calls(calls, functions))
    if not found:
        return _from_object(reply.text, functions)
    results = [item for item in found if isinstance(item, Result)]
    if may_quote and not calls and len(results) == 1:
        return results[0]
    found += [Code("")] * len(calls)
    if len(found) > 1:
        kinds = " and ".join("a result" if isinstance(item, Result) else "an action" for item in found[:2])
        return Malformed(f"Your reply has {kinds}, {len(found)} in all, and nothing was run. Give exactly one.")
    return found[0]


def _from_calls(calls: Sequence[TextCall], functions: Collection[str]) -> Code | Malformed:
    if len(calls) > 1:
        return Malformed(f"You made {len(calls)} calls and nothing was run. Make exactly one a turn.")
    name, given = calls[0].name, calls[0].arguments
    if name in functions and all(each.isidentifier() for each in given):
        return Code(f"{name}({', '.join(f'{each}={value!r}' for each, value in given.items())})")
    code = next(iter(given.values()), None)
    if name not in _PYTHON_NAMES or not isinstance(code, str) or set(given) - set(_CODE_NAMES) or len(given) != 1:
        had = f"Your call of {name[:50]!r} has {', '.join(given)[:100] or 'no arguments'}."
        what = (
            f"There is one tool, `{PYTHON_TOOL}`, with one string argument, `code`. Functions are called in that code."
        )
        return Malformed(f"{had} {what} Nothing was run.")
    return Code(code) if code.strip() else Malformed("The `code` of your call is empty.")


def _from_object(text: str, functions: Collection[str]) -> Code | Result | Malformed:
    """The call or the result that the only JSON object of a reply is."""
    value, problem = sole_object(text)
    if value is None:
        return Malformed(problem or _NEITHER)
    if (call := as_call(value)) is not None:
        return _textual(_from_calls([call], functions))
    return Result(value, bare=True)


def _textual(read: Code | Malformed) -> Code | Malformed:
    return replace(read, textual=True) if isinstance(read, Code) else read


def _found_in(text: str) -> tuple[list[Code | Result], str]:
    """Every action and result in reading order. What stands inside one is not looked at again."""
    found: list[Code | Result] = []
    at = 0
    while True:
        fence = _FENCE.search(text, at)
        tag = text.find(_OPEN, at)
        if fence is None and tag < 0:
            return found, ""
        if fence is None or 0 <= tag < fence.start():
            value, at, problem = _result_at(text, tag + len(_OPEN))
            if problem or value is None:
                return found, problem
            found.append(Result(value))
            continue
        body, at = _block_at(text, fence)
        if not _is_python(fence):
            continue
        if body is None:
            return found, "Your ```python block is not closed and nothing was run. Close it with ``` on its own line."
        if not body.strip():
            return found, "Your ```python block is empty."
        found.append(Code(body))


def _block_at(text: str, fence: re.Match[str]) -> tuple[str | None, int]:
    """A fenced block and where it ends. Python that itself holds fences ends where it is whole."""
    start = min(fence.end() + 1, len(text))
    closings = [match for match in _FENCE.finditer(text, start) if not (match[2] or match[3].strip())]
    if not closings:
        return None, len(text)
    bodies = [(text[start : closing.start()], closing.end()) for closing in closings]
    if fence[1]:
        bodies = [(textwrap.dedent(body), end) for body, end in bodies]
    if _is_python(fence):
        return next((found for found in bodies if _parses(found[0])), bodies[0])
    return bodies[0]


def _is_python(fence: re.Match[str]) -> bool:
    return fence[2].lower() in _PYTHON_TAGS


def _parses(code: str) -> bool:
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _result_at(text: str, start: int) -> tuple[JsonObject | None, int, str]:
    """The JSON object after `<result>`, where it ends, and what was wrong with it."""
    body = text[start:]
    lead = re.match(r"\s*(?:```(?:json)?\s*)?", body)
    skipped = lead.end() if lead else 0
    try:
        value, length = DECODER.raw_decode(body[skipped:])
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return None, start, f"The text in {_OPEN} is not JSON: {error}. Give one JSON object, in double quotes."
    if not isinstance(value, dict):
        return None, start, f"The text in {_OPEN} is JSON but not an object: {type(value).__name__}."
    close = re.match(r"\s*(?:```\s*)?(?:</result>|\Z)", body[skipped + length :])
    if close is None:
        return None, start, f"After the JSON object {_CLOSE} must follow."
    return value, start + skipped + length + close.end(), ""


SHOWN = 20


@dataclass(frozen=True)
class OutOfArea:
    """A result whose change touches paths that the plan does not allow."""

    message: str
    paths: tuple[str, ...]
    rule: str


ParsedReply = Code | Result | Malformed | OutOfArea


def validate(
    role: Role, step: StepConversation, names: Names, parsed: Code | Result | Malformed, must_change: bool = False
) -> ParsedReply:
    """The reply, or what is wrong with it: a result that does not fit the schema, or changes forbidden paths.

    With `must_change` a result is refused while no file differs from the base, unless it suspects the test.
    """
    if not isinstance(parsed, Result):
        return parsed
    inner = parsed.value.get("result")
    if set(parsed.value) == {"result"} and isinstance(inner, dict) and "result" not in role.fields():
        parsed = replace(parsed, value=inner)
    try:
        wrong = role.check(accepted(role, step, parsed.value), names)
    except ValidationError as error:
        wrong = [_difference(problem, role) for problem in error.errors()]
    if wrong:
        problems = "\n".join(f"- {one}" for one in wrong)
        what = "Your reply is one JSON object, read as your result. It" if parsed.bare else "The result"
        return Malformed(f"{what} does not fit:\n{problems}\nCorrect it and give the whole <result> again.")
    must_change = must_change and parsed.value.get("suspect") is None
    return (_wrong_change(step, must_change) if role.state is State.IMPLEMENT else None) or parsed


def _difference(problem: Mapping[str, Any], role: Role) -> str:
    """What one field should be, and what it is."""
    where = ".".join(str(part) for part in problem["loc"]) or "the object"
    fields = role.fields()
    if problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1:
        return f"{where}: {problem['msg']}; the fields are {', '.join(fields)}"
    if problem["type"] == "missing":
        expected = fields.get(where)
        return f"{where}: {problem['msg']}" + (f" ({json.dumps(expected)[:200]})" if expected else "")
    return f"{where}: {problem['msg']}, not {json.dumps(problem['input'], default=str)[:100]}"


def accepted(role: Role, step: StepConversation, value: JsonObject) -> Contract:
    """The role's artifact, with the fields that the platform fills in."""
    return role.output.model_validate(role.completed(value, step.context))


NOTHING_CHANGED = (
    "The result is not accepted: no file differs from the base, so what failed still fails. Change the code first (for"
    " example with edit_file), run the failing tests, then give the <result> again."
)


def _wrong_change(step: StepConversation, must_change: bool) -> OutOfArea | Malformed | None:
    """That nothing is changed, or the paths that the change touches and the plan does not allow."""
    run, context = step.run, step.context
    areas = run.plan is not None and bool(run.plan.allowed_areas or run.plan.forbidden_areas)
    if run.base is None or not (areas or must_change):
        return None
    diff = context.executor.diff(context.workspace, run.base.tree)
    if must_change and not diff.changes and not diff.violations:
        return Malformed(NOTHING_CHANGED)
    enforced = run.task.policy.enforce_allowed_areas
    broken = outside(run.plan, (change.path for change in diff.changes), enforce_allowed=enforced)
    if not broken:
        return None
    listed = "\n".join(f"- {path} ({rule})" for path, rule in list(broken.items())[:SHOWN])
    message = f"The change reaches where the plan does not let it. Undo it there, then finish:\n{listed}"
    return OutOfArea(message, tuple(broken), next(iter(broken.values())))
