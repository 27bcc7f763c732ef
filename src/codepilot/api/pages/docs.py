"""The description of the API as a page, from its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from codepilot.api.access import Viewer
from codepilot.api.pages.render import render

router = APIRouter(include_in_schema=False)

JSON = "application/json"


@dataclass(frozen=True)
class Field:
    """A field of a body: what it is called, its type in a word, and what it is."""

    name: str
    type: str
    about: str
    required: bool


@router.get("/v1/docs")
def docs(request: Request, who: Viewer) -> Response:
    document = request.app.openapi()
    groups: dict[str, list[dict[str, object]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            shown = {"method": method.upper(), "path": path, **operation, **_bodies(document, operation)}
            groups.setdefault((operation.get("tags") or ["other"])[0], []).append(shown)
    return render(request, who, "api", active="", groups=groups)


def _bodies(document: Mapping[str, Any], operation: Mapping[str, Any]) -> dict[str, object]:
    """The fields of what is sent and of what is answered, and an example of the former."""
    sent = operation.get("requestBody", {}).get("content", {})
    answered: Mapping[str, Any] = next(
        (one for status, one in operation["responses"].items() if status.startswith("2")), {}
    )
    content = answered.get("content", {})
    example = sent.get(JSON, {}).get("example")
    return {
        "sent": list(_fields(document, sent.get(JSON, {}).get("schema", {}))),
        "answered": list(_fields(document, content.get(JSON, {}).get("schema", {}))),
        "others": [one for one in content if one != JSON],
        "example": "" if example is None else json.dumps(example, indent=2),
    }


def _fields(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Field]:
    found = _resolved(document, schema)
    for name, one in found.get("properties", {}).items():
        about = one.get("description") or _resolved(document, one).get("description", "")
        yield Field(name, _type(document, one), about, name in found.get("required", ()))


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind a reference, and that of a value that may be null."""
    choices = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    if len(choices) == 1:
        return _resolved(document, choices[0])
    named = str(schema.get("$ref", "")).rpartition("/")[2]
    found: Mapping[str, Any] = document["components"]["schemas"].get(named, schema)
    return found


def _type(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(document, one) for one in schema["anyOf"]))
    if "$ref" in schema:
        found = _resolved(document, schema)
        return _type(document, found) if "enum" in found else str(schema["$ref"]).rpartition("/")[2]
    if "enum" in schema or "const" in schema:
        return " | ".join(map(str, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list of {_type(document, schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type", "any"))
