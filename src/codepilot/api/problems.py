"""Failures as `application/problem+json`, with the failure's kind and what to do next."""

from __future__ import annotations

import math
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import Field
from starlette.exceptions import HTTPException

from codepilot.api.requests import request_id_of, wants_page
from codepilot.core.checkpoint import NoSession, NoSuchCheckpoint
from codepilot.core.contract import Contract
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.engine.audit import NoSuchRequest
from codepilot.store.rows import NoSuchRun, SeveralRuns

PROBLEM = "application/problem+json"
_K = FailureKind
_STATUS: dict[FailureKind, int] = {
    _K.INVALID_SPEC: 422,
    _K.PATH_NOT_FOUND: 404,
    _K.REPO_UNREACHABLE: 422,
    _K.DENIED: 403,
    _K.TOOL_PERMISSION_DENIED: 403,
    _K.POLICY_VIOLATION: 403,
    _K.STORE_UNAVAILABLE: 503,
    _K.ARTIFACT_STORE_UNAVAILABLE: 503,
    _K.DISK_FULL: 507,
    _K.INTERNAL: 500,
}


class Problem(Contract):
    """What went wrong with a request."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    kind: FailureKind
    next_action: str
    request_id: str = ""
    errors: tuple[str, ...] = Field(default=(), description="The fields of the request that are wrong.")


class Refused(CodePilotError):
    """A request that is not taken, with its HTTP status."""

    def __init__(
        self, status: int, message: str, next_action: str = "", kind: FailureKind = _K.INVALID_SPEC, **details: object
    ) -> None:
        super().__init__(kind, message, next_action, **details)
        self.status = status
        self.headers: dict[str, str] = {}


def unauthenticated(message: str = "The credentials are missing, wrong or expired.") -> Refused:
    refused = Refused(
        401, message, "Send `Authorization: Bearer TOKEN`; `codepilot token create` makes a token.", _K.INVALID_SPEC
    )
    refused.headers["WWW-Authenticate"] = "Bearer"
    return refused


def not_allowed(message: str, next_action: str = "Ask an administrator of the service.") -> Refused:
    return Refused(403, message, next_action, _K.DENIED)


def not_found(what: str, next_action: str = "GET /v1/runs lists the runs.") -> Refused:
    return Refused(404, f"There is no {what}.", next_action)


def too_many(message: str, seconds: float, status: int = 429) -> Refused:
    wait = max(1, math.ceil(seconds))
    refused = Refused(status, message, f"Ask again in {wait} s.", _K.EXECUTOR_LOST)
    refused.headers["Retry-After"] = str(wait)
    return refused


def status_of(error: CodePilotError) -> int:
    if isinstance(error, Refused):
        return error.status
    if isinstance(error, (NoSuchRun, NoSuchRequest, NoSuchCheckpoint)):
        return 404
    if isinstance(error, (SeveralRuns, NoSession)):
        return 409
    return _STATUS.get(error.kind, 409)


def answer(
    request: Request, failure: Failure, status: int, headers: dict[str, str] | None = None, errors: tuple[str, ...] = ()
) -> Response:
    """The failure as a problem, or as a page where a person reads it."""
    problem = Problem(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=failure.message,
        kind=failure.kind,
        next_action=failure.advice,
        request_id=request_id_of(request),
        errors=errors,
    )
    if wants_page(request):
        from codepilot.api.pages.render import problem_page

        return problem_page(request, problem, headers)
    return JSONResponse(problem.model_dump(mode="json", by_alias=True), status, headers, media_type=PROBLEM)


def add_handlers(app: FastAPI) -> None:
    @app.exception_handler(CodePilotError)
    async def on_failure(request: Request, error: CodePilotError) -> Response:
        headers = error.headers if isinstance(error, Refused) else None
        return answer(request, error.failure, status_of(error), headers)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        wrong = tuple(f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in error.errors()[:20])
        failure = Failure(
            kind=_K.INVALID_SPEC,
            message=f"The request is not valid: {'; '.join(wrong[:3])}.",
            next_action="See /v1/openapi.json.",
        )
        return answer(request, failure, 422, errors=wrong)

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        message, advice = {
            404: (f"There is nothing at {request.url.path}.", "See /v1/docs."),
            405: (f"{request.method} does not fit {request.url.path}.", "See /v1/docs."),
        }.get(error.status_code, (str(error.detail), "See /v1/docs."))
        failure = Failure(kind=_K.INVALID_SPEC, message=message, next_action=advice)
        headers = dict(error.headers or {})
        if error.status_code == 405 and (methods := _methods(request)):
            headers["Allow"] = ", ".join(methods)
        return answer(request, failure, error.status_code, headers)


def _methods(request: Request) -> list[str]:
    """What the path takes: several routes may have it, and the framework names those of the first."""
    path = getattr(request.scope.get("route"), "path", "")
    return [method.upper() for method in request.app.openapi()["paths"].get(path, {})]
