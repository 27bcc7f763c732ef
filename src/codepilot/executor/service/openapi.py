"""The OpenAPI document: every path, body, status and bound, from the routes and their contracts."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from codepilot import __version__
from codepilot.core.contract import Contract
from codepilot.core.failures import Failure
from codepilot.executor.service.messages import REASONS
from codepilot.executor.service.routes import BYTES, JSON, PATH_PATTERNS, QUERY_SCHEMAS, ROUTES, TEXT, Route
from codepilot.executor.wire import Health

_ABOUT = """\
Runs code that agents wrote, confined, in workspaces. Bodies are snake_case; camelCase names are taken as well.
Every failure is a `Failure`. `X-Request-Id` is taken over if it is made of letters, digits, `.`, `_` and `-`, and
is always in the answer. Requests to run something carry an `idempotency_key`: asked again with the same key and body,
the service gives the same answer and does nothing twice."""

_BASE64 = r"^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-][AQgw]==|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=)?$"
_BODY = (408, 413, 415, 422)
_SCHEMAS = {
    BYTES: {"type": "string", "format": "binary"},
    JSON: {"type": "object"},
    TEXT: {"type": "string"},
}


def document(token: bool) -> str:
    """The OpenAPI document; `token` is true if the service asks for one."""
    requests: dict[type[Contract], None] = dict.fromkeys(
        route.takes for route in ROUTES if isinstance(route.takes, type)
    )
    responses: dict[type[Contract], None] = dict.fromkeys(
        (*(route.gives for route in ROUTES if isinstance(route.gives, type)), Failure)
    )
    _, definitions = models_json_schema(
        [(model, "validation") for model in requests] + [(model, "serialization") for model in responses],
        by_alias=False,
        ref_template="#/components/schemas/{model}",
    )
    components: dict[str, Any] = {"schemas": _exact(definitions["$defs"])}
    if token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, token)
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "CodePilot executor", "version": __version__, "description": _ABOUT},
            "paths": paths,
            "components": components,
        }
    )


def _exact(schema: Any) -> Any:
    """Describe base64 by a pattern and close mappings with a pattern for names."""
    if isinstance(schema, list):
        return [_exact(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _exact(value) for key, value in schema.items()}
    if found.get("format") == "base64url":
        return {**{key: value for key, value in found.items() if key != "format"}, "pattern": _BASE64}
    if "patternProperties" in found:
        found["additionalProperties"] = False
    return found


def _operation(route: Route, token: bool) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "Done", "content": _content(route.gives)}}
    if route.gives is Health:
        responses["503"] = {"description": "It is shutting down", "content": _content(Health)}
    described: dict[str, Any] = {"operationId": route.name, "summary": route.summary, "responses": responses}
    if not route.public:
        statuses = {401 if token else 421, 500, *route.failures, *(_BODY if route.takes else ())}
        responses.update({str(status): _failure(status) for status in sorted(statuses)})
        if token:
            described["security"] = [{"token": []}]
    if route.takes:
        described["requestBody"] = {"required": True, "content": _content(route.takes)}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": PATH_PATTERNS[name]}}
        for name in route.path_parameters
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": QUERY_SCHEMAS[name]} for name in route.query
    ]
    if parameters:
        described["parameters"] = parameters
    return described


def _failure(status: int) -> dict[str, Any]:
    failure: dict[str, Any] = {"description": REASONS[status], "content": _content(Failure)}
    if status in (429, 503):
        failure["headers"] = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 1}}}
    return failure


def _content(kind: type[Contract] | str) -> dict[str, Any]:
    if isinstance(kind, str):
        return {kind: {"schema": _SCHEMAS[kind]}}
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}
