"""Values as the JSON of `--json`: every time is RFC 3339."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from pydantic import BaseModel

from codepilot.telemetry import rfc3339

_TIME = re.compile(r"(?:^|_)(?:at|until|since)$")
"""The names of fields that hold a time, in microseconds inside."""


def as_document(value: Any) -> Any:
    """A contract or a dataclass, or a list of them, as JSON. Mappings are left alone: their keys are data."""
    if isinstance(value, BaseModel):
        return _with_times(value, type(value).model_fields, value.model_dump(mode="json"))
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        return _with_times(value, names, {name: getattr(value, name) for name in names})
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [as_document(one) for one in value]
    return value


def _with_times(value: object, names: Sequence[str] | Mapping[str, Any], written: dict[str, Any]) -> dict[str, Any]:
    for name in names:
        found = getattr(value, name)
        if type(found) is int and _TIME.search(name):
            written[name] = rfc3339(found)
        elif isinstance(found, BaseModel | Sequence) and not isinstance(found, str | bytes):
            written[name] = as_document(found)
    return written
