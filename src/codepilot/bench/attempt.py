"""One bug through the engine as `codepilot fix` would take it, or through the search alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from codepilot.agents import RepairAgent
from codepilot.bench.bugs import Bug, Repair
from codepilot.bench.memory import PeakMemory
from codepilot.bench.workspace import open_workspace
from codepilot.core.events import Event, SearchProgressed, State, StepQueued, TurnStarted
from codepilot.core.run import Run
from codepilot.engine import Request, Runtime, Settings, Worker, begin, make_task, patch_of
from codepilot.repair import Ages, Progress, SearchRequest, search
from codepilot.skills import PatchError, patch_tree
from codepilot.verify import run_baseline
from codepilot.workspace import line_ages

AROUND_SEC = 300.0
"""The time for baseline, gates, review and proof, in addition to the search."""
OFFERS = 5


@dataclass
class Attempt:
    """The engine's result for a bug."""

    status: str = "FAILED"
    verdict: str | None = None
    confidence: float = 0.0
    reason: str = ""
    offers: list[Repair] = field(default_factory=list)
    tried: int = 0
    trying_sec: float = 0.0
    search_sec: float = 0.0
    first_plausible_sec: float | None = None
    total_sec: float = 0.0
    peak_mib: float = 0.0
    template: str = ""
    features: dict[str, float] = field(default_factory=dict)
    proof: str = ""


@dataclass
class Limits:
    """How a bug is to be tried."""

    seconds: float
    python: str | None = None
    command_sec: float = 15.0


def attempt(bug: Bug, checkout: Path, home: Path, how: Limits) -> Attempt:
    """Repair the checkout in a home of its own; nothing of it is written back."""
    settings = Settings.load(flags={"home": home})
    wall = 2 * how.seconds + AROUND_SEC
    request = Request(
        repo=str(checkout),
        tests=bug.tests,
        python=how.python or sys.executable,
        notify=False,
        budget={"step_wall_sec": wall, "wall_sec": wall, "command_sec": how.command_sec},
    )
    watch = _EventClock()
    begun = time.monotonic()
    with PeakMemory() as memory, Runtime.open(settings) as runtime:
        task = make_task(request, settings)
        policy = task.policy.model_copy(update={"regression_test": False})  # repairs are judged, and timed, alone
        asked = begin(runtime, task.model_copy(update={"policy": policy}))
        worker = Worker(runtime, watch.see, lambda task: RepairAgent(seconds=watch.left(how.seconds)), begun=asked)
        run = worker.drive(asked.run.run_id)
        found = watch.attempt
        found.status, found.total_sec = str(run.state), round(time.monotonic() - begun, 3)
        found.reason = run.failure.message if run.failure else ""
        if run.state is State.DONE:
            found.verdict, found.confidence = str(run.verdict), run.confidence
            found.proof = run.proof.reason if run.proof else ""
            found.offers = _offers(runtime, run, bug, checkout, watch.alternatives)
    found.peak_mib = memory.peak_mib
    return found


class _EventClock:
    """Times the search by its events."""

    def __init__(self) -> None:
        self.attempt = Attempt()
        self.alternatives: tuple[str, ...] = ()
        self._begun: float | None = None
        self._spent = 0.0
        self._reported = (0, 0.0)
        """The candidates and seconds that the search reported last; a resumed search counts on, a new one from zero."""

    def left(self, seconds: float) -> float:
        """The rest of the search's time, for another search after a rejected repair."""
        return max(1.0, seconds - self._spent)

    def see(self, event: Event) -> None:
        now, data, found = time.monotonic(), event.data, self.attempt
        match data:
            case StepQueued(state=State.IMPLEMENT):
                self._begun = now
            case SearchProgressed() if self._begun is not None:
                before = self._reported if data.tried >= self._reported[0] else (0, 0.0)
                self._reported = (data.tried, data.tried / data.per_sec if data.per_sec else 0.0)
                found.tried += self._reported[0] - before[0]
                found.trying_sec = round(found.trying_sec + self._reported[1] - before[1], 3)
                found.search_sec = round(self._spent + now - self._begun, 3)
                if data.plausible and found.first_plausible_sec is None:
                    found.first_plausible_sec = found.search_sec
            case TurnStarted() if self._begun is not None:
                self._spent = found.search_sec = round(self._spent + now - self._begun, 3)
                self._begun = None
                if found.first_plausible_sec is None:
                    found.first_plausible_sec = found.search_sec
                candidate = data.action.get("candidate")
                others = candidate.get("alternatives") if isinstance(candidate, dict) else None
                self.alternatives = tuple(map(str, others)) if isinstance(others, list) else ()
                found.template = str(data.action.get("template", ""))
                features = data.action.get("features")
                found.features = {
                    name: float(str(feature))
                    for name, feature in (features if isinstance(features, dict) else {}).items()
                }
            case _:
                pass


def _offers(runtime: Runtime, run: Run, bug: Bug, checkout: Path, alternatives: tuple[str, ...]) -> list[Repair]:
    """The run's change first, then those it would have made instead."""
    diffs = [patch_of(runtime, run).decode("utf-8", "replace"), *alternatives][:OFFERS]
    return [Repair(files, diff) for diff in diffs if (files := _applied(diff, checkout))]


def _applied(diff: str, checkout: Path) -> Mapping[str, str]:
    def read(path: str) -> str | None:
        file = checkout / path
        return file.read_bytes().decode("utf-8") if file.is_file() else None

    try:
        changed = patch_tree(diff, read).files
    except (PatchError, UnicodeDecodeError):
        return {}
    return {path: text for path, text in changed.items() if text is not None}


# --- the search alone ------------------------------------------------------------------------------------------------


def search_alone(bug: Bug, checkout: Path, home: Path, how: Limits) -> Attempt:
    """The search's offers for the checkout, in the sandbox that a run would use."""
    begun = time.monotonic()
    with PeakMemory() as memory, closing(open_workspace(checkout, home, how.python)) as place:
        baseline = run_baseline(
            place.executor, place.workspace, place.project, bug.tests, how.command_sec, narrowed=bug.alone
        )
        watch = _FirstRepair()
        result = search(
            SearchRequest(
                executor=place.executor,
                workspace=place.workspace,
                project=place.project,
                targets=baseline.targets,
                baseline=baseline.suite,
                seconds=how.seconds,
                on_progress=watch.see,
                ages=history(bug, checkout),
            )
        )
    found = Attempt(
        status="DONE" if result.candidates else "FAILED",
        reason=result.reason,
        tried=result.tried,
        trying_sec=round(result.trying_sec, 3),
        search_sec=round(result.seconds, 3),
        first_plausible_sec=watch.first_sec,
        total_sec=round(time.monotonic() - begun, 3),
        peak_mib=memory.peak_mib,
    )
    for candidate in result.candidates[:OFFERS]:
        found.offers.append(Repair({candidate.path: candidate.patched.decode("utf-8", "replace")}, candidate.diff))
    if result.candidates:
        found.confidence, found.template = result.candidates[0].confidence, result.candidates[0].template
        found.features = dict(result.candidates[0].features)
        found.first_plausible_sec = found.first_plausible_sec or found.search_sec
    return found


def history(bug: Bug, checkout: Path) -> Callable[[tuple[str, ...]], Ages]:
    """The bug's history as a user has it: up to the fix's parent, without the fix."""
    if bug.origin is None:
        return partial(line_ages, checkout, "HEAD")
    return partial(line_ages, bug.origin.repository, bug.origin.parent)


class _FirstRepair:
    def __init__(self) -> None:
        self.first_sec: float | None = None
        self._begun = time.monotonic()

    def see(self, progress: Progress) -> None:
        if progress.plausible and self.first_sec is None:
            self.first_sec = round(time.monotonic() - self._begun, 3)
