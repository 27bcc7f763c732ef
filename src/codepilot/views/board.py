"""The board: runs as cards, in columns by what each of them needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Literal

from codepilot.core.events import State
from codepilot.core.landing import Landed, LandingQueued
from codepilot.core.run import Run
from codepilot.core.spending import budget_of
from codepilot.core.task import TaskKind
from codepilot.store import Activity
from codepilot.views.run import outcome_of
from codepilot.views.steps import Tone

Need = Literal["you", "review", "working", "done", "failed"]

COLUMNS: Mapping[Need, tuple[str, str]] = {
    "you": ("Waiting for you", "Nothing waits for an answer."),
    "review": ("Ready to review", "No change waits for your review."),
    "working": ("Working", "Nothing is at work."),
    "done": ("Done", "Nothing was applied or judged yet."),
    "failed": ("Failed", "Nothing failed."),
}
"""The heading of each column, and what an empty one says."""

SILENT_SEC = 60.0
"""After so long without an event, a card says when the last one was."""


@dataclass(frozen=True)
class Card:
    """One run, as a list shows it."""

    run_id: str
    title: str
    repo: str
    kind: str
    agent: str
    tone: Tone
    word: str
    need: Need
    note: str
    seconds: float
    """Time worked."""
    at: int
    """The last event, in microseconds UTC."""
    change: str = ""
    share: int | None = None
    """How much of its iterations a run at work has used, in thousandths."""


@dataclass(frozen=True)
class Column:
    need: Need
    title: str
    empty: str
    cards: tuple[Card, ...]
    more: int
    """Cards that are not shown."""
    partial: bool = False
    """True if there may be more runs than were looked at."""

    @property
    def count(self) -> str:
        return f"{len(self.cards) + self.more}{'+' if self.partial else ''}"


def board(cards: Iterable[Card], most: int = 20, partial: frozenset[Need] = frozenset()) -> tuple[Column, ...]:
    """The columns in order, each with its newest cards. `partial` are those of which not every run is among them."""
    columns: dict[Need, list[Card]] = {need: [] for need in COLUMNS}
    for card in cards:
        columns[card.need].append(card)
    return tuple(
        Column(need, *COLUMNS[need], tuple(found[:most]), max(0, len(found) - most), need in partial)
        for need, found in columns.items()
    )


def card_of(run: Run, activity: Activity | None, now: int) -> Card:
    """The card of a run; `now` is the time in microseconds UTC."""
    tone, word = _standing(run, activity)
    title = run.task.goal.natural.strip().partition("\n")[0].strip()
    working = need_of(run) == "working"
    return Card(
        run_id=run.run_id,
        title=title if len(title) <= 120 else title[:119].rstrip() + "…",
        repo=short_repo(run.task.repo),
        kind=str(run.task.kind),
        agent="" if run.task.kind is TaskKind.PROVE else run.task.agent,
        tone=tone,
        word=word,
        need=need_of(run),
        note=_note(run, activity, now),
        seconds=run.spent.wall_us / 1e6,
        at=run.updated_at,
        change=counted_change(run),
        share=round(1000 * min(1.0, run.spent.iterations / budget_of(run).iterations))
        if working and run.task.kind is not TaskKind.PROVE
        else None,
    )


def need_of(run: Run) -> Need:
    """What a run needs next."""
    match run.state:
        case State.PAUSED:
            return "you"
        case State.BLOCKED:
            return "you" if waits_for_person(run) else "working"
        case State.DONE:
            taken = run.applied or run.committed or isinstance(run.landing, Landed | LandingQueued)
            return "review" if run.verdict is not None and not taken else "done"
        case State.FAILED | State.ABORTED:
            return "failed"
        case _:
            return "working"


def waits_for_person(run: Run) -> bool:
    """True if a blocked run continues only after somebody did something; an unanswered request expires by itself."""
    return run.waiting_for is not None and run.waiting_for.kind in ("approval", "person")


def _standing(run: Run, activity: Activity | None) -> tuple[Tone, str]:
    outcome = outcome_of(run)
    if run.state is State.BLOCKED:
        waiting = run.waiting_for
        if waiting is not None and waiting.kind == "approval":
            asked = next((one.request for one in run.approvals if one.request.approval_id == waiting.approval_id), None)
            return "wait", f"approve {asked.operation}" if asked else "approve"
        if run.parked_until is not None:
            return "warn", f"parked until {datetime.fromtimestamp(run.parked_until / 1e6, tz=UTC):%H:%M} UTC"
        return "wait", "needs you"
    if run.verdict is not None:
        return outcome.tone, f"{run.verdict} {run.confidence:.2f}"
    if run.terminal or run.state is State.PAUSED:
        return outcome.tone, outcome.word.lower()
    if activity is Activity.QUEUED:
        return "soft", "queued"
    if activity is Activity.INTERRUPTED:
        return "bad", "interrupted"
    state = run.state.value.lower().replace("_", " ")
    limit = budget_of(run).iterations
    return "live", f"{state} {run.spent.iterations}/{limit}" if run.spent.iterations else state


def _note(run: Run, activity: Activity | None, now: int) -> str:
    if need_of(run) == "failed" or run.state is State.BLOCKED:
        return run.failure.message if run.failure else ""
    if run.applied is not None:
        return "applied to the checkout"
    if isinstance(run.landing, Landed):
        return f"landed on {run.landing.branch}"
    if isinstance(run.landing, LandingQueued):
        return f"waits to land on {run.landing.branch}"
    if run.committed is not None:
        return f"committed to {run.committed.branch}"
    if activity is Activity.INTERRUPTED:
        return "its worker is gone, and no other one is running"
    if need_of(run) != "working":
        return ""
    silent = (now - run.updated_at) / 1e6
    if activity is Activity.WORKING and silent > SILENT_SEC:
        return f"last event {silent / 60:.0f} min ago"
    if run.test_result is not None and not run.test_result.passed:
        red = len(dict.fromkeys((*run.test_result.failed_tests_after, *run.test_result.regressions)))
        return f"{run.test_result.summary.passed} pass, {red} fail"
    return ""


def counted_change(run: Run) -> str:
    """The size of the proposed change."""
    if run.proposal is None or not run.proposal.patch.touched_files:
        return ""
    files = len(run.proposal.patch.touched_files)
    lines = f", {run.review.patch_loc} lines" if run.review is not None else ""
    return f"{files} file{'' if files == 1 else 's'}{lines}"


def short_repo(repo: str) -> str:
    """The last two parts of a path or URL; the service's own directory for what a task makes has no name."""
    parts = PurePosixPath(repo.rstrip("/").removesuffix(".git")).parts
    return "" if parts[-3:-2] == ("builds",) else "/".join(parts[-2:])
