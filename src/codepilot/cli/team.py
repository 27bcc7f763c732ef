"""The commands of a team: workers that take queued runs, and executors that run code for other machines."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import typer

from codepilot.cli import output
from codepilot.cli.options import (
    MAX_SEC,
    TEAM,
    ArtifactsOption,
    JsonFlag,
    LevelName,
    StoreOption,
    read_address,
)
from codepilot.cli.output import plain, say
from codepilot.core.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from types import FrameType, TracebackType

    from codepilot.cli.progress import Progress
    from codepilot.core.contract import JsonObject
    from codepilot.core.events import Event, State
    from codepilot.core.failures import Failure
    from codepilot.engine import CodePilot, WorkerPool
    from codepilot.telemetry.endpoint import Health

START_SEC = 60.0
"""How long a starting worker waits for a store that does not answer."""
TOKEN = "CODEPILOT_EXECUTOR_TOKEN"
MIN_TOKEN = 16
_WORKER = "Example: CODEPILOT_STORE=postgresql://… codepilot worker --concurrency 4 --listen 0.0.0.0:9100"

ListenOption = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="The address to listen on; port 0 takes any free port.")
]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=TEAM, epilog=_WORKER)(worker)
    app.command(rich_help_panel=TEAM)(executor)


def worker(
    concurrency: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="How many runs to work on at a time.")
    ] = 1,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    most_running: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Limit how many steps all workers of the store run at a time; 0 removes the limit."
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to serve /metrics and /healthz; port 0 takes any free port.")
    ] = "127.0.0.1:0",
    drain: Annotated[
        float, typer.Option(min=0, max=MAX_SEC, metavar="SEC", help="How long SIGTERM waits for running steps.")
    ] = 25.0,
    stale_after: Annotated[
        float,
        typer.Option(
            min=1, max=MAX_SEC, metavar="SEC", help="How long this worker may be silent before others take its steps."
        ),
    ] = 90.0,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Exit when no run is left to work on.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Work on queued runs until stopped.

    The first SIGTERM or Ctrl+C waits for running steps, the second hands them back at once.
    """
    import logging
    import signal

    from codepilot.engine import CodePilot, Settings
    from codepilot.telemetry.endpoint import Endpoint, Health
    from codepilot.telemetry.process_log import json_logging

    host, port = read_address(listen)
    settings = Settings.load(flags={"store": store, "artifacts": artifacts})
    json_logging(logging.DEBUG if output.verbose() > 1 else logging.INFO, settings.redact)
    log = logging.getLogger("codepilot.cli.worker")

    def waiting(problem: str) -> None:
        log.warning("waiting up to %d s for the store: %s", START_SEC, problem)

    with CodePilot(settings, stale_sec=stale_after).open(START_SEC, waiting) as pilot:
        if pilot.warning:
            log.warning("%s", pilot.warning)
        if most_running is not None:
            pilot.set_most_running(most_running or None)
        lines = None if as_json or output.quiet() else WorkerLines(settings.redact, lambda: pool.runs)
        on_event = lines.on_event if lines else None
        pool = pilot.worker(concurrency=concurrency, drain_sec=drain, until_idle=until_idle, on_event=on_event)

        def stop(number: int, frame: FrameType | None) -> None:
            pool.stop(hurry=pool.stopping)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)

        def health() -> Health:
            facts: JsonObject = {
                "worker": pool.name,
                "busy": pool.busy,
                "concurrency": concurrency,
                "draining": pool.stopping,
                "store": "answers" if pool.healthy else "away",
            }
            return Health(pool.healthy, pool.healthy and not pool.stopping, facts)

        with Endpoint(host, port, health) as endpoint, lines or contextlib.nullcontext():
            pool.run(lambda: _say_started(pilot, pool, endpoint.address, concurrency, as_json=as_json))


def _say_started(pilot: CodePilot, pool: WorkerPool, address: str, concurrency: int, *, as_json: bool) -> None:
    most = pilot.most_running()
    if as_json:
        started = {"schema_version": 1, "worker": pool.name, "listen": address, "most_running": most}
        say(json.dumps(started))
        return
    limit = "no limit on running steps" if most is None else f"at most {counted(most, 'step')} at a time in the store"
    say(f"{pool.name} works on up to {counted(concurrency, 'run')}, {limit}; http://{address}/metrics")


class WorkerLines:
    """Prints how runs ended here, or why they wait. While nothing ends, every few seconds what each run is doing."""

    def __init__(self, redact: Callable[[str], str], at_work: Callable[[], Collection[str]]) -> None:
        from codepilot.cli.live import Heartbeat

        self._redact = redact
        self._at_work = at_work
        self._verdicts: dict[str, str] = {}
        self._progress: dict[str, Progress] = {}
        self._lock = threading.Lock()
        self._heartbeat = Heartbeat(self._now, self._write)

    def __enter__(self) -> Self:
        self._heartbeat.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heartbeat.__exit__()

    def _now(self) -> str:
        from codepilot.cli.live import step_line
        from codepilot.telemetry import now_us, rfc3339

        now, at_work = rfc3339(now_us()), set(self._at_work())
        with self._lock:
            self._progress = {name: seen for name, seen in self._progress.items() if name in at_work}
            lines = {name: seen.running for name, seen in sorted(self._progress.items())}
        return "\n".join(f"{now}  {name}  {self._redact(step_line(line))}" for name, line in lines.items() if line)

    def _write(self, text: str) -> None:
        with contextlib.suppress(Exception):  # the reader may be gone; the runs go on
            say(text)

    def on_event(self, event: Event) -> None:
        from codepilot.cli.progress import Progress, advance

        with self._lock:
            self._progress[event.run_id] = advance(self._progress.get(event.run_id, Progress()), event)
        self._show_end(event)

    def _show_end(self, event: Event) -> None:
        from codepilot.core.decide import LEFT
        from codepilot.core.events import ProofRecorded, RunBlocked, RunFinished, RunPaused, State

        match event.data:
            case ProofRecorded(verdict=verdict) if verdict is not None:
                self._verdicts[event.run_id] = verdict
            case RunFinished(state=state, failure=failure):
                proved = self._verdicts.pop(event.run_id, "")
                self._print(event, state, failure, proved if state is State.DONE else "")
            case RunBlocked(failure=failure):
                self._print(event, State.BLOCKED, failure)
            case RunPaused(reason=reason) if reason != LEFT.reason:
                self._print(event, State.PAUSED)

    def _print(self, event: Event, state: State, failure: Failure | None = None, verdict: str = "") -> None:
        from codepilot.telemetry.clock import rfc3339

        why = f": {failure.kind}: {self._redact(failure.message)}" if failure else f", {verdict}" if verdict else ""
        self._heartbeat.write(f"{rfc3339(event.at)}  {event.run_id}  {plain(f'{state}{why}')}")


def executor(
    listen: ListenOption = "127.0.0.1:8700",
    home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where workspaces are kept. Default: CodePilot's home.")
    ] = None,
    level: Annotated[
        LevelName, typer.Option(help="The sandbox level; best takes the strongest that works here.")
    ] = LevelName.best,
    max_workspaces: Annotated[int, typer.Option(min=1, metavar="N", help="How many workspaces may exist.")] = 64,
    max_processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="How many processes callers may keep open.")
    ] = 64,
    queue: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many requests may wait; further ones are refused.")
    ] = 64,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many requests run at once. Default: depends on the CPUs."),
    ] = None,
    drain: Annotated[
        float, typer.Option(min=0, max=MAX_SEC, metavar="SEC", help="How long SIGTERM waits for running requests.")
    ] = 30,
    allow_mount: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Let callers mount this directory and those below it; may be repeated."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Let callers open the network to this host; may be repeated."),
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Require no token; only on a loopback address.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Serve this machine's sandbox over HTTP.

    Callers authenticate with the token in CODEPILOT_EXECUTOR_TOKEN.
    """
    from codepilot.core.failures import CodePilotError, FailureKind
    from codepilot.core.task import Capability
    from codepilot.engine import Settings
    from codepilot.executor import LocalExecutor
    from codepilot.sandbox import choose
    from codepilot.skills import answer_calls, count_calls, inside_prelude

    try:
        from codepilot.executor.service import ServiceSettings, run_service
    except ModuleNotFoundError as error:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            f"The executor's service needs {error.name}, which is not installed.",
            "Install it into the same environment: pip install fastapi uvicorn",
        ) from error
    settings = Settings.load()
    host, port = read_address(listen)
    service = ServiceSettings(
        home=(home or settings.home.path / "executor").expanduser().absolute(),
        host=host,
        port=port,
        token=executor_token(host, no_token=no_token, environ=settings.environ),
        queue=queue,
        workspaces=max_workspaces,
        processes=max_processes,
        drain_sec=drain,
        allow_mounts=tuple(path.expanduser().absolute() for path in allow_mount or ()),
        allow_hosts=tuple(allow_host or ()),
        **({"concurrency": concurrency} if concurrency is not None else {}),
    )
    credentials, sandbox = settings.credentials(), choose(level.value)

    def open_executor(workspaces: Path) -> LocalExecutor:
        return LocalExecutor(
            workspaces,
            sandbox,
            prelude=inside_prelude(),
            durable=True,
            answer=answer_calls(Capability.READ_ONLY),
            count=count_calls,
            credentials=credentials,
        )

    def listening(url: str) -> None:
        if as_json:
            say(json.dumps({"schema_version": 1, "url": url, "level": sandbox.level, "home": str(service.home)}))
        else:
            say(f"The executor listens on {url} (sandbox: {sandbox.level}).")

    run_service(service, open_executor, listening)


def executor_token(host: str, *, no_token: bool, environ: Mapping[str, str]) -> str | None:
    """The token, from the environment only. Without one, only this machine may connect."""
    from codepilot.core.failures import CodePilotError, FailureKind
    from codepilot.executor.service import is_loopback

    token = environ.get(TOKEN, "")
    problem = advice = ""
    if no_token and token:
        problem, advice = f"--no-token was given, and {TOKEN} is set.", "Leave one of them out."
    elif no_token and not is_loopback(host):
        problem = f"Without a token the executor does not listen on {host}."
        advice = f"Set {TOKEN}, or listen on 127.0.0.1."
    elif not no_token and (len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token):
        problem = f"{TOKEN} must hold a token of at least {MIN_TOKEN} printable characters."
        advice = f"export {TOKEN}=$(openssl rand -hex 32), or use --no-token on a loopback address."
    if problem:
        raise CodePilotError(FailureKind.INVALID_SPEC, problem, advice)
    return token or None
