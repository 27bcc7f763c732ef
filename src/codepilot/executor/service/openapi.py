"""The service described exactly: every path, body, status and bound, from the contracts themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from codepilot import __version__
from codepilot.core.contract import Contract
from codepilot.core.failures import Failure
from codepilot.executor.protocol import NAME_PATTERN, OBJECT_PATTERN, SnapshotInfo
from codepilot.executor.service.messages import REASONS
from codepilot.executor.service.operations import OPERATIONS
from codepilot.executor.wire import About, BaseState, Done, Health, ProcessState, Signal, WaitRemote, Written

_ABOUT = """\
Runs code that agents wrote, confined, in workspaces. Bodies are snake_case; camelCase names are taken as well.
Every failure is a `Failure`. `X-Request-Id` is taken over if it is made of letters, digits, `.`, `_` and `-`, and
is always in the answer. Requests to run something carry an `idempotency_key`: asked again with the same key and body,
the service gives the same answer and does nothing twice."""

_REQUESTS: tuple[type[Contract], ...] = (*dict.fromkeys(one.takes for one in OPERATIONS), WaitRemote, Signal)
_RESPONSES: tuple[type[Contract], ...] = (
    *dict.fromkeys(one.gives for one in OPERATIONS if one.gives is not None),
    BaseState,
    Written,
    About,
    Health,
    Failure,
)
_BASE64 = r"^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-][AQgw]==|[A-Za-z0-9_-]{2}[AEIMQUYcgkosw048]=)?$"
_ALWAYS = (401, 500)
_BODY = (408, 413, 415, 422)
_BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


def document(token: bool) -> str:
    """The OpenAPI document; `token` says whether one is asked for."""
    _, definitions = models_json_schema(
        [(model, "validation") for model in _REQUESTS] + [(model, "serialization") for model in _RESPONSES],
        by_alias=False,
        ref_template="#/components/schemas/{model}",
    )
    components: dict[str, Any] = {"schemas": _exact(definitions["$defs"])}
    if token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    paths = {**_workspace_paths(), **_process_paths(), **_object_paths(), **_plain_paths()}
    if not token:
        for methods in paths.values():
            for operation in methods.values():
                if operation.pop("security", None) is not None:
                    operation["responses"].pop("401")
                    operation["responses"]["421"] = _failure(421)
    return json.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "CodePilot executor", "version": __version__, "description": _ABOUT},
            "paths": paths,
            "components": components,
        }
    )


def _exact(schema: Any) -> Any:
    """Bytes travel as base64, which a pattern says better than a format; variables have no other names."""
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


def _operation(
    name: str,
    summary: str,
    *,
    takes: dict[str, Any] | None = None,
    gives: dict[str, Any],
    failures: Sequence[int],
    parameters: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    statuses = sorted({*_ALWAYS, *failures, *(_BODY if takes else ())})
    described: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "security": [{"token": []}],
        "responses": {
            "200": {"description": "Done", "content": gives},
            **{str(status): _failure(status) for status in statuses},
        },
    }
    if takes:
        described["requestBody"] = {"required": True, "content": takes}
    if parameters:
        described["parameters"] = list(parameters)
    return described


def _failure(status: int) -> dict[str, Any]:
    failure: dict[str, Any] = {"description": REASONS[status], "content": _json(Failure)}
    if status in (429, 503):
        failure["headers"] = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 1}}}
    return failure


def _json(model: type[Contract]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def _in_path(name: str, pattern: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": pattern}}


def _in_query(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


_OFFSET = _in_query("offset", {"type": "integer", "minimum": 0, "maximum": 10**17, "default": 0})
_FLAG = {"type": "boolean", "default": False}
_PROCESS = _in_path("process", "^[0-9a-f]{32}$")
_TREE = _in_path("tree", OBJECT_PATTERN)
_SNAPSHOT = _in_path("snapshot", OBJECT_PATTERN)
_WORKSPACE = _in_path("workspace", NAME_PATTERN)


def _workspace_paths() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in OPERATIONS:
        failures = {403, 404, 409, 507} | ({429} if one.turn != "control" else set())
        found[f"/workspace/{one.name}"] = {
            "post": _operation(
                one.name,
                one.summary,
                takes=_json(one.takes),
                gives=_json(one.gives) if one.gives is not None else _BINARY,
                failures=sorted(failures | ({503} if one.work else set())),
            )
        }
    return found


def _process_paths() -> dict[str, Any]:
    one = "/process/{process}"

    def operation(name: str, summary: str, **said: Any) -> dict[str, Any]:
        parameters = [_PROCESS, *said.pop("parameters", ())]
        failures = (400, 404, *said.pop("failures", ()))
        return _operation(f"process_{name}", summary, parameters=parameters, failures=failures, **said)

    end = _in_query("end", _FLAG)
    return {
        one: {"get": operation("state", "How a process is", gives=_json(ProcessState))},
        f"{one}/write": {
            "post": operation(
                "write",
                "Bytes for its standard input, from an offset on; `end` closes it",
                parameters=(_OFFSET, end),
                takes=_BINARY,
                gives=_json(Written),
                failures=(409, 429),
            )
        },
        f"{one}/read": {
            "get": operation(
                "read",
                "Its standard output from an offset on, as it comes, to the end",
                parameters=(_OFFSET,),
                gives=_BINARY,
                failures=(409,),
            )
        },
        f"{one}/signal": {"post": operation("signal", "Interrupt it", takes=_json(Signal), gives=_json(Done))},
        f"{one}/wait": {
            "post": operation(
                "wait", "Its state once it ended, or after a time", takes=_json(WaitRemote), gives=_json(ProcessState)
            )
        },
        f"{one}/kill": {"post": operation("kill", "End its whole tree", gives=_json(ProcessState))},
    }


def _object_paths() -> dict[str, Any]:
    upload = (400, 404, 409, 429, 503, 507)
    return {
        "/base/{tree}": {
            "get": _operation(
                "base_state", "Whether a base is here", parameters=(_TREE,), gives=_json(BaseState), failures=(400,)
            ),
            "put": _operation(
                "base_upload",
                "Send a base, or carried files, as a stream of objects",
                parameters=(_TREE,),
                takes=_BINARY,
                gives=_json(BaseState),
                failures=upload,
            ),
        },
        "/snapshot/{workspace}/{snapshot}": {
            "get": _operation(
                "snapshot_export",
                "A snapshot as a stream of objects; `whole` includes what the base holds",
                parameters=(_WORKSPACE, _SNAPSHOT, _in_query("whole", _FLAG)),
                gives=_BINARY,
                failures=(400, 404, 409, 429),
            )
        },
        "/snapshot/{workspace}": {
            "put": _operation(
                "snapshot_import",
                "Take in a snapshot of another workspace",
                parameters=(_WORKSPACE,),
                takes=_BINARY,
                gives=_json(SnapshotInfo),
                failures=upload,
            )
        },
    }


def _plain_paths() -> dict[str, Any]:
    healthy = {"description": "It takes work", "content": _json(Health)}
    draining = {"description": "It is shutting down", "content": _json(Health)}
    text = {"text/plain": {"schema": {"type": "string"}}}
    anything = {"application/json": {"schema": {"type": "object"}}}
    return {
        "/about": {"get": _operation("about", "How code is confined here", gives=_json(About), failures=())},
        "/healthz": {
            "get": {
                "operationId": "health",
                "summary": "Whether it takes work",
                "responses": {"200": healthy, "503": draining},
            }
        },
        "/metrics": {"get": _operation("metrics", "What it counted, for Prometheus", gives=text, failures=())},
        "/openapi.json": {
            "get": {
                "operationId": "openapi",
                "summary": "This document",
                "responses": {"200": {"description": "OpenAPI", "content": anything}},
            }
        },
    }
