"""Reads tool calls and JSON objects that a model writes as text, in the spellings of common open models.

Only unambiguous forms count: an object with the keys of a call, or text between a model's own tags.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from codepilot.core.contract import JsonObject

_OPEN = re.compile(
    r"<(?:tool_calls?|function_calls?)>|<\|/?tool_call\|?>|\[TOOL_CALLS\]|(?P<llama><\|python_tag\|>)|(?=<function=)"
    r"|<\uff5ctool\u2581call\u2581begin\uff5c>(?:function<\uff5ctool\u2581sep\uff5c>)?"
)
"""How Qwen and Hermes, Mistral, Llama and DeepSeek begin a call."""
_CLOSE = re.compile(r"\s*(?:```\s*)?(?:</\w+>\s*|<\|[\w/]+\|?>\s*|<\uff5c[\w\u2581]+\uff5c>\s*)*")
_FUNCTION = re.compile(r"\s*<function=([\w.-]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>", re.DOTALL)
_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\w+)?(?:\[ARGS\]|```json)")
_RAW = re.compile(r"(.*?)(?:<\|e\w+_id\|>|\Z)", re.DOTALL)
_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+-]*)[ \t]*\r?\n(.*?)^[ \t]*```[ \t]*$", re.MULTILINE | re.DOTALL)
_JSON_TAGS = frozenset({"", "json", "json5", "jsonc", "tool_call", "tool_use", "tool", "result", "output"})
_NAMES = ("name", "tool", "tool_name", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input")
_BESIDE = frozenset({"id", "type", "index"})


@dataclass(frozen=True)
class TextCall:
    """A call: the tool's name and its arguments."""

    name: str
    arguments: JsonObject


def tagged_calls(text: str) -> tuple[list[TextCall], str]:
    """The calls between a model's own tags, and the text without those parts."""
    calls: list[TextCall] = []
    rest, at = "", 0
    while (opened := _OPEN.search(text, at)) is not None:
        found, end = _calls_at(text, opened.end(), raw=opened["llama"] is not None)
        if found:
            calls += found
            rest += text[at : opened.start()]
            closed = _CLOSE.match(text, end)
            at = closed.end() if closed else end
        else:
            rest += text[at : opened.end() + 1]
            at = opened.end() + 1
    return calls, rest + text[at:]


def _calls_at(text: str, start: int, raw: bool) -> tuple[list[TextCall], int]:
    """The calls that begin here, and where they end."""
    if function := _FUNCTION.match(text, start):
        parameters: JsonObject = dict(_PARAMETER.findall(function[2]))
        given = parameters or _value_at(function[2], 0)[0]
        return ([TextCall(function[1], given)] if isinstance(given, dict) else []), function.end()
    if named := _NAMED.match(text, start):
        given, end = _value_at(text, named.end())
        return ([TextCall(named[1], given)] if isinstance(given, dict) else []), end
    value, end = _value_at(text, start)
    spelled = [as_call(one) for one in (value if isinstance(value, list) else [value])]
    if raw and value is None and (code := _RAW.match(text, start)) and code[1].strip():
        return [TextCall("python", {"code": code[1].strip("\n")})], code.end()
    return [call for call in spelled if call is not None], end


def as_call(value: object) -> TextCall | None:
    """The call that an object spells, if it has the keys of one and no others."""
    if not isinstance(value, dict):
        return None
    if value.get("type") == "function" and isinstance(value.get("function"), dict):
        return as_call(value["function"])
    name = next((key for key in _NAMES if isinstance(value.get(key), str) and value[key].strip()), None)
    given = next((key for key in _ARGUMENTS if key in value), None)
    if name is None or given is None or set(value) - {name, given} - _BESIDE:
        return None
    arguments = value[given]
    if isinstance(arguments, str):
        held = _value_at(arguments, 0)[0]
        arguments = held if isinstance(held, dict) else {"code": arguments}
    return TextCall(value[name].strip(), arguments) if isinstance(arguments, dict) else None


def sole_object(text: str) -> tuple[JsonObject | None, str]:
    """The only JSON object of a text, in a fence or not; or what is wrong with the one that it tries to be."""
    fenced = [match[2] for match in _FENCE.finditer(text) if match[1].lower() in _JSON_TAGS and "{" in match[2]]
    if len(fenced) > 1:
        return None, f"Your reply has {len(fenced)} blocks of JSON. Give exactly one."
    body = fenced[0] if fenced else text
    start = re.search(r"^[ \t]*\{", body, re.MULTILINE)
    if start is None:
        return None, ""
    try:
        value, end = DECODER.raw_decode(body, start.end() - 1)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        return None, f"Your JSON cannot be read: {error}." if fenced or not body[: start.start()].strip() else ""
    if re.search(r"^[ \t]*\{", body[end:], re.MULTILINE):
        return None, "Your reply has several JSON objects. Give exactly one."
    return value, ""


def _value_at(text: str, start: int) -> tuple[Any, int]:
    """The JSON value that begins here, after spaces and an opening fence, and where it ends; None if there is none."""
    lead = re.compile(r"\s*(?:```\w*\s*)?").match(text, start)
    try:
        return DECODER.raw_decode(text, lead.end() if lead else start)
    except (ValueError, RecursionError):
        return None, start


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _no_constant(digits)


DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite, strict=False)
"""Accepts line breaks inside strings: weak models write code so."""
