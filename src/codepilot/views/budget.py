"""What a run has used of its budget, and what happens next. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from codepilot.core.events import State
from codepilot.core.pipeline import pipeline_for
from codepilot.core.run import Run
from codepilot.core.spending import budget_of
from codepilot.store import Activity
from codepilot.telemetry import Costs
from codepilot.views.text import duration, money

WARNED_FROM = 0.8


@dataclass(frozen=True)
class BudgetBar:
    """One limit: how much is used, in words and in thousandths."""

    name: str
    used: str
    limit: str
    share: int

    @property
    def tone(self) -> str:
        return "warn" if self.share >= WARNED_FROM * 1000 else "live"


def budget_bars(run: Run, tree: Costs | None = None) -> tuple[BudgetBar, ...]:
    """Iterations, time, tokens and money; with `tree`, tokens and money of the parts at work too."""
    spent, budget = run.spent, budget_of(run)
    wall = spent.wall_us / 1e6
    used = tree or spent
    return (
        _bar("Iterations", spent.iterations, budget.iterations, str),
        _bar("Time", wall, budget.wall_sec, duration),
        _bar("Tokens", used.tokens, budget.tokens, _short),
        _bar("Cost", used.cost_usd, budget.cost_usd, money, unknown=used.known_cost_usd is None),
    )


def _bar(name: str, used: float, limit: float, write: object, *, unknown: bool = False) -> BudgetBar:
    assert callable(write)
    share = round(1000 * min(1.0, used / limit)) if limit else 0
    return BudgetBar(name, "unknown" if unknown else write(used), write(limit), share)


def _short(number: float) -> str:
    if number >= 1e6:
        return f"{number / 1e6:.3g} M"
    return f"{number / 1e3:.3g} k" if number >= 1e4 else f"{number:.0f}"


_NEXT = {
    State.INIT: "The repository is copied and its tests are run before anything is changed.",
    State.MAP_REPO: "The agent maps the repository.",
    State.PLAN: "The agent plans the change.",
    State.IMPLEMENT: "The agent works on the change; then the platform runs the tests.",
    State.TEST: "The platform runs the gates. If one is red, the agent looks for the cause.",
    State.REFLECT: "The agent looks for the cause of the failure; then it tries again.",
    State.REVIEW: "The change is reviewed; then it is proved on a clean copy.",
    State.FINALIZE: "The change is proved on a clean copy and the bundle is written.",
}

_WAITING = {
    "approval": "The run continues with your answer. Without one the request is denied, and another way is sought.",
    "person": "The run waits until somebody resumes it.",
    "children": "The run continues when its parts, which are runs of their own, have ended.",
    "quota": "The run continues by itself when the provider's quota is there again.",
    "lock": "The run continues by itself when the run that holds the lock gives it back.",
    "artifact_store": "The run continues by itself when the artifact store answers again.",
}


def next_for(run: Run, activity: Activity | None) -> str:
    """What happens next, in a sentence."""
    if run.terminal:
        return ""
    if run.cancel_requested:
        return "The run is being cancelled."
    if run.pause_requested:
        return "The run pauses at its next safe point."
    if run.state is State.PAUSED:
        return "Nothing happens until somebody resumes the run."
    if run.state is State.BLOCKED:
        return _WAITING[run.waiting_for.kind] if run.waiting_for else ""
    if activity is Activity.QUEUED:
        return "A worker takes the run as soon as one is free."
    if activity is Activity.INTERRUPTED:
        return "No worker is running. Start one with `codepilot worker`; nothing is lost."
    following = pipeline_for(run.task).after(run.state)
    done = "" if following is not State.DONE else " Then the run is done."
    return _NEXT.get(run.state, "") + done
