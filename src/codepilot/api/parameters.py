"""Query parameters: the API refuses one that a route does not know, which may be a filter with a typing error."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute


def refuse_unknown_parameters(request: Request) -> None:
    """Name the parameters that the API's route does not take, and those that it does. Pages ignore others."""
    route = request.scope.get("route")
    if not request.query_params or not request.url.path.startswith("/v1/") or not isinstance(route, APIRoute):
        return
    known = list(_names(route.dependant))
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if unknown:
        takes = f"takes {', '.join(known)}" if known else "takes no parameters"
        message = f"there is no such parameter; the route {takes}"
        raise RequestValidationError([{"loc": ("query", name), "msg": message, "type": "extra"} for name in unknown])


def _names(dependant: Dependant) -> Iterator[str]:
    """The parameters of a route and of what it depends on."""
    yield from (one.alias for one in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)
