"""`codepilot executor`: serve this machine's sandbox over HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from codepilot.cli.output import say
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine import Settings
from codepilot.sandbox import Level, choose

if TYPE_CHECKING:
    from codepilot.executor import LocalExecutor
    from codepilot.executor.service import ServiceSettings

TOKEN = "CODEPILOT_EXECUTOR_TOKEN"
Wanted = Literal["best", "bubblewrap", "landlock", "none"]

_LEAST_TOKEN = 16


@dataclass(frozen=True)
class Serving:
    """What the command line says."""

    listen: str
    home: Path
    level: Wanted
    no_token: bool
    workspaces: int
    processes: int
    queue: int
    concurrency: int | None
    drain_sec: float
    allow_mounts: Sequence[Path]
    allow_hosts: Sequence[str]
    as_json: bool


def level_named(name: str) -> Wanted:
    for level in get_args(Wanted):
        if name == level:
            known: Wanted = level
            return known
    raise CodePilotError(
        FailureKind.INVALID_SPEC, f"There is no sandbox level {name!r}.", f"Use one of: {', '.join(get_args(Wanted))}."
    )


def serve(serving: Serving, environ: Mapping[str, str]) -> None:
    """Serve until told to stop."""
    try:
        from codepilot.executor.service import run_service
    except ModuleNotFoundError as error:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The executor's service needs {error.name}, which is not installed.",
            "Install it into the same environment: pip install fastapi uvicorn",
        ) from error
    settings = _settings(serving, environ)
    credentials = Settings.load(None, environ).credentials()
    sandbox = choose(serving.level)

    def open_executor(workspaces: Path) -> LocalExecutor:
        from codepilot.core.task import Capability
        from codepilot.executor import LocalExecutor
        from codepilot.skills import answer_calls, count_calls, inside_prelude

        return LocalExecutor(
            workspaces,
            sandbox,
            prelude=inside_prelude(),
            durable=True,
            answer=answer_calls(Capability.READ_ONLY),
            count=count_calls,
            credentials=credentials,
        )

    run_service(settings, open_executor, lambda url: _say(url, sandbox.level, serving))


def _settings(serving: Serving, environ: Mapping[str, str]) -> ServiceSettings:
    from codepilot.executor.service import ServiceSettings

    host, port = _address(serving.listen)
    return ServiceSettings(
        home=serving.home.expanduser().absolute(),
        host=host,
        port=port,
        token=_token(host, serving.no_token, environ),
        queue=serving.queue,
        workspaces=serving.workspaces,
        processes=serving.processes,
        drain_sec=serving.drain_sec,
        allow_mounts=tuple(path.expanduser().absolute() for path in serving.allow_mounts),
        allow_hosts=tuple(serving.allow_hosts),
        **({"concurrency": serving.concurrency} if serving.concurrency is not None else {}),
    )


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{listen!r} is not an address.",
            "Use HOST:PORT, for example 127.0.0.1:8700; port 0 takes any that is free.",
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def _token(host: str, no_token: bool, environ: Mapping[str, str]) -> str | None:
    """The token, from the environment alone. Without one, nobody but this machine may ask."""
    from codepilot.executor.service import is_loopback

    token = environ.get(TOKEN, "")
    if no_token and token:
        raise CodePilotError(
            FailureKind.INVALID_SPEC, f"--no-token was given, and {TOKEN} is set.", "Leave one of them out."
        )
    if no_token and not is_loopback(host):
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"Without a token the executor does not listen on {host}.",
            f"Set {TOKEN}, or listen on 127.0.0.1.",
        )
    if no_token:
        return None
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"{TOKEN} must hold a token of at least {_LEAST_TOKEN} printable characters.",
            f"export {TOKEN}=$(openssl rand -hex 32), or use --no-token on a loopback address.",
        )
    return token


def _say(url: str, level: Level, serving: Serving) -> None:
    if serving.as_json:
        say(json.dumps({"schema_version": 1, "url": url, "level": level, "home": str(serving.home)}))
    else:
        say(f"The executor listens on {url} (sandbox: {level}).")
