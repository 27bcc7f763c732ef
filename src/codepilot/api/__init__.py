"""The service: the `/v1` API, and the dashboard's pages on the same application. Needs the extra `service`.

How a page is added. A page is a module in `api/pages/` with an `APIRouter(include_in_schema=False)` called `router`
that `pages/__init__.py` lists. Its handlers are plain `def` functions, which run in threads. They take `request:
Request` and one of the annotated dependencies `Viewer`, `Operator` or `Admin` from `api.access`, which is the
`Principal` who asks: without a login a browser gets the page to sign in, with too weak a scope a problem.
`service_of(request)` from `api.service` gives the `Service`; `service.pilot` is the façade, and nothing else of the
engine is called. `render(request, who, "template", active="Runs", **values)` from `api.pages.render` renders a
template of `views/` in the dashboard's frame; every answer carries the strict Content-Security-Policy. A form posts
`<input type="hidden" name="csrf" value="{{ frame.csrf }}">`; the dependency has checked it before the handler runs,
`fields: Fields` (or `FieldLists`) from `api.access` is the parsed form, and `see_other("/path")` answers. Live pages
read `GET /v1/runs/{id}/events` or, for all runs, `GET /v1/runs/changes` as `text/event-stream`; `service.live` has
the same streams for handlers of your own. A script that posts sends the token of `GET /v1/me` as the header
`X-CSRF-Token`. Errors are raised as `CodePilotError`, or by the functions of `api.problems`: a browser gets them as a
page, a program as problem+json.
"""

from codepilot.api.app import create_app
from codepilot.api.server import ServeOptions, run_server

__all__ = ["ServeOptions", "create_app", "run_server"]
