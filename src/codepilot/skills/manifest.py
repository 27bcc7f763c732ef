"""A skill's manifest and policy."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.task import Capability

NAME = r"^[a-z][a-z0-9_]*$"
VERSION = r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$"
"""A semantic version."""


class Target(StrEnum):
    """Where a skill's body runs."""

    LOCAL = "local"
    EXECUTOR = "executor"


class SkillPolicy(Contract):
    """The limits within which a skill runs, and the least capability a task must have for it to exist."""

    target: Target = Target.EXECUTOR
    network: bool = False
    """True if it needs the network; tasks without hosts do not have it."""
    filesystem_write: bool = False
    timeout_sec: float = Field(default=300.0, gt=0, allow_inf_nan=False)
    memory_mb: int | None = Field(default=None, gt=0)
    """The memory a call may add to its process; None means the sandbox's limit. Not for LOCAL skills."""
    needs: Capability = Capability.READ_ONLY
    retries: int | None = Field(default=None, ge=1, le=3)
    """Attempts after transient failures: three by default, one if it writes or uses the network."""

    @property
    def tries(self) -> int:
        return self.retries or (1 if self.filesystem_write or self.network else 3)


class SkillManifest(Contract):
    """A skill's identity and shape, generated from its function."""

    name: str = Field(pattern=NAME)
    version: str = Field(pattern=VERSION)
    description: str = Field(min_length=1)
    signature: str
    input_schema: JsonObject
    output_schema: JsonObject


_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "object": "dict"}


def plain_type(schema: JsonObject) -> tuple[str, str]:
    """A JSON schema as a Python type of plain data, and the keys of its (innermost) objects."""
    definitions: Any = schema.get("$defs", {})
    return _plain_type(schema, definitions, 0)


def _plain_type(schema: Any, definitions: dict[str, Any], depth: int) -> tuple[str, str]:
    if "$ref" in schema and depth < 8:
        return _plain_type(definitions.get(schema["$ref"].rpartition("/")[2], {}), definitions, depth + 1)
    if "anyOf" in schema:
        options = [_plain_type(option, definitions, depth + 1) for option in schema["anyOf"]]
        return " | ".join(dict.fromkeys(name for name, _ in options)), next((keys for _, keys in options if keys), "")
    kind = schema.get("type")
    if kind == "array":
        inner, keys = _plain_type(schema.get("items", {}), definitions, depth + 1)
        return (f"list[{inner}]" if inner != "Any" else "list"), keys
    if kind == "object" and "properties" in schema:
        return "dict", ", ".join(schema["properties"])
    if isinstance(kind, str):
        return _PLAIN.get(kind, "Any"), ""
    return "Any", ""
