"""What plain data looks like, in words short enough for a prompt."""

from __future__ import annotations

from typing import Any

from codepilot.core.contract import JsonObject

_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None", "object": "dict"}


def plain_type(schema: JsonObject) -> tuple[str, str]:
    """A JSON schema as a Python type of plain data, and the keys of its (innermost) objects."""
    definitions: Any = schema.get("$defs", {})
    return _shown(schema, definitions, 0)


def _shown(schema: Any, definitions: dict[str, Any], depth: int) -> tuple[str, str]:
    if "$ref" in schema and depth < 8:
        return _shown(definitions.get(schema["$ref"].rpartition("/")[2], {}), definitions, depth + 1)
    if "anyOf" in schema:
        options = [_shown(option, definitions, depth + 1) for option in schema["anyOf"]]
        return " | ".join(dict.fromkeys(name for name, _ in options)), next((keys for _, keys in options if keys), "")
    kind = schema.get("type")
    if kind == "array":
        inner, keys = _shown(schema.get("items", {}), definitions, depth + 1)
        return (f"list[{inner}]" if inner != "Any" else "list"), keys
    if kind == "object" and "properties" in schema:
        return "dict", ", ".join(schema["properties"])
    if isinstance(kind, str):
        return _PLAIN.get(kind, "Any"), ""
    return "Any", ""
