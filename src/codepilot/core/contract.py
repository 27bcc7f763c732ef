"""The base of every contract: frozen, closed, and canonical when written as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)

_set = object.__setattr__

JsonObject: TypeAlias = dict[str, JsonValue]


class Contract(BaseModel):
    """A value that rooms exchange. Unknown fields are refused; camelCase names are accepted as input."""

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

    @classmethod
    def of_checked(cls, values: dict[str, Any], given: set[str]) -> Self:
        """A contract that takes over every field's value, all of them checked before; `given` are no defaults."""
        made = cls.__new__(cls)
        _set(made, "__dict__", values)
        _set(made, "__pydantic_fields_set__", given)
        _set(made, "__pydantic_extra__", None)
        _set(made, "__pydantic_private__", None)
        return made

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As the base's, several times quicker: every event makes such a copy."""
        if deep:
            return super().model_copy(update=update, deep=True)
        changes = update or {}
        return self.of_checked({**self.__dict__, **changes}, self.__pydantic_fields_set__.union(changes))


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, UTF-8 kept. Accepts contracts and plain JSON."""
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json")
    return _CANONICAL.encode(value)
