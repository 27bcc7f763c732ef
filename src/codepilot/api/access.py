"""Who asks: tokens, browser sessions, an identity proxy; scopes, CSRF tokens and rate limits as dependencies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse

from codepilot.api.parameters import refuse_unknown_parameters
from codepilot.api.problems import Refused, not_allowed, too_many, unauthenticated
from codepilot.api.requests import wants_page
from codepilot.api.service import Service, service_of
from codepilot.core.access import CredentialKind, Principal, Scope, matches

COOKIE = "codepilot_session"
CSRF_FIELD = "csrf"
CSRF_HEADER = "x-csrf-token"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 10_000


class LoginNeeded(Refused):
    """A browser without a session asks for a page."""


def csrf_token(service: Service, who: Principal) -> str:
    """The token that forms of this user carry. It is good for one session."""
    return service.pilot.sign("csrf", who.by, who.name, who.credential_id)


async def form(request: Request) -> Mapping[str, str]:
    """The fields of a posted form, the last of each name; nothing if the body is no form."""
    return {name: values[-1] for name, values in (await lists(request)).items()}


async def lists(request: Request) -> Mapping[str, list[str]]:
    """The fields of a posted form with all their values."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        return {}
    try:
        pairs = parse_qsl((await request.body()).decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise Refused(422, "The form cannot be read.", "Send it again.") from error
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


Fields = Annotated[Mapping[str, str], Depends(form)]
FieldLists = Annotated[Mapping[str, list[str]], Depends(lists)]


def _identify(request: Request, service: Service) -> Principal | None:
    """Who sent the request: the bearer of a token, a browser with a session, or a user of the trusted proxy."""
    given = request.headers.get("authorization", "")
    if given:
        scheme, _, secret = given.partition(" ")
        bearer = secret.strip() if scheme.lower() == "bearer" else ""
        return service.pilot.authenticate(bearer, CredentialKind.TOKEN)
    if (session := request.cookies.get(COOKIE)) and (
        found := service.pilot.authenticate(session, CredentialKind.SESSION)
    ):
        return found
    return _of_proxy(request, service)


def _of_proxy(request: Request, service: Service) -> Principal | None:
    settings = service.settings
    if not settings.trusted_header or request.client is None or request.client.host not in settings.trusted_proxies:
        return None
    name = request.headers.get(settings.trusted_header, "").strip()[:100]
    if not name or not name.isprintable():
        return None
    return Principal(
        name=name, scope=Scope.ADMIN if name in settings.admins else Scope(settings.proxy_scope), by="proxy"
    )


async def identify(request: Request) -> Principal:
    """The principal; refused without one, over the rate limit, or if a browser's post has no CSRF token."""
    service = service_of(request)
    peer = request.client.host if request.client else "-"
    who = await run_in_threadpool(_identify, request, service)
    if who is None:
        if wait := service.limits.take(f"peer:{peer}", 5.0):
            raise too_many("There were too many requests without valid credentials.", wait)
        raise LoginNeeded(401, "Log in first.") if wants_page(request) else unauthenticated()
    request.scope["codepilot.user"] = who.name
    if wait := service.limits.take(f"user:{who.name}"):
        raise too_many(f"{who.name} makes too many requests.", wait)
    if request.method not in _SAFE and who.by != "token":
        await _check_csrf(request, service, who)
    return who


async def _check_csrf(request: Request, service: Service, who: Principal) -> None:
    given = request.headers.get(CSRF_HEADER) or (await form(request)).get(CSRF_FIELD, "")
    foreign = request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
    if foreign or not matches(given, csrf_token(service, who)):
        raise not_allowed("The form's token is missing or too old.", "Open the page again and repeat it there.")


async def still_valid(request: Request) -> bool:
    """True if the credentials of a request, which may be hours old, are good now."""
    return await run_in_threadpool(_identify, request, service_of(request)) is not None


def requires(scope: Scope) -> Callable[[Request], Awaitable[Principal]]:
    async def dependency(request: Request) -> Principal:
        who = await identify(request)
        if not who.scope.allows(scope):
            raise not_allowed(f"{who.name} has the scope {who.scope}; this needs {scope}.")
        refuse_unknown_parameters(request)
        return who

    return dependency


Viewer = Annotated[Principal, Depends(requires(Scope.VIEWER))]
Operator = Annotated[Principal, Depends(requires(Scope.OPERATOR))]
Admin = Annotated[Principal, Depends(requires(Scope.ADMIN))]


def set_session(response: Response, request: Request, secret: str, hours: float) -> None:
    response.set_cookie(
        COOKIE,
        secret,
        max_age=int(hours * 3600),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https" or (service_of(request).settings.url or "").startswith("https:"),
        path="/",
    )


def see_other(path: str) -> Response:
    """The answer to a form: the browser gets the page at `path`."""
    return RedirectResponse(path, 303)
