"""The commands about what is remembered of earlier runs and of repositories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from codepilot.cli import output
from codepilot.cli.options import PEOPLE, JsonFlag
from codepilot.cli.output import plain, say

if TYPE_CHECKING:
    from codepilot.core.memory import MemoryKind
    from codepilot.engine import CodePilot, Remembered

_ADD = "Examples: codepilot memory add 'use pnpm here' · codepilot memory add 'tests need TZ=UTC' --repo ~/shop"

memory = typer.Typer(
    help="Show, add and remove what later runs are shown.", no_args_is_help=True, rich_markup_mode=None
)


class KindName(StrEnum):
    failure = "failure"
    pattern = "pattern"
    quirk = "quirk"


KINDS: Mapping[KindName | None, MemoryKind | None] = {
    None: None,
    KindName.failure: "failure",
    KindName.pattern: "pattern",
    KindName.quirk: "quirk",
}
RepoOption = Annotated[str, typer.Option("--repo", metavar="PATH", help="The checkout whose memories to use.")]
AllFlag = Annotated[bool, typer.Option("--all", help="Take the memories of all repositories.")]
KindOption = Annotated[KindName | None, typer.Option("--kind", help="Only failures, patterns or quirks.")]
WordsArg = Annotated[list[str] | None, typer.Argument(metavar="[WORD…]", help="List what has these words first.")]
IdArg = Annotated[str, typer.Argument(metavar="ID", help="The memory's id, or the beginning of it.")]
TextArg = Annotated[str, typer.Argument(metavar="TEXT", help="What is peculiar, in a short sentence.")]


def register(app: typer.Typer) -> None:
    memory.command(name="list")(list_)
    memory.command()(show)
    memory.command(epilog=_ADD)(add)
    memory.command()(forget)
    memory.command()(export)
    app.add_typer(memory, name="memory", rich_help_panel=PEOPLE)


def _open() -> CodePilot:
    from codepilot.engine import CodePilot, Settings

    return CodePilot(Settings.load())


def _person(pilot: CodePilot) -> str:
    from codepilot.cli.ask import person

    return person(pilot)


def _documents(found: list[Remembered]) -> list[dict[str, object]]:
    from codepilot.cli.documents import as_document

    return [{**as_document(one), "used": one.used, "success_rate": one.success_rate} for one in found]


def list_(
    words: WordsArg = None,
    kind: KindOption = None,
    repo: RepoOption = ".",
    everything: AllFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """List what is remembered of this repository, the newest first."""
    with _open() as pilot:
        found = pilot.memories(None if everything else repo, kind=KINDS[kind], text=" ".join(words or ()))
    if as_json:
        document = {"schema_version": 1, "memories": _documents(found)}
        output.print_json(json.dumps(document, ensure_ascii=False))
        return
    if not found:
        say("Nothing is remembered.")
    for one in found:
        say(plain(f"{one.id}  {one.memory.kind:<7}  {_used(one):<22}  {_line(one)}"))


def show(memory_id: IdArg, as_json: JsonFlag = False) -> None:
    """Show one memory, and the runs that were shown it."""
    with _open() as pilot:
        found = pilot.memory_of(memory_id)
    if as_json:
        output.print_json(json.dumps({"schema_version": 1, **_documents([found])[0]}, ensure_ascii=False))
        return
    facts = found.memory.model_dump(mode="json", exclude_defaults=True, exclude={"kind"})
    for name, value in {"id": found.id, "kind": found.memory.kind, "at": found.at, "repo": found.repo, **facts}.items():
        text = ", ".join(value) if isinstance(value, list) else str(value)
        say(plain(f"{name:<11} {text}"))
    say(plain(f"{'used':<11} {_used(found)}"))
    for use in found.uses:
        say(plain(f"            {use.run_id}  {use.state}  {use.verdict or '-'}  {use.iterations} iteration(s)"))


def add(text: TextArg, repo: RepoOption = ".", as_json: JsonFlag = False) -> None:
    """Add what is peculiar about a repository: its later runs are shown it."""
    with _open() as pilot:
        added = pilot.remember(text, repo, by=_person(pilot))
    if as_json:
        output.print_json(json.dumps({"schema_version": 1, **_documents([added])[0]}, ensure_ascii=False))
        return
    say(plain(f"Remembered as {added.id}: {_line(added)}"))


def forget(memory_id: IdArg) -> None:
    """Remove a memory."""
    with _open() as pilot:
        gone = pilot.forget(memory_id, by=_person(pilot))
    say(plain(f"Forgotten: {_line(gone)}"))


def export(repo: RepoOption = ".", everything: AllFlag = False) -> None:
    """Print the memories as JSON, one a line."""
    with _open() as pilot:
        found = pilot.memories(None if everything else repo, limit=100_000)
    for one in _documents(found):
        output.print_json(json.dumps(one, ensure_ascii=False))


def _used(one: Remembered) -> str:
    rate = one.success_rate
    times = "unused" if not one.used else "used once" if one.used == 1 else f"used {one.used} times"
    return times if rate is None else f"{times}, {rate:.0%} ok"


def _line(one: Remembered) -> str:
    found = one.memory
    if found.kind == "quirk":
        return found.text
    if found.kind == "failure":
        return f"{found.error_type}: {_first(found.message)} → {_first(found.solution) or 'not solved yet'}"
    return f"{'partial: ' if found.partial else ''}{_first(found.task)} → {_first(found.solution)}"


def _first(text: str) -> str:
    return text.partition("\n")[0]
