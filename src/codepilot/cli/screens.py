"""The screens that do not move: the start of a run, its end, the history."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from codepilot.cli.output import plain, plain_lines
from codepilot.cli.plan import plan_lines
from codepilot.core.artifacts import TestSummary
from codepilot.core.commit import CommitRecorded, branch_name
from codepilot.core.events import State
from codepilot.core.failures import Failure
from codepilot.core.pipeline import pipeline_of
from codepilot.core.run import Run, Spent
from codepilot.core.suspect import suspect_of
from codepilot.core.task import TaskKind, TaskSpec
from codepilot.core.text import counted
from codepilot.store import NotificationRow, RunRow
from codepilot.telemetry import IterationFigures, gate_line, plan_parts

if TYPE_CHECKING:
    from codepilot.engine import CodePilot, Settings

MOST_CONCERNS = 6
COLOURS: Mapping[str, str] = {
    State.DONE: "green",
    State.FAILED: "red",
    State.ABORTED: "red",
    State.PAUSED: "magenta",
    State.BLOCKED: "magenta",
    "interrupted": "magenta",
}


def sandbox_row(level: str, executor: str | None) -> Text:
    where = f" at {executor}" if executor else ""
    return Text(f"{level}{where}", "red" if level == "none" else "green")


def opened(task: TaskSpec) -> str:
    """The hosts that code of the task may reach."""
    return ", ".join((*task.hosts, *(f"{host} (tests only)" for host in task.test_hosts)))


def facts() -> Table:
    """Names on the left, what they are on the right."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    return table


def opening(task: TaskSpec, run_id: str, settings: Settings, level: str) -> RenderableType:
    """What will run, where, and in which sandbox."""
    table = facts()
    table.add_row("run", Text(run_id, "bold"))
    table.add_row("task", Text(plain(task.goal.natural)))
    table.add_row("repository", Text(task.repo + (f" at {task.ref}" if task.ref else " as it is now")))
    if pipeline_of(task.kind).roles:
        table.add_row("agent", Text(task.agent))
    if task.model:
        table.add_row("model", Text(task.model + (f", else {task.fallback_model}" if task.fallback_model else "")))
    table.add_row("sandbox", sandbox_row(level, settings.executor.url))
    if network := opened(task):
        table.add_row("network", Text(network))
    if task.branch is not None:
        table.add_row("branch", Text(branch_name(task.branch, run_id)))
    table.add_row("home", Text(str(settings.home.path)))
    return table


def ending(console: Console, run: Run, pilot: CodePilot, *, applied: bool) -> None:
    """The diff, before and after, the verdict, the bundle, and what to do next."""
    for text in run.undelivered:
        line = f"Not delivered to the agent: {plain(text)}"
        console.print(Text(line, "yellow"), soft_wrap=True)
    if run.task.kind is TaskKind.BUILD and run.terminal:
        from codepilot.cli.build_screens import build_ending

        build_ending(console, run, pilot)
        return
    if run.state is State.DONE and "answer" in run.documents:
        answer = pilot.document(run.run_id, "answer").decode("utf-8", "replace")
        console.print(Text(plain_lines(answer).rstrip("\n")), soft_wrap=True)
        return
    if run.state is State.DONE and run.task.attempt is not None:
        console.print(coloured(pilot.diff(run.run_id)), soft_wrap=True)
        console.print(Text(f"The program printed {run.task.attempt.marker}. This run did not judge its change."))
        return
    if run.state is State.DONE:
        console.print(coloured(pilot.diff(run.run_id)), soft_wrap=True)
        console.print(before_and_after(run))
        console.print(_verdict(run))
        for concern in run.proof.concerns[1:MOST_CONCERNS] if run.proof else ():
            console.print(Text.assemble(("concern  ", "dim"), plain(str(concern))), soft_wrap=True)
        if test := _regression_test(run):
            console.print(test, soft_wrap=True)
        console.print(Text.assemble(("bundle   ", "dim"), _bundle(run, pilot)), soft_wrap=True)
        if run.committed is not None:
            console.print(_commit(run.committed), soft_wrap=True)
        if run.task.dry_run:
            where = f"codepilot show {run.run_id} --document plan (or commands, diff)"
            console.print(Text.assemble(("dry run  ", "dim"), f"nothing was written: {where}"), soft_wrap=True)
        elif not applied and not _is_there(run):
            console.print(Text.assemble(("apply    ", "dim"), (apply_command(run), "bold")), soft_wrap=True)
        return
    if run.state is State.PAUSED:
        console.print(f"Paused. Go on with: [bold]codepilot resume {run.run_id}[/]", soft_wrap=True)
        return
    if run.failure is not None and run.open_request is None:
        failure(console, run.failure, run.run_id)
    if (awaited := waits_for(run)) is not None:
        console.print(Text.assemble(("waits for  ", "dim"), awaited), soft_wrap=True)
    if run.parked_until is not None:
        when = datetime.fromtimestamp(run.parked_until / 1e6).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")
        if run.open_request is not None:
            console.print(
                f"Answer it by {when}: [bold]codepilot approve {run.run_id}[/] or [bold]deny[/].", soft_wrap=True
            )
            return
        parked = f"Parked until {when}. A worker goes on then (`codepilot worker`), or resume it yourself."
        console.print(parked, soft_wrap=True)


def waits_for(run: Run) -> str | None:
    """What a blocked run waits for; None if it is not blocked."""
    if (waiting := run.waiting_for) is None:
        return None
    asked = next((one.request for one in run.approvals if one.request.approval_id == waiting.approval_id), None)
    if asked is not None:
        return plain(f"your approval ({asked.approval_id}): {asked.operation} {asked.details}".rstrip())
    known = {
        "quota": "the model provider's quota",
        "artifact_store": "the artifact store",
        "lock": "another run's lock",
        "children": "its parts, which runs of their own work on",
    }
    return known.get(waiting.kind, "you: correct the cause, then resume the run")


def _bundle(run: Run, pilot: CodePilot) -> str:
    """Where it lies, if it is on this machine."""
    for place in (str(pilot.bundle(run.run_id)), run.bundle):
        if place and os.access(place, os.R_OK):
            return place
    if pilot.shared:
        return f"on the machine that worked last; `codepilot show {run.run_id} --json` brings it here"
    return f"no longer at {run.bundle}"


def failure(console: Console, problem: Failure, run_id: str | None = None) -> None:
    """What went wrong, the evidence against a suspect test, and what to do."""
    suspect = suspect_of(problem)
    if suspect is None:
        console.print(Text.assemble((problem.kind, "bold red"), ": ", plain(problem.message)), soft_wrap=True)
    else:
        console.print(Text(plain(problem.message), "bold"), soft_wrap=True)
    for line in suspect.lines() if suspect else ():
        console.print(Text(f"  {plain(line)}"), soft_wrap=True)
    console.print(Text.assemble(("→ ", "blue"), plain(problem.advice)), soft_wrap=True)
    if run_id is not None:
        console.print(Text.assemble(("  more: ", "dim"), f"codepilot show {run_id}"), soft_wrap=True)


def _is_there(run: Run) -> bool:
    """True if the judged change is the checkout's own uncommitted files."""
    proposed = run.task.proposed
    return proposed is not None and proposed.diff is None and proposed.ref is None


def apply_command(run: Run) -> str:
    """What to type or paste, with the program's whole path where it is not on PATH."""
    accept = ["--accept-plausible"] if run.verdict == "plausible" else []
    return shlex.join([*_program(), "apply", run.run_id, *accept])


def _program() -> list[str]:
    if shutil.which("codepilot"):
        return ["codepilot"]
    started = Path(sys.argv[0])
    return [str(started.absolute())] if started.name == "codepilot" else [sys.executable, "-m", "codepilot"]


def before_and_after(run: Run) -> RenderableType:
    table = Table(title="tests", title_justify="left", title_style="dim", show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column("before", justify="right")
    table.add_column("after", justify="right")
    before = run.baseline.before if run.baseline else TestSummary()
    after = run.proof.after if run.proof else TestSummary()
    table.add_row("passed", str(before.passed), f"[green]{after.passed}[/]")
    red_before, red_after = len(before.failed) + len(before.errors), len(after.failed) + len(after.errors)
    table.add_row(
        "failed", f"[red]{red_before}[/]" if red_before else "0", f"[red]{red_after}[/]" if red_after else "0"
    )
    table.add_row("skipped", str(before.skipped), str(after.skipped))
    if after.flaky:
        table.add_row("flaky", "", str(len(after.flaky)))
    return table


def activity_note(pilot: CodePilot, run_id: str) -> str:
    """What to do about a run that nobody works on; nothing if it is at work, ended, or waits."""
    activity = pilot.activities(run_id).get(run_id)
    if activity == "interrupted":
        return f"Interrupted: the process that worked on it is gone. Go on with: codepilot resume {run_id}"
    if activity != "queued":
        return ""
    workers = sum(worker.takes_queued for worker in pilot.workers())
    if workers:
        return f"Queued for {counted(workers, 'worker')}."
    return (
        "Queued, and no worker is running. Start one with `codepilot worker`, or work on it here:"
        f" codepilot resume {run_id}"
    )


def history_table(console: Console, rows: Sequence[RunRow], activities: Mapping[str, str]) -> RenderableType:
    """Ids are whole. Outside a terminal everything is; on one, repository and task share what the others leave."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    cells = [
        (
            row.run_id,
            when(row.created_at),
            _state(row, activities),
            plain(row.verdict or row.failure_kind or ""),
            plain(row.repo),
            plain(row.goal),
        )
        for row in rows
    ]
    names = ("run", "started", "state", "verdict", "repository", "task")
    widths = [max(map(len, (name, *column))) for name, column in zip(names, zip(*cells, strict=True), strict=True)]
    left = console.width - sum(widths[:4]) - 2 * len(names) if console.is_terminal else sum(widths[4:])
    task = max(8, min(widths[5], left - min(widths[4], left // 2)))
    for name, width in zip(names, (*widths[:4], max(0, left - task), task), strict=True):
        if width >= 4:
            table.add_column(name, no_wrap=True, overflow="ellipsis", width=width)
    for cell in cells:
        texts = [Text(text) for text in cell]
        texts[2].stylize(COLOURS.get(cell[2].partition(" ")[2].strip("()") or cell[2], "blue"))
        table.add_row(*(texts if len(table.columns) == len(names) else (*texts[:4], texts[5])))
    return table


def _state(row: RunRow, activities: Mapping[str, str]) -> str:
    activity = activities.get(row.run_id)
    return plain(f"{row.state} ({activity})" if activity in ("queued", "interrupted") else row.state)


def _cost(spent: Spent) -> str:
    known = f"${spent.cost_usd:.4f}" if spent.cost_usd or not spent.unpriced_tokens else ""
    unknown = f"{spent.unpriced_tokens:,} of them of unknown price" if known else "price unknown"
    return ", ".join(part for part in (known, unknown if spent.unpriced_tokens else "") if part)


def run_screen(console: Console, run: Run, pilot: CodePilot) -> None:
    """`codepilot show`: one run at a glance."""
    table = facts()
    table.add_row("run", Text(run.run_id, "bold"))
    table.add_row("state", Text(run.state, COLOURS.get(run.state, "blue")))
    table.add_row("task", Text(plain(run.task.goal.natural)))
    table.add_row("repository", Text(plain(run.task.repo)))
    if run.base is not None:
        table.add_row("base", Text(run.base.described))
    table.add_row("started", when(run.created_at))
    spent = run.spent
    used = f"{counted(spent.iterations, 'iteration')}, {counted(spent.turns, 'turn')}, {spent.wall_us / 1e6:.1f} s"
    if run.task.model:
        fallback = f", else {run.task.fallback_model}" if run.task.fallback_model else ""
        table.add_row("model", Text(plain(run.task.model + fallback)))
    if run.task.model or spent.tokens:
        used += f", {counted(spent.tokens, 'token')}, {_cost(spent)}"
    table.add_row("spent", used)
    if run.sandbox_level:
        table.add_row("sandbox", sandbox_row(run.sandbox_level, run.executor))
    if network := opened(run.task):
        table.add_row("network", Text(network))
    for one in pilot.notifications(run.run_id) if run.task.notify else ():
        table.add_row("notified", Text(_notified(one)))
    console.print(table)
    for line in plan_lines(plan_parts(run.plan, run.children)):
        console.print(line, soft_wrap=True)
    for gate in run.test_result.gates if run.test_result else ():
        console.print(
            Text.assemble(("gate  ", "dim"), (plain(gate_line(gate)), "red" if gate.ok is False else "")),
            soft_wrap=True,
        )
    if spent.iterations > 1:
        console.print(iterations_table(pilot.iterations(run.run_id), expand=console.is_terminal))
    ending(console, run, pilot, applied=False)
    if note := activity_note(pilot, run.run_id):
        console.print(Text(note, "magenta"), soft_wrap=True)
    if run.uncommitted is not None:
        failure(console, run.uncommitted)


def _notified(row: NotificationRow) -> str:
    ended = f"of its end at {when(row.at)}: {plain(row.state)}"
    if row.settled_at is not None:
        return f"{ended} at {when(row.settled_at)} ({plain(row.settled_by or '')})"
    again = f", next from {when(row.not_before)}" if row.not_before is not None else ""
    return f"{ended} after {counted(row.tries, 'attempt')}{again}" if row.tries else ended


def iterations_table(figures: Sequence[IterationFigures], *, expand: bool) -> RenderableType:
    """What each iteration cost and achieved; number 0 leads to the first."""
    table = Table(
        title="iterations", title_justify="left", title_style="dim", show_edge=False, pad_edge=False, expand=expand
    )
    for name in ("", "seconds", "turns", "tokens", "files", "pass", "fail"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("what went wrong", overflow="ellipsis", no_wrap=True, ratio=1)
    for one in figures:
        numbers = (one.number, f"{one.duration_sec:.1f}", one.turns, one.tokens, len(one.files))
        tests = ("" if count is None else str(count) for count in (one.tests_passed, one.tests_failed))
        table.add_row(*map(str, numbers), *tests, escape(plain(one.errors[-1] if one.errors else "")))
    return table


def when(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _verdict(run: Run) -> Text:
    """What the change is worth, and why not more."""
    reason = plain(run.proof.reason) if run.proof else ""
    if run.verdict == "confirmed":
        return Text.assemble(("verdict  ", "dim"), ("confirmed", "bold green"), f" ({run.confidence:.2f}): {reason}")
    worth = f" ({run.confidence:.2f}): {reason}. Read the change before you trust it."
    return Text.assemble(("verdict  ", "dim"), ("plausible", "bold magenta"), worth)


def _regression_test(run: Run) -> Text | None:
    """The test that came with the change, or why none did."""
    found = run.proof.regression_test if run.proof else None
    if found is None:
        return None
    if found.written:
        return Text.assemble(
            ("test     ", "dim"), (plain(found.test), "green"), " was added: it fails without the change"
        )
    return Text.assemble(("test     ", "dim"), f"no regression test was added: {plain(found.reason)}")


def _commit(made: CommitRecorded) -> Text:
    """The branch, and what is there."""
    return Text.assemble(("branch   ", "dim"), (made.branch, "green"), f" at {made.commit[:12]} in {made.checkout}")


_DIFF = {"+++": "bold", "---": "bold", "diff": "bold", "@@": "blue", "+": "green", "-": "red"}
"""Styles by how a line begins; the first that fits."""


def coloured(patch: bytes) -> Text:
    """A diff for a screen, in colours that are readable on light and dark terminals."""
    lines = printable(patch).split("\n")
    text = Text()
    for number, line in enumerate(lines):
        style = next((style for start, style in _DIFF.items() if line.startswith(start)), "")
        text.append(line + ("\n" if number < len(lines) - 1 else ""), style)
    return text


def printable(patch: bytes) -> str:
    """A diff for reading: without blob ids, and with control characters shown, not sent to the terminal."""
    lines = patch.decode("utf-8", "backslashreplace").replace("\r\n", "\n").split("\n")
    return plain_lines("\n".join(line for line in lines if not line.startswith("index "))).rstrip("\n")
