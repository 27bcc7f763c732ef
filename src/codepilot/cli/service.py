"""Where commands find runs: in this home, or on the service that --url or CODEPILOT_URL names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from codepilot.engine import CodePilot, Settings

URL, TOKEN, PLAIN = "CODEPILOT_URL", "CODEPILOT_TOKEN", "CODEPILOT_PLAIN_HTTP"
_named: list[str | None] = [None]


def _remember(url: str | None) -> str | None:
    _named.append(url)
    return url


UrlOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Ask this service instead of this machine. Default: $CODEPILOT_URL; its token is in $CODEPILOT_TOKEN.",
        callback=_remember,
        is_eager=True,
    ),
]


def service_url() -> str | None:
    """The service that `--url` or the environment names, if any."""
    return _named[-1] or os.environ.get(URL) or None


def open_pilot(settings: Settings) -> CodePilot:
    """The façade of this home, or a client of the service, which has the same methods."""
    url = service_url()
    if url is None:
        from codepilot.engine import CodePilot

        return CodePilot(settings)
    from codepilot.client import Client

    plain = settings.environ.get(PLAIN, "") not in ("", "0")
    return cast("CodePilot", Client(url, settings.environ.get(TOKEN) or None, settings=settings, plain_http=plain))
