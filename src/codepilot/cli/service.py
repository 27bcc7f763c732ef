"""The commands of a team: workers, a queue, executors, and the care of a store."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from codepilot.cli.artifacts import artifacts
from codepilot.cli.attend import say_requested
from codepilot.cli.base import (
    MOST_DAYS,
    MOST_SEC,
    AgentOption,
    BranchOption,
    BudgetOption,
    CapabilityOption,
    FallbackOption,
    HostOption,
    JsonFlag,
    ModelOption,
    NotifyFlag,
    PromptOption,
    PythonOption,
    RefOption,
    RepoArg,
    RunArg,
    TestHostOption,
    TestOption,
    UnsafeFlag,
    open_runtime,
    say_left,
    settled_model,
)
from codepilot.cli.output import say
from codepilot.cli.text import plain

StoreOption = Annotated[
    str | None, typer.Option(metavar="URL", help="postgresql://… or a file; else CODEPILOT_STORE, else the home's own.")
]
ArtifactsOption = Annotated[
    str | None, typer.Option(metavar="URL", help="s3://… or a directory; else CODEPILOT_ARTIFACTS, else the home's.")
]


def register(app: typer.Typer) -> None:
    for command in (submit, worker, pause, fork, artifacts, fsck, prune, executor):
        app.command()(command)


def submit(
    repo: RepoArg = ".",
    test: TestOption = None,
    prompt: PromptOption = None,
    ref: RefOption = None,
    python: PythonOption = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    fallback_model: FallbackOption = None,
    budget: BudgetOption = None,
    branch: BranchOption = None,
    allow_host: HostOption = None,
    allow_test_host: TestHostOption = None,
    capability: CapabilityOption = "write_and_run_tests",
    unsafe_no_sandbox: UnsafeFlag = False,
    notify: NotifyFlag = None,
    priority: Annotated[int, typer.Option(min=-100, max=100, help="Higher ones are worked on first.")] = 0,
    run_id: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="Submitting again under the same id changes nothing.")
    ] = None,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Queue a task for workers (`codepilot worker`) and print the run's id."""
    from codepilot.engine import Request, Runtime, Settings, make_task, parse_budget
    from codepilot.engine import submit as enqueue

    request = Request(
        repo=repo,
        tests=tuple(test or ()),
        prompt=prompt,
        ref=ref,
        python=python,
        agent=agent,
        model=settled_model(model),
        fallback_model=fallback_model,
        elsewhere=True,
        budget=parse_budget(tuple(budget or ())),
        hosts=tuple(allow_host or ()),
        test_hosts=tuple(allow_test_host or ()),
        capability=capability,
        unsafe_no_sandbox=unsafe_no_sandbox,
        priority=priority,
        branch=branch,
        notify=notify,
    )
    settings = Settings.load(flags={"store": store, "artifacts": artifacts})
    with Runtime.open(settings) as runtime:
        found = enqueue(runtime, make_task(request, settings), run_id)
        say(json.dumps({"schema_version": 1, "run_id": found.run_id}) if as_json else found.run_id)
        if runtime.apart:
            say(runtime.apart, err=True)


def worker(
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="How many runs at a time.")] = 1,
    store: StoreOption = None,
    artifacts: ArtifactsOption = None,
    most_running: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="From now on no worker of this store takes anything while so many steps are at work; 0: no limit. "
            "Without it, what was set last holds.",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of /metrics, /healthz and /readyz; port 0 takes any.")
    ] = "127.0.0.1:0",
    drain: Annotated[
        float,
        typer.Option(min=0, max=MOST_SEC, metavar="SEC", help="How long SIGTERM waits for steps to end."),
    ] = 25.0,
    stale_after: Annotated[
        float,
        typer.Option(
            min=1,
            max=MOST_SEC,
            metavar="SEC",
            help="Silence after which a worker's steps go to others.",
        ),
    ] = 90.0,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="End when nothing is left to do.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Work on queued runs until told to stop."""
    from codepilot.cli.worker import Working, work

    working = Working(store, artifacts, concurrency, most_running, listen, drain, stale_after, until_idle, as_json)
    raise typer.Exit(work(working, os.environ))


def pause(run_id: RunArg, as_json: JsonFlag = False) -> None:
    """Let a run stop at its next safe point; `codepilot resume` goes on."""
    from codepilot.engine import pause as stop

    with open_runtime() as runtime:
        before = runtime.store.load(runtime.store.find(run_id))
        say_requested(before, stop(runtime, before.run_id), "pause", as_json=as_json)


def fork(
    run_id: RunArg,
    at: Annotated[
        int | None, typer.Option(metavar="EVENT", help="The last event to take over (`replay` tells).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Queue a new run that begins where another one was; go on with it by `codepilot resume`."""
    from codepilot.engine import fork_run

    with open_runtime() as runtime:
        found = fork_run(runtime, runtime.store.find(run_id), at)
        say(json.dumps({"schema_version": 1, "run_id": found.run_id}) if as_json else found.run_id)


def fsck(
    repair: Annotated[bool, typer.Option("--repair", help="Write views that differ anew from the log.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Prove for every run that its log is gapless and that what is stored beside it says the same."""
    with open_runtime() as runtime:
        problems = runtime.store.check_all()
        left = runtime.store.repair(problems) if repair else problems
        if as_json:
            say(json.dumps({"schema_version": 1, "problems": problems, "left": left}))
        else:
            say("\n".join(_told(problems, left, repair)))
        raise typer.Exit(4 if left else 0)


def _told(problems: Mapping[str, str], left: Mapping[str, str], repair: bool) -> list[str]:
    if not problems:
        return ["Every run is what its log tells."]
    lines = [plain(problem) + ("" if run_id in left else " Written anew.") for run_id, problem in problems.items()]
    if not repair:
        return [*lines, "`codepilot fsck --repair` writes anew what is stored beside a log that is sound."]
    if left:
        lines.append(
            f"{len(left)} of them cannot be helped, their logs are damaged: restore the database from a backup."
        )
    return lines


def prune(
    days: Annotated[float, typer.Option(min=0, max=MOST_DAYS, help="Keep what runs of the last days name.")] = 90.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove artifacts that only old, ended runs name."""
    from dataclasses import asdict
    from datetime import timedelta

    from codepilot.engine import prune as remove

    with open_runtime() as runtime:
        done = remove(runtime, timedelta(days=days), rehearse=dry_run)
        if as_json:
            say(json.dumps({"schema_version": 1, **asdict(done)}))
        else:
            verb = "would be removed" if dry_run else "removed"
            say(f"{done.removed} {verb} ({done.removed_bytes} bytes), {done.kept} kept.")
            say_left(done.left)


def executor(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Port 0 takes any that is free.")] = "127.0.0.1:8700",
    home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where workspaces lie; by default in CodePilot's home.")
    ] = None,
    level: Annotated[str, typer.Option(metavar="LEVEL", help="best, bubblewrap, landlock or none.")] = "best",
    max_workspaces: Annotated[int, typer.Option(min=1, help="How many workspaces there may be.")] = 64,
    max_processes: Annotated[int, typer.Option(min=1, help="How many processes callers may speak to.")] = 64,
    queue: Annotated[int, typer.Option(min=0, help="How many requests may wait; more are told to come back.")] = 64,
    concurrency: Annotated[int | None, typer.Option(min=1, help="How many requests run at once.")] = None,
    drain: Annotated[
        float,
        typer.Option(min=0, max=MOST_SEC, metavar="SEC", help="How long running work may go on at the end."),
    ] = 30,
    allow_mount: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="Let callers show what lies below inside.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="Let callers allow this host; none by default.")
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Ask for none; on a loopback address alone.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Serve this machine's sandbox over HTTP; the token is in CODEPILOT_EXECUTOR_TOKEN."""
    from codepilot.cli.executor import Serving, level_named, serve
    from codepilot.store import Home

    serving = Serving(
        listen=listen,
        home=home or Home.default(os.environ).path / "executor",
        level=level_named(level),
        no_token=no_token,
        workspaces=max_workspaces,
        processes=max_processes,
        queue=queue,
        concurrency=concurrency,
        drain_sec=drain,
        allow_mounts=allow_mount or (),
        allow_hosts=allow_host or (),
        as_json=as_json,
    )
    serve(serving, os.environ)
