"""The fields of requests: what a name, a path, a time or a limit may be. The same for every executor."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, FailFast, Field, WithJsonSchema

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import LONGEST_COMMAND_SEC
from codepilot.sandbox import Limits

NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$"
OBJECT_PATTERN = r"^[0-9a-f]{64}$"

_NAME = re.compile(NAME_PATTERN[1:-1])
_OBJECT = re.compile(OBJECT_PATTERN[1:-1])
_LEAST_FILES = 16
_LEAST_MEMORY, _MOST_BYTES, _MOST_OUTPUT = 1 << 20, 1 << 44, 64 << 20

Item = TypeVar("Item")
Many = Annotated[tuple[Item, ...], FailFast()]
"""Items of which the first bad one is told: a body of millions must not become as many mistakes."""
Some = Annotated[tuple[Item, ...], Field(min_length=1), FailFast()]
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]
"""A workspace's name: never a path."""
ObjectId = Annotated[str, Field(pattern=OBJECT_PATTERN)]
Text = Annotated[str, Field(pattern="^[^\\x00]*$")]
"""Anything the operating system takes for an argument or a path."""
AbsolutePath = Annotated[str, Field(pattern="^/[^\\x00]*$", max_length=4096)]
VariableName = Annotated[str, Field(pattern="^[^\\x00=]+$")]
Environment = Mapping[VariableName, Text]
Code = Annotated[str, Field(max_length=4 << 20)]
Key = Annotated[str, Field(max_length=200)]
"""An idempotency key; the empty one asks for none."""
Seconds = Annotated[float, Field(gt=0, le=LONGEST_COMMAND_SEC)]


def check_name(workspace: str) -> None:
    if not _NAME.fullmatch(workspace):
        raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, f"{workspace!r} is not a workspace's name")


def check_object(name: str) -> None:
    if not _OBJECT.fullmatch(name):
        raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, f"{name!r} is not the name of a tree or a snapshot")


def _possible(limits: Limits) -> Limits:
    sizes = (limits.file_bytes, limits.disk_bytes)
    fits = (
        limits.wall_sec > 0
        and 0 < limits.cpus <= 1024
        and _LEAST_MEMORY <= limits.memory_bytes <= _MOST_BYTES
        and 1 <= limits.processes <= 1 << 20
        and _LEAST_FILES <= limits.open_files <= 1 << 20
        and all(0 <= size <= _MOST_BYTES for size in sizes)
        and 1 <= limits.output_bytes <= _MOST_OUTPUT
    )
    if not fits or math.isnan(limits.wall_sec):
        raise ValueError("a limit is outside of what can be enforced")
    return limits


def _number(kind: str, default: float, **bounds: float) -> dict[str, Any]:
    return {"type": kind, "default": default, **bounds}


_DEFAULT = Limits()
_LIMITS_SCHEMA = {
    "title": "Limits",
    "description": "What one command may use. A breach kills the whole process tree and is named in the result.",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "wall_sec": _number("number", _DEFAULT.wall_sec, exclusiveMinimum=0),
        "cpus": _number("number", _DEFAULT.cpus, exclusiveMinimum=0, maximum=1024),
        "memory_bytes": _number("integer", _DEFAULT.memory_bytes, minimum=_LEAST_MEMORY, maximum=_MOST_BYTES),
        "processes": _number("integer", _DEFAULT.processes, minimum=1, maximum=1 << 20),
        "open_files": _number("integer", _DEFAULT.open_files, minimum=_LEAST_FILES, maximum=1 << 20),
        "file_bytes": _number("integer", _DEFAULT.file_bytes, minimum=0, maximum=_MOST_BYTES),
        "disk_bytes": _number("integer", _DEFAULT.disk_bytes, minimum=0, maximum=_MOST_BYTES),
        "output_bytes": _number("integer", _DEFAULT.output_bytes, minimum=1, maximum=_MOST_OUTPUT),
    },
}
LimitsField = Annotated[Limits, AfterValidator(_possible), WithJsonSchema(_LIMITS_SCHEMA)]
