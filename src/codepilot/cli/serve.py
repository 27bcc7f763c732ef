"""The commands of a service: `serve`, and the tokens of its users."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli import output
from codepilot.cli.options import MAX_SEC, TEAM, ArtifactsOption, JsonFlag, StoreOption
from codepilot.cli.output import plain, say

if TYPE_CHECKING:
    from codepilot.core.access import Credential

_SERVE = "Example: CODEPILOT_STORE=postgresql://… codepilot serve --host 0.0.0.0 --behind-tls-proxy --no-workers"

token = typer.Typer(name="token", help="Create, list and revoke the tokens of a service.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=TEAM, epilog=_SERVE)(serve)
    app.add_typer(token, rich_help_panel=TEAM)


def serve(
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 8080,
    workers: Annotated[
        int, typer.Option("--workers", min=0, max=64, metavar="N", help="How many runs to work on at a time.")
    ] = 2,
    no_workers: Annotated[bool, typer.Option("--no-workers", help="Work on no runs: workers are elsewhere.")] = False,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    behind_tls_proxy: Annotated[
        bool,
        typer.Option("--behind-tls-proxy", help="A proxy adds TLS: allow another address than this machine's own."),
    ] = False,
    login: Annotated[
        bool, typer.Option("--login", help="Only print an address that logs the owner in; the service is running.")
    ] = False,
    drain: Annotated[
        float, typer.Option(min=0, max=MAX_SEC, metavar="SEC", help="How long SIGTERM waits for running steps.")
    ] = 25.0,
    as_json: JsonFlag = False,
) -> None:
    """Serve the API and the dashboard, and work on runs.

    Prints an address that logs the owner in, once.
    """
    import logging

    from codepilot.core.failures import CodePilotError, FailureKind
    from codepilot.engine import CodePilot, Settings
    from codepilot.telemetry.process_log import json_logging

    try:
        from codepilot.api import ServeOptions, run_server
    except ModuleNotFoundError as error:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The service needs {error.name}, which is not installed.",
            "Install it into the same environment: pip install 'codepilot-cli[service]'",
        ) from error
    settings = Settings.load(flags={"store": store, "artifacts": artifacts})
    with CodePilot(settings).open() as pilot:
        if login:
            shown = settings.service.url or f"http://{'[' + host + ']' if ':' in host else host}:{port}"
            _say_login(shown, pilot.login_link(), as_json=as_json)
            return
        json_logging(logging.DEBUG if output.verbose() > 1 else logging.INFO, settings.redact)
        if pilot.warning:
            logging.getLogger("codepilot.cli.serve").warning("%s", pilot.warning)
        options = ServeOptions(host, port, 0 if no_workers else workers, drain, behind_tls_proxy)

        def ready(url: str) -> None:
            _say_login(settings.service.url or url, pilot.login_link(), as_json=as_json)

        run_server(pilot, options, ready)


def _say_login(url: str, link: str, *, as_json: bool) -> None:
    address = f"{url.rstrip('/')}/login?link={link}"
    if as_json:
        say(json.dumps({"schema_version": 1, "url": url, "login": address}))
    else:
        say(f"CodePilot serves {url}\nOpen this address to log in; it works once, for 15 minutes:\n  {address}")


@token.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token it is; the audit shows this name.")],
    scope: Annotated[
        str, typer.Option(metavar="SCOPE", help="viewer reads; operator also submits and controls; admin does all.")
    ] = "operator",
    days: Annotated[float, typer.Option(min=0, max=3650, help="How long it is valid.")] = 90.0,
    store: StoreOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Create a token and print it. It cannot be shown again."""
    from codepilot.core.access import Scope
    from codepilot.engine import CodePilot, Settings

    if scope not in list(Scope):
        raise typer.BadParameter(f"There is no scope {scope!r}: use {', '.join(Scope)}.")
    with CodePilot(Settings.load(flags={"store": store})) as pilot:
        made = pilot.create_token(name, Scope(scope), days)
    if as_json:
        say(json.dumps({"schema_version": 1, "token": made.secret, **_document(made.credential)}))
    else:
        say(made.secret)


@token.command("list")
def list_(store: StoreOption = None, as_json: JsonFlag = False) -> None:
    """List the tokens, without their secrets."""
    from codepilot.engine import CodePilot, Settings

    with CodePilot(Settings.load(flags={"store": store})) as pilot:
        found = pilot.tokens()
    if as_json:
        say(json.dumps({"schema_version": 1, "tokens": [_document(one) for one in found]}))
        return
    for one in found:
        shown = _document(one)
        say(plain(f"{one.credential_id}  {one.scope:<8}  {shown['state']:<8}  until {shown['expires_at']}  {one.name}"))
    if not found:
        say("There are no tokens. `codepilot token create NAME` makes one.")


@token.command("revoke")
def revoke(
    named: Annotated[str, typer.Argument(metavar="TOKEN", help="A token's id or name, as `token list` shows them.")],
    store: StoreOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Revoke a token. Requests with it are refused from now on."""
    from codepilot.engine import CodePilot, Settings

    with CodePilot(Settings.load(flags={"store": store})) as pilot:
        ended = pilot.revoke_token(named)
    document = _document(ended)
    say(
        json.dumps({"schema_version": 1, **document})
        if as_json
        else f"{ended.name} ({ended.credential_id}) is revoked."
    )


def _document(one: Credential) -> dict[str, object]:
    from codepilot.telemetry import now_us, rfc3339

    state = "revoked" if one.ended_at is not None else "valid" if one.usable(now_us()) else "expired"
    return {
        "id": one.credential_id,
        "name": one.name,
        "scope": str(one.scope),
        "state": state,
        "created_at": rfc3339(one.created_at),
        "expires_at": rfc3339(one.expires_at),
    }
