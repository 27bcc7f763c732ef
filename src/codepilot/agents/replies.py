"""Parses a reply: exactly one action, or the role's result. Any other reply is answered with what is wrong."""

from __future__ import annotations

import ast
import json
import math
import re
import textwrap
from dataclasses import dataclass

from pydantic import ValidationError

from codepilot.agents.roles import Names, Role
from codepilot.agents.step_conversation import StepConversation
from codepilot.core.areas import outside
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import State
from codepilot.models import Reply

PYTHON_TOOL = "python"
_PYTHON_TAGS = frozenset({"python", "py", "python3"})
_FENCE = re.compile(r"^([ \t]*)```[ \t]*([\w+-]*)([^\n`]*)$", re.MULTILINE)
_OPEN, _CLOSE = "<result>", "</result>"


@dataclass(frozen=True)
class Code:
    """Python to run."""

    code: str


@dataclass(frozen=True)
class Result:
    """The object that ends the step, not yet validated."""

    value: JsonObject


@dataclass(frozen=True)
class Malformed:
    """Neither of them; `message` says what to correct."""

    message: str


def read_reply(reply: Reply) -> Code | Result | Malformed:
    """The one thing a reply asks for."""
    if reply.stop_reason == "length":
        return Malformed("Your reply was cut off at the length limit and nothing was run. Do less in one reply.")
    if reply.tool_calls:
        return _from_calls(reply)
    found, problem = _found_in(reply.text)
    if problem:
        return Malformed(problem)
    if not found:
        return Malformed(
            "Your reply has neither an action nor a result. Give one ```python block, or <result>{…}</result>."
        )
    if len(found) > 1:
        kinds = " and ".join("a result" if isinstance(item, Result) else "an action" for item in found[:2])
        return Malformed(f"Your reply has {kinds}, {len(found)} in all, and nothing was run. Give exactly one.")
    return found[0]


def _from_calls(reply: Reply) -> Code | Malformed:
    if len(reply.tool_calls) > 1:
        return Malformed(f"You made {len(reply.tool_calls)} calls and nothing was run. Make exactly one a turn.")
    call = reply.tool_calls[0]
    code = call.arguments.get("code")
    if call.name != PYTHON_TOOL or not isinstance(code, str) or set(call.arguments) != {"code"}:
        return Malformed(f"There is one tool, `{PYTHON_TOOL}`, with one string argument, `code`. Nothing was run.")
    return Code(code) if code.strip() else Malformed("The `code` of your call is empty.")


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
        value, length = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite).raw_decode(body[skipped:])
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return None, start, f"The text in {_OPEN} is not JSON: {error}. Give one JSON object, in double quotes."
    if not isinstance(value, dict):
        return None, start, f"The text in {_OPEN} is JSON but not an object: {type(value).__name__}."
    close = re.match(r"\s*(?:```\s*)?</result>", body[skipped + length :])
    if close is None:
        return None, start, f"After the JSON object {_CLOSE} must follow."
    return value, start + skipped + length + close.end(), ""


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _no_constant(digits)


SHOWN = 20


@dataclass(frozen=True)
class OutOfArea:
    """A result whose change touches paths that the plan does not allow."""

    message: str
    paths: tuple[str, ...]
    rule: str


ParsedReply = Code | Result | Malformed | OutOfArea


def validate(role: Role, step: StepConversation, names: Names, parsed: Code | Result | Malformed) -> ParsedReply:
    """The reply, or what is wrong with it: a result that does not fit the schema, or changes forbidden paths."""
    if not isinstance(parsed, Result):
        return parsed
    try:
        wrong = role.check(accepted(role, step, parsed.value), names)
    except ValidationError as error:
        wrong = [
            f"{'.'.join(str(part) for part in problem['loc']) or 'the object'}: {problem['msg']}"
            for problem in error.errors()
        ]
    if wrong:
        problems = "\n".join(f"- {one}" for one in wrong)
        return Malformed(f"The result does not fit:\n{problems}\nCorrect it and give the whole <result> again.")
    return (_too_far(step) if role.state is State.IMPLEMENT else None) or parsed


def accepted(role: Role, step: StepConversation, value: JsonObject) -> Contract:
    """The role's artifact, with the fields that the platform fills in."""
    return role.output.model_validate(role.completed(value, step.context))


def _too_far(step: StepConversation) -> OutOfArea | None:
    """The paths that the change touches and the plan does not allow."""
    run, context = step.run, step.context
    if run.base is None or run.plan is None or not (run.plan.allowed_areas or run.plan.forbidden_areas):
        return None
    changes = context.executor.diff(context.workspace, run.base.tree).changes
    broken = outside(run.plan, (change.path for change in changes))
    if not broken:
        return None
    listed = "\n".join(f"- {path} ({rule})" for path, rule in list(broken.items())[:SHOWN])
    message = f"The change reaches where the plan does not let it. Undo it there, then finish:\n{listed}"
    return OutOfArea(message, tuple(broken), next(iter(broken.values())))
