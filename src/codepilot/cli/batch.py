"""`codepilot batch`: run the prompts of a tasks file, and show the results."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from codepilot.cli import output
from codepilot.cli.options import WORK, JsonFlag
from codepilot.cli.output import console, plain, say
from codepilot.core.text import counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from codepilot.batch import Batch, BatchTask, Driven, Progress
    from codepilot.engine import CodePilot
    from codepilot.models import Model

_BATCH = "Examples: codepilot batch tasks.json --jobs 4 · codepilot spec batch > tasks.json"
_STYLES = {"completed": "green", "pending": "dim", "retryable": "yellow"}
_FOR_A_PERSON = frozenset({"failed_auth", "failed_quota", "failed_permission_blocked"})
_SHORT_ID = 24
"""So much of a task's name is shown on a narrow terminal."""
_ECHO = 3
"""Columns that stay free: a terminal's `^C` in a full line would begin another one, and leave a part of the table."""
_ROWS = 30
"""How many tasks the live table shows; the others are counted."""

FileArg = Annotated[Path, typer.Argument(metavar="TASKS", help="The tasks file, JSON (`codepilot spec batch`).")]
JobsOption = Annotated[int, typer.Option("--jobs", "-j", min=1, max=64, metavar="N", help="Tasks at a time.")]
OnlyOption = Annotated[list[str] | None, typer.Option(metavar="ID", help="Only this task; may be repeated.")]
ProfileOption = Annotated[str | None, typer.Option(metavar="NAME", help="The profile for every task.")]


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=WORK, epilog=_BATCH)(batch)


def batch(
    tasks: FileArg,
    jobs: JobsOption = 1,
    agent: ProfileOption = None,
    only: OnlyOption = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Work on the directories themselves instead of copies.")
    ] = False,
    wait_for_quota: Annotated[
        bool, typer.Option("--wait-for-quota", help="Wait for the reset of a quota that is used up.")
    ] = False,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="Serve run_agent, get_task and update_task over MCP on standard input.")
    ] = False,
    driver: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Let this model choose what to run, with the same tools.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Run a list of prompts through coding agents."""
    from codepilot.batch import Batch, BatchTools, Options, TasksFile, drive
    from codepilot.engine import CodePilot, Settings

    if mcp and (driver or as_json):
        from codepilot.core.failures import CodePilotError, FailureKind

        raise CodePilotError(
            FailureKind.INVALID_SPEC,
            f"--mcp and {'--driver' if driver else '--json'} exclude each other.",
            next_action="Leave one of them out.",
        )
    options = Options(jobs, frozenset(only or ()), agent, in_place, wait_for_quota)
    driven: Driven | None = None
    with ExitStack() as opened:
        file = opened.enter_context(TasksFile.open(tasks))
        pilot = opened.enter_context(CodePilot(Settings.load()))
        view = _view(file.tasks(), quiet=as_json or output.quiet())
        running = Batch(pilot, file, options, view.show, view.message)
        tools = BatchTools(running, file, jobs)
        if mcp:
            from codepilot.mcp import serve_batch

            serve_batch(running, tools)
            return
        model = None if driver is None else _model(pilot, driver)
        with view, _signals(running, view):
            if model is None:
                ended = running.run()
            else:
                driven = drive(model, running, tools, jobs)
                ended = running.chosen()
        if as_json:
            output.print_json(json.dumps(_document(ended, driven), ensure_ascii=False))
        else:
            _summary(console(), ended, driven, pilot)
    raise typer.Exit(_code(ended, running.platform_failed, stopped=running.stopped))


def _model(pilot: CodePilot, name: str) -> Model:
    from codepilot.models import make_model

    settings = pilot.settings
    return make_model(pilot.model_named(name) or name, environ=settings.environ, settings=settings.models)


def _code(ended: Sequence[BatchTask], platform_failed: Collection[str], *, stopped: bool) -> int:
    """0 if all completed; 130 if it was stopped before that; else the worst of 4, 3 and 1."""
    left = [task for task in ended if task.status != "completed"]
    if not left:
        return 0
    if stopped:
        return 130
    if any(task.task_id in platform_failed for task in left):
        return 4
    return 3 if any(task.status in _FOR_A_PERSON for task in left) else 1


def _document(ended: Sequence[BatchTask], driven: Driven | None) -> dict[str, object]:
    counts = Counter(task.status for task in ended)
    listed = [
        {"task_id": task.task_id, "status": task.status, "attempts": task.attempts, "result": task.result}
        for task in ended
    ]
    document = {"schema_version": 1, "counts": dict(sorted(counts.items())), "tasks": listed}
    if driven is None:
        return document
    used = {"turns": driven.turns, "tokens": driven.usage.tokens, "cost_usd": round(driven.usage.cost_usd, 6)}
    return {**document, "driver": {**used, "message": driven.message}}


def _summary(screen: Console, ended: Sequence[BatchTask], driven: Driven | None, pilot: CodePilot) -> None:
    """What became of the tasks, by class, and where to read on."""
    if driven is not None:
        spent = f"{counted(driven.turns, 'turn')}, {driven.usage.tokens} tokens, ${driven.usage.cost_usd:.4f}"
        screen.print(Text(plain(f"driver: {spent}. {driven.message}"), style="dim"), soft_wrap=True)
    if not ended:
        screen.print("There is nothing to do: the file has no task that is enabled.")
    counts = Counter(task.status for task in ended)
    for status, count in sorted(counts.items(), key=lambda pair: (pair[0] != "completed", pair[0])):
        screen.print(Text(f"{count:>5}  {status}", style=_STYLES.get(status, "red")))
    for task in [one for one in ended if one.status.startswith("failed")][:_ROWS]:
        result = task.result or {}
        why, log = str(result.get("message", "")), str(result.get("log_file", ""))
        screen.print(Text(plain(f"{task.task_id}: {task.status}. {why}"), style="red"), soft_wrap=True)
        screen.print(Text(plain(f"    {log}"), style="dim"), soft_wrap=True)
    if any(one.status.startswith("failed") for one in ended):
        screen.print(Text('To try a failed task again, set its status to "pending".', style="dim"), soft_wrap=True)
    patches = [one for one in ended if one.status == "completed" and (one.result or {}).get("patch")]
    if patches:
        example = plain(_applying(patches[0].result or {}, pilot))
        screen.print(Text(f"{counted(len(patches), 'change')} as a patch, for example: {example}"), soft_wrap=True)


def _applying(result: Mapping[str, object], pilot: CodePilot) -> str:
    """The command that applies a change to the checkout that it was made for."""
    from codepilot.core.failures import CodePilotError

    patch = Path(str(result["patch"]))
    try:
        root = pilot.run(str(result.get("run_id", ""))).task.repo
    except CodePilotError:  # the run was removed
        return f"git apply {shlex.quote(str(patch))}"
    if Path(root) == Path.cwd():
        return f"git apply {shlex.quote(str(patch))}"
    return shlex.join(["git", "-C", root, "apply", str(patch.resolve())])


# While it runs ---------------------------------------------------------------------------------------


def _view(tasks: Sequence[BatchTask], *, quiet: bool) -> _View:
    if quiet:
        return _View()
    return _TableView(tasks, console(err=True)) if sys.stderr.isatty() else _LineView()


class _View:
    """Shows nothing."""

    def __enter__(self) -> _View:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, progress: Progress) -> None:
        return None

    def message(self, text: str) -> None:
        say(text, err=True)


class _LineView(_View):
    """For pipes: a line for what begins and ends, and one every few seconds."""

    def __init__(self) -> None:
        self._now: dict[str, Progress] = {}
        from codepilot.cli.live import Heartbeat

        self._beat = Heartbeat(self._line, lambda text: say(text, err=True))

    def __enter__(self) -> _View:
        self._beat.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._beat.__exit__(*error)

    def show(self, progress: Progress) -> None:
        before = self._now.get(progress.task_id)
        if progress.doing == "ended":
            self._now.pop(progress.task_id, None)
        else:
            self._now[progress.task_id] = progress
        if before is None or before.doing != progress.doing or progress.doing == "ended":
            self._beat.write(plain(f"{progress.task_id}  {_described(progress)}"))
        elif progress.keys != before.keys:
            self._beat.write(plain(f"{progress.task_id}  answered a prompt ({progress.keys})"))

    def message(self, text: str) -> None:
        self._beat.write(text)

    def _line(self) -> str:
        working = [one for one in list(self._now.values()) if one.doing in ("working", "judging")]
        return plain("; ".join(f"{one.task_id} {_elapsed(one)} {one.last_line}".strip() for one in working))


class _TableView(_View):
    """For terminals: a table of tasks with status, time, last line and keys sent."""

    def __init__(self, tasks: Sequence[BatchTask], screen: Console) -> None:
        self._screen = screen
        self._lock = threading.Lock()
        self._rows: dict[str, Progress | None] = {task.task_id: None for task in tasks if task.enabled}
        self._status = {task.task_id: str(task.status) for task in tasks}
        self._took: dict[str, str] = {}
        self._note = "Ctrl+C finishes the running attempts; twice ends them."
        from rich.live import Live

        self._live = Live(get_renderable=self._table, console=screen, refresh_per_second=4)

    def __enter__(self) -> _View:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def show(self, progress: Progress) -> None:
        with self._lock:
            self._rows[progress.task_id] = progress
            if progress.doing == "ended":
                self._status[progress.task_id] = progress.status
                self._took[progress.task_id] = _elapsed(progress)

    def message(self, text: str) -> None:
        self._note = text

    def _table(self) -> RenderableType:
        from rich.table import Table

        with self._lock:
            rows, status, took = dict(self._rows), dict(self._status), dict(self._took)
        counts = Counter(status.get(one, "") for one in rows)
        caption = f"{_counted(counts)} · {self._note}"
        width = self._screen.width - _ECHO
        table = Table(box=None, pad_edge=False, width=width, caption=plain(caption), caption_justify="left")
        for name in ("task", "status", "time", "keys", "last line"):
            table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=4 if name == "last line" else None)
        order = sorted(rows, key=lambda one: _rank(rows[one]))
        for task_id in order[:_ROWS]:
            shown = _short(task_id, max(_SHORT_ID, self._screen.width // 4))
            table.add_row(*_cells(shown, rows[task_id], status.get(task_id, ""), took.get(task_id, "")))
        if len(order) > _ROWS:
            table.add_row(f"and {len(order) - _ROWS} more", "", "", "", "")
        return table


def _short(task_id: str, most: int) -> str:
    """A name without its middle where it is too long: numbered tasks differ at the end."""
    kept = (most - 1) // 2
    return task_id if len(task_id) <= most else f"{task_id[: most - 1 - kept]}…{task_id[-kept:]}"


def _counted(counts: Mapping[str, int]) -> str:
    """So many of each status, those that completed first."""
    order = sorted(counts, key=lambda status: (status != "completed", status))
    return ", ".join(f"{counts[status]} {status}" for status in order)


def _rank(progress: Progress | None) -> int:
    """Those at work first, then those that ended, then those that wait."""
    if progress is None:
        return 2
    return 0 if progress.doing in ("working", "judging", "parked") else 1


def _cells(task_id: str, progress: Progress | None, status: str, took: str) -> list[Text]:
    if progress is None:
        return [Text(plain(task_id)), Text(status, style=_STYLES.get(status, "red")), Text(""), Text(""), Text("")]
    ended = progress.doing == "ended"
    shown = progress.status if ended else progress.doing
    style = _STYLES.get(shown, "red") if ended else "blue"
    last = progress.message if ended or progress.message else progress.last_line
    if progress.doing == "parked":
        last = _described(progress)
    return [
        Text(plain(task_id)),
        Text(shown, style=style),
        Text(took if ended else _elapsed(progress)),
        Text(str(progress.keys) if progress.keys else ""),
        Text(plain(last), style="dim"),
    ]


def _described(progress: Progress) -> str:
    from codepilot.batch import reset_words

    match progress.doing:
        case "working":
            return f"attempt {progress.attempt} by {progress.agent}" + (
                f": {progress.message}" if progress.message else ""
            )
        case "judging":
            return "completed; its change is judged"
        case "parked":
            return reset_words(progress.until)
        case _:
            return f"{progress.status}{f': {progress.message}' if progress.message else ''}"


def _elapsed(progress: Progress) -> str:
    seconds = int(time.monotonic() - progress.since)
    return f"{seconds // 60}:{seconds % 60:02}"


@contextmanager
def _signals(running: Batch, view: _View) -> Iterator[None]:
    """The first Ctrl+C or SIGTERM finishes the running attempts, the second ends them."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        if running.stopped:
            running.abort()
            view.message("Ending the running attempts ...")
        else:
            running.stop()
            view.message("Finishing the running attempts; Ctrl+C again ends them ...")

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
