"""The base of every contract: frozen, closed, and canonical when written as JSON."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)

JsonObject: TypeAlias = dict[str, JsonValue]


class Contract(BaseModel):
    """A value that crosses room boundaries. It refuses unknown fields and accepts camelCase names as input."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        ser_json_inf_nan="constants",
        ser_json_bytes="base64",
        val_json_bytes="base64",
        defer_build=True,
    )


def canonical_json(value: Any) -> str:
    """Serialise a contract or plain JSON so that equal values give equal text: sorted keys, no spaces, UTF-8."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return _CANONICAL.encode(value)
