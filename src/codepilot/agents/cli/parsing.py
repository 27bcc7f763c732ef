"""What all dialects have in common: a message in words, a path as the policy names it, and bounded text. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import PurePosixPath

from pydantic import JsonValue

from codepilot.agents.cli.protocol import AgentMessage
from codepilot.core.contract import JsonObject
from codepilot.core.text import head_and_tail

MOST_TEXT = 64_000
"""The longest piece of a program's words that is passed on."""


def message_text(message: AgentMessage) -> str:
    """A message for a program that reads words. What the user says is passed on as it is."""
    if message.type == "user":
        return message.content
    what = message.type.replace("_", " ")
    head = f"[CodePilot, {what}]" if what == message.severity else f"[CodePilot, {what}, {message.severity}]"
    data = f"\n```json\n{json.dumps(message.data, ensure_ascii=False, indent=1)}\n```" if message.data else ""
    return f"{head} {message.content}{data}"


def in_tree(path: str, directory: str) -> str:
    """A path relative to the workspace if it lies in it, else as it is."""
    try:
        relative = PurePosixPath(path).relative_to(directory)
    except ValueError:
        return path
    return str(relative)


def bounded(text: str) -> str:
    return head_and_tail(text, MOST_TEXT)


def whole(value: JsonValue) -> JsonValue:
    """The value with no half of a character in it: no file, database or other process could take one."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [whole(one) for one in value]
    return {str(whole(name)): whole(one) for name, one in value.items()} if isinstance(value, dict) else value


def mapping(value: object) -> Mapping[str, JsonValue]:
    """The object that a program should have sent there, empty if it sent something else."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Mapping[str, JsonValue]]:
    """The objects of a list that a program should have sent there."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def text_of(value: object) -> str:
    return value if isinstance(value, str) else ""


def number_of(value: object) -> int:
    return max(0, int(value)) if isinstance(value, int | float) and abs(value) < 1e15 else 0


def amount_of(value: object, otherwise: float) -> float:
    """A number of dollars."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else otherwise


def details_of(value: JsonObject) -> JsonObject:
    """What is kept of a tool's arguments: long texts are cut."""
    return {key: bounded(one) if isinstance(one, str) else one for key, one in value.items()}
