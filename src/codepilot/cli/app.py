"""The commands. Each parses, calls one function of the engine, and renders; heavy imports wait until then."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from codepilot.cli import output, service
from codepilot.cli.attend import finish, print_json, say_applied, say_requested, start
from codepilot.cli.base import (
    MOST_DAYS,
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
    app,
    open_runtime,
    say_left,
    settled_model,
)
from codepilot.cli.bench import bench
from codepilot.cli.failing import fail, failure_of, refuse_other_bytes
from codepilot.cli.output import console, say
from codepilot.cli.signals import ignore_for_ourselves_only
from codepilot.cli.text import plain


def run() -> None:
    """Run the command; a failure becomes two lines and an exit code."""
    ignore_for_ourselves_only()
    output.prepare()
    try:
        refuse_other_bytes(sys.argv[1:])
        try:
            app()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has read enough
        output.give_up(sys.stdout)
        raise SystemExit(1) from None
    except Exception as error:
        raise SystemExit(fail(failure_of(error))) from error


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from codepilot import __version__

        say(f"codepilot {__version__}")
        raise typer.Exit


@app.command()
def fix(
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
    apply: Annotated[bool, typer.Option("--apply", help="Write the proved change into the checkout.")] = False,
    accept_plausible: Annotated[bool, typer.Option("--accept-plausible", help="Apply even if only plausible.")] = False,
    allow_host: HostOption = None,
    allow_test_host: TestHostOption = None,
    capability: CapabilityOption = "write_and_run_tests",
    unsafe_no_sandbox: UnsafeFlag = False,
    notify: NotifyFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """Repair a failing test and prove the change."""
    from codepilot.engine import Request, parse_budget

    request = Request(
        repo=repo,
        tests=tuple(test or ()),
        prompt=prompt,
        ref=ref,
        python=python,
        agent=agent,
        model=settled_model(model),
        fallback_model=fallback_model,
        budget=parse_budget(tuple(budget or ())),
        unsafe_no_sandbox=unsafe_no_sandbox,
        hosts=tuple(allow_host or ()),
        test_hosts=tuple(allow_test_host or ()),
        capability=capability,
        branch=branch,
        notify=notify,
    )
    start(request, apply=apply, accept_plausible=accept_plausible, as_json=as_json)


@app.command()
def demo(as_json: JsonFlag = False) -> None:
    """Repair a real bug in a small example project, offline."""
    from codepilot.cli.demo import prepare_example
    from codepilot.engine import Request
    from codepilot.store import Home

    checkout = prepare_example(Home.default(os.environ).ensure().path / "demo")
    if not as_json:
        say(plain(f"A small library with a test suite and one bug: {checkout}"))
    request = Request(repo=str(checkout), prompt="Free slots must not overlap bookings that lie inside longer ones")
    start(request, as_json=as_json)


@app.command()
def show(run_id: RunArg = "last", as_json: JsonFlag = False) -> None:
    """Show one run: where it stands, what it cost, what it found."""
    with open_runtime() as runtime:
        found = runtime.store.load(runtime.store.find(run_id))
        if as_json:
            print_json(runtime, found)
        else:
            from codepilot.cli.screens import run_screen
            from codepilot.engine import patch_of

            several = found.spent.iterations > 1
            figures = runtime.store.iterations(found.run_id).iterations if several else ()
            notified = runtime.store.outbox.of(found.run_id) if found.task.notify else ()
            run_screen(console(), found, patch_of(runtime, found), runtime, figures, notified)


@app.command()
def history(
    limit: Annotated[int, typer.Option(min=1, max=10**9, help="How many, newest first.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List the runs, newest first."""
    with open_runtime() as runtime:
        rows = runtime.store.history(limit)
        if as_json:
            from dataclasses import asdict

            say(json.dumps([asdict(row) for row in rows], default=str))
        elif rows:
            from codepilot.cli.screens import history_table

            screen = console()
            screen.print(history_table(screen.width, rows))
        else:
            say("No runs yet. Try: codepilot demo")


@app.command()
def logs(
    run_id: RunArg = "last", follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False
) -> None:
    """Print a run's log, one JSON object a line."""
    from codepilot.cli.follow import lines

    with open_runtime() as runtime:
        found = runtime.store.find(run_id)
        for line in lines(runtime, found, follow=follow):
            output.print_json(line)
            if follow:
                sys.stdout.flush()


@app.command()
def diff(run_id: RunArg = "last") -> None:
    """Print the change a run found, as a patch for `git apply`."""
    from codepilot.cli.screens import printable
    from codepilot.engine import patch_of

    with open_runtime() as runtime:
        found = runtime.store.load(runtime.store.find(run_id))
        patch = patch_of(runtime, found)
    if sys.stdout.isatty():
        say(printable(patch))
    else:
        sys.stdout.buffer.write(patch)
        sys.stdout.flush()


@app.command()
def apply(
    run_id: RunArg = "last",
    branch: BranchOption = None,
    accept_plausible: Annotated[bool, typer.Option("--accept-plausible", help="Apply even if only plausible.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Write a proved change into the checkout it was made for, or commit it to a new branch."""
    from codepilot.engine import apply_run, commit_run

    with open_runtime() as runtime:
        if branch is not None:
            made = commit_run(runtime, runtime.store.find(run_id), branch, accept_plausible=accept_plausible)
            said = f"Committed to {made.branch} of {made.checkout}: {made.commit}."
            say(json.dumps({"schema_version": 1, **made.model_dump()}) if as_json else said)
            return
        applied = apply_run(runtime, runtime.store.find(run_id), accept_plausible=accept_plausible)
        if as_json:
            say(json.dumps({"schema_version": 1, "checkout": applied.checkout, "files": list(applied.files)}))
        else:
            say_applied(applied.checkout, applied.files)


@app.command()
def resume(
    run_id: RunArg = "last",
    detach: Annotated[bool, typer.Option("--detach", help="Leave it to workers, and print its id.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Go on with a run that was paused, killed, or had spent its budget; follow one that is worked on."""
    from codepilot.cli.signals import early_interrupts
    from codepilot.engine import go_on
    from codepilot.engine import resume as reopen

    with open_runtime() as runtime:
        found = runtime.store.find(run_id)
        if detach and not reopen(runtime, found).terminal:
            say(json.dumps({"schema_version": 1, "run_id": found}) if as_json else found)
        else:
            with early_interrupts(found) as recorded:
                recorded.set()
                finish(runtime, lambda: go_on(runtime, found), as_json=as_json)


@app.command()
def cancel(run_id: RunArg, as_json: JsonFlag = False) -> None:
    """End a run and clean up its workspace."""
    from codepilot.cli.drive import notify
    from codepilot.engine import cancel as end

    with open_runtime() as runtime:
        before = runtime.store.load(runtime.store.find(run_id))
        found = end(runtime, before.run_id)
        say_requested(before, found, "cancel", as_json=as_json)
        notify(runtime, found)


@app.command()
def verify(
    bundle: Annotated[str, typer.Argument(metavar="BUNDLE", help="A bundle's directory, or a run that has one.")],
    repo: Annotated[Path | None, typer.Option(help="Where the base commit is, if not where it was.")] = None,
    python: PythonOption = None,
    unsafe_no_sandbox: UnsafeFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Prove a bundle again from nothing, and detect any changed byte."""
    from codepilot.engine import Checking, verify_bundle
    from codepilot.verify import REGRESSION_TEST

    checking = Checking(repo=repo, python=python, unsafe_no_sandbox=unsafe_no_sandbox)
    with open_runtime() as runtime:
        where = Path(bundle) if Path(bundle).exists() else runtime.home.bundles / runtime.store.find(bundle)
        proof = verify_bundle(runtime, where, checking)
        if as_json:
            output.print_json(proof.model_dump_json())
        elif proof.ok:
            say(f"The bundle holds: {proof.after.passed} tests pass after the change; verdict {proof.verdict}.")
            for check in proof.checks:
                if check.name == REGRESSION_TEST and not check.ok:
                    say(plain(f"Its regression test does not hold here: {check.evidence}."))
        else:
            say(plain(proof.reason))
        raise typer.Exit(0 if proof.ok else 1)


@app.command()
def replay(run_id: RunArg, as_json: JsonFlag = False) -> None:
    """Tell a run from its log and check the stored view against it."""
    from codepilot.cli.follow import story

    with open_runtime() as runtime:
        found = runtime.store.find(run_id)
        runtime.store.check(found)
        events = runtime.store.events(found)
        if as_json:
            output.print_json(runtime.store.load(found).model_dump_json())
            return
        for line in story(events):
            say(line)
        say(f"{len(events)} events replayed; the stored view is the same.")


@app.command()
def gc(
    days: Annotated[float, typer.Option(min=0, max=MOST_DAYS, help="Remove what is older.")] = 7.0,
    as_json: JsonFlag = False,
) -> None:
    """Remove old workspaces that nothing needs."""
    from codepilot.engine import collect

    with open_runtime() as runtime:
        done = collect(runtime, days)
        if as_json:
            say(json.dumps({"schema_version": 1, "removed": done.removed, "left": done.left}))
        else:
            say(f"{len(done.removed)} removed." if done.removed else "Nothing to remove.")
            say_left(done.left)


@app.command()
def doctor(as_json: JsonFlag = False) -> None:
    """Say what this machine gives, and what to install."""
    from codepilot.cli.doctor import examine

    raise typer.Exit(examine(console(), os.environ, as_json=as_json))


service.register(app)
app.add_typer(bench, name="bench")
