"""The commands that keep a home and its store in order: gc, fsck, doctor."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli.options import MAX_DAYS, UPKEEP, JsonFlag
from codepilot.cli.output import console, plain, say
from codepilot.core.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping


def register(app: typer.Typer) -> None:
    for command in (gc, fsck, doctor):
        app.command(rich_help_panel=UPKEEP)(command)


def gc(
    days: Annotated[
        float, typer.Option(min=0, max=MAX_DAYS, help="Remove workspaces unused for this many days.")
    ] = 7.0,
    artifacts: Annotated[
        float | None,
        typer.Option(
            min=0, max=MAX_DAYS, metavar="DAYS", help="Also remove artifacts that only runs older than this refer to."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove old workspaces, artifacts, bundles and runs.

    Artifacts are removed only with --artifacts DAYS, bundles and runs only with [retention] bundles_days or
    history_days in your configuration.
    """
    from codepilot.engine import CodePilot, Settings

    with CodePilot(Settings.load()) as pilot:
        removed = pilot.gc(days, artifacts, dry_run=dry_run)
    workspaces, pruned, expired = removed.workspaces, removed.artifacts, removed.expired
    left = {**workspaces.left, **(pruned.left if pruned else {})}
    if as_json:
        from dataclasses import asdict

        document = {"dry_run": dry_run, "removed": workspaces.removed, "left": left, **asdict(expired)}
        say(json.dumps({"schema_version": 1, **document, "artifacts": asdict(pruned) if pruned else None}))
        return
    verb = "would be removed" if dry_run else "removed"
    if workspaces.removed:
        say(f"{counted(len(workspaces.removed), 'workspace')} {verb}.")
    elif pruned is None and not (expired.bundles or expired.runs):
        say("Nothing to remove.")
    for names, noun in ((expired.runs, "run"), (expired.bundles, "bundle")):
        if names:
            say(f"{counted(len(names), noun)} {verb}.")
    if pruned is not None:
        say(f"{counted(pruned.removed, 'artifact')} {verb} ({pruned.removed_bytes} bytes), {pruned.kept} kept.")
    for problem in left.values():
        say(f"Left alone: {problem}")


def fsck(
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild from the events whatever differs from them.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check that the stored runs match their events."""
    from codepilot.engine import CodePilot, Settings

    with CodePilot(Settings.load()) as pilot:
        problems, left = pilot.fsck(repair=repair)
    if as_json:
        say(json.dumps({"schema_version": 1, "problems": problems, "left": left}))
    else:
        say("\n".join(_found(problems, left, repair=repair)))
    raise typer.Exit(4 if left else 0)


def _found(problems: Mapping[str, str], left: Mapping[str, str], *, repair: bool) -> list[str]:
    if not problems:
        return ["Every run matches its events."]
    lines = [plain(problem) + ("" if run_id in left else " Rewritten.") for run_id, problem in problems.items()]
    if not repair:
        return [*lines, "`codepilot fsck --repair` rebuilds it from the events, where those are complete."]
    if left:
        runs = counted(len(left), "run")
        lines.append(f"{runs} cannot be repaired because the events are damaged: restore the database from a backup.")
    return lines


def doctor(
    tests: Annotated[
        bool, typer.Option("--tests/--no-tests", help="Run the tests of the project in this directory once.")
    ] = True,
    as_json: JsonFlag = False,
) -> None:
    """Check this machine and project, and say what to install."""
    from codepilot.cli.doctor import examine

    raise typer.Exit(examine(console(), tests=tests, as_json=as_json))
