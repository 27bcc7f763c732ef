"""The end of a build: the files with their lines, the tests, the cost, and how to run the program; or how to go on."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from codepilot.cli.output import plain
from codepilot.core.events import DependencyDegraded, State
from codepilot.core.run import Run
from codepilot.core.spending import total

if TYPE_CHECKING:
    from codepilot.engine import CodePilot

MAX_FILES = 40
MAX_READ = 1 << 20
_STARTED = re.compile(r"^if __name__ == [\"']__main__[\"']", re.MULTILINE)
SUGGESTIONS = (
    "The task may be too large: build one part of it first, then the next in the same directory.",
    "Read the files that are there, correct them yourself, and resume: your edits are taken over.",
)


def build_ending(console: Console, run: Run, pilot: CodePilot) -> None:
    """The last screen of a build that is over."""
    if run.state is State.DONE:
        _built(console, run, pilot)
    else:
        _not_built(console, run)


def _built(console: Console, run: Run, pilot: CodePilot) -> None:
    directory = Path(run.task.repo)
    files = run.proposal.patch.touched_files if run.proposal else ()
    console.print(Text("Built, and its tests pass.", "bold green"))
    table = Table.grid(padding=(0, 2))
    for path in files[:MAX_FILES]:
        table.add_row(Text("  ✓", "green"), Text(plain(path)), Text(_lines(directory / path), "dim"))
    console.print(table)
    if len(files) > MAX_FILES:
        console.print(f"  and {len(files) - MAX_FILES} more")
    for name, value in _facts(run):
        console.print(Text.assemble((f"{name:<12}", "dim"), plain(value)), soft_wrap=True)
    console.print(Text.assemble(("directory   ", "dim"), plain(str(directory))), soft_wrap=True)
    console.print(Text.assemble(("bundle      ", "dim"), plain(str(pilot.bundle(run.run_id)))), soft_wrap=True)
    for event in pilot.events(run.run_id):
        if isinstance(event.data, DependencyDegraded) and event.data.dependency == "output":
            console.print(Text(plain(event.data.failure.message), "magenta"), soft_wrap=True)
    if run.task.dry_run:
        console.print("Nothing was written: this was a dry run. See it with: " + f"codepilot diff {run.run_id}")
        return
    console.print(Text("Next:", "bold"))
    for number, command in enumerate(next_commands(directory, files, run.task.language or "python"), 1):
        console.print(f"  {number}. {plain(command)}", soft_wrap=True, markup=False, highlight=False)


def _facts(run: Run) -> list[tuple[str, str]]:
    after = run.proof.after if run.proof else None
    tested = run.test_result
    facts = [("iterations", f"{run.spent.iterations} of {total(run, 'iterations'):.0f}")]
    if after is not None:
        facts.append(("tests", f"{after.passed} pass, {len(after.failed) + len(after.errors)} fail"))
    if tested is not None and tested.coverage is not None:
        facts.append(("coverage", f"{tested.coverage:g}% of the lines are run by the tests"))
    facts.append(("time", f"{run.spent.wall_us / 1e6:.0f} s"))
    cost = run.spent.known_cost_usd
    facts.append(("cost", "unknown: the model has no known price" if cost is None else f"${cost:.4f}"))
    return facts


def _not_built(console: Console, run: Run) -> None:
    failure = run.failure
    if failure is not None:
        console.print(Text.assemble((failure.kind, "bold red"), ": ", plain(failure.message)), soft_wrap=True)
    last = run.test_result
    if last is not None and not last.passed:
        console.print(Text("Last error:", "bold"))
        for error in last.errors[:3]:
            text = f"  {error.test}: {error.error_type}: {error.message}"
            console.print(Text(plain(text[:500])), soft_wrap=True)
    for name, value in _facts(run):
        if name != "tests":
            console.print(Text.assemble((f"{name:<12}", "dim"), plain(value)), soft_wrap=True)
    console.print(Text.assemble(("files       ", "dim"), plain(run.task.repo), " (not proved)"), soft_wrap=True)
    console.print(Text("Suggestions:", "bold"))
    advice = [failure.advice] if failure is not None else []
    for line in dict.fromkeys((*advice, *(SUGGESTIONS if run.spent.iterations else ()))):
        console.print(f"  • {plain(line)}", soft_wrap=True, markup=False, highlight=False)
    if failure is not None and run.resume_state is not None:
        console.print(Text.assemble("Go on with: ", (f"codepilot resume {run.run_id}", "bold")), soft_wrap=True)


def _lines(path: Path) -> str:
    text = _read(path)
    return f"{len(text.splitlines())} lines" if text is not None else ""


def _read(path: Path) -> str | None:
    """A file as it is shown; nothing of links and of what is gone."""
    try:
        if path.is_symlink() or not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(MAX_READ).decode("utf-8", "replace")
    except OSError:
        return None


def next_commands(directory: Path, files: tuple[str, ...], language: str) -> list[str]:
    """What to type to install, test and start the program."""
    commands = [f"cd {shlex.quote(str(directory))}"]
    if language == "python":
        if (_read(directory / "requirements.txt") or "").strip():
            commands.append("python -m pip install -r requirements.txt")
        commands.append("python -m pip install pytest hypothesis && python -m pytest")
        programs = [one for one in files if "/" not in one and one.endswith(".py")]
        started = [one for one in programs if _STARTED.search(_read(directory / one) or "")]
        return [*commands, *(f"python {shlex.quote(one)}" for one in started[:1])]
    if language == "node":
        try:
            package = json.loads(_read(directory / "package.json") or "{}")
        except (ValueError, RecursionError):
            package = {}
        package = package if isinstance(package, dict) else {}
        if package.get("dependencies") or package.get("devDependencies"):
            commands.append("npm install")
        scripts = package.get("scripts")
        started_by = ["npm start"] if isinstance(scripts, dict) and "start" in scripts else []
        return [*commands, "npm test", *started_by]
    return [*commands, "mvn test"]
