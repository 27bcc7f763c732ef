"""The application: the `/v1` API and the pages, with what all of them share."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.openapi.utils import get_openapi
from pydantic.warnings import UnsupportedFieldAttributeWarning

from codepilot import __version__
from codepilot.api import pages, routes, statics
from codepilot.api.access import Viewer
from codepilot.api.problems import PROBLEM, Problem, add_handlers
from codepilot.api.requests import Outer
from codepilot.api.service import Service
from codepilot.engine.metrics import declare
from codepilot.telemetry import METRICS

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from codepilot.engine import CodePilot

UPLOADS = "/v1/bases/"


def create_app(pilot: CodePilot) -> FastAPI:
    """The application of one façade. `app.state.service` is what its handlers share."""
    METRICS.enabled = True
    declare()
    app = FastAPI(title="CodePilot", version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.service = service = Service.of(pilot)
    add_handlers(app)
    for router in (statics.router, *routes.ROUTERS, *pages.ROUTERS):
        app.include_router(router)
    app.add_api_route("/v1/openapi.json", _description, include_in_schema=False)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    body, upload = service.settings.body_mb << 20, service.settings.upload_mb << 20
    app.add_middleware(_outer, limit=lambda path: upload if path.startswith(UPLOADS) else body)
    return app


def _outer(app: ASGIApp, limit: Any) -> ASGIApp:
    return Outer(app, limit)


def _description(request: Request, who: Viewer) -> Response:
    import json

    return Response(json.dumps(request.app.openapi()), media_type="application/json")


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once: every operation may answer with a problem, and needs a token."""
    if app.openapi_schema is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsupportedFieldAttributeWarning)  # of models that are built late
            document = get_openapi(title=app.title, version=app.version, routes=app.routes, description=_ABOUT)
        components = document.setdefault("components", {})
        schema = Problem.model_json_schema(by_alias=True, ref_template="#/components/schemas/{model}")
        components.setdefault("schemas", {}).update({**schema.pop("$defs", {}), "Problem": schema})
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        problem = {"content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
        for path, methods in document["paths"].items():
            for operation in methods.values():
                operation["responses"].pop("422", None)
                operation["responses"]["default"] = {"description": "A problem", **problem}
                if path not in ("/healthz", "/readyz"):
                    operation["security"] = [{"token": []}]
        app.openapi_schema = document
    return app.openapi_schema


_ABOUT = """\
Names are camelCase, times are RFC 3339 in UTC. A failure is `application/problem+json` with the `kind` of the failure
and the `nextAction` that helps. Authenticate with `Authorization: Bearer TOKEN`; `codepilot token create` makes one."""
