"""One bug through the search alone: baseline, search, offers. No gates and no proof, so no verdict; quicker."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from codepilot.bench.attempt import OFFERS, Attempt, Budgeted
from codepilot.bench.bugs import Bug, Offer
from codepilot.bench.memory import PeakMemory
from codepilot.bench.place import open_place
from codepilot.repair import Ages, Progress, SearchRequest, search
from codepilot.verify import run_baseline
from codepilot.workspace import line_ages


def search_alone(bug: Bug, checkout: Path, home: Path, how: Budgeted) -> Attempt:
    """What the search offers for the checkout, in the sandbox that a run would use."""
    begun = time.monotonic()
    with PeakMemory() as memory, closing(open_place(checkout, home, how.python)) as place:
        baseline = run_baseline(
            place.executor, place.workspace, place.project, bug.tests, how.command_sec, narrowed=bug.alone
        )
        watch = _Watch()
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
        found.offers.append(Offer({candidate.path: candidate.patched.decode("utf-8", "replace")}, candidate.diff))
    if result.candidates:
        found.confidence, found.template = result.candidates[0].confidence, result.candidates[0].template
        found.features = dict(result.candidates[0].features)
        found.first_plausible_sec = found.first_plausible_sec or found.search_sec
    return found


def history(bug: Bug, checkout: Path) -> Callable[[tuple[str, ...]], Ages]:
    """What a user would know of the bug's past: the history up to the fix's parent, and nothing of the fix."""
    if bug.origin is None:
        return partial(line_ages, checkout, "HEAD")
    return partial(line_ages, bug.origin.repository, bug.origin.parent)


class _Watch:
    def __init__(self) -> None:
        self.first_sec: float | None = None
        self._begun = time.monotonic()

    def see(self, progress: Progress) -> None:
        if progress.plausible and self.first_sec is None:
            self.first_sec = round(time.monotonic() - self._begun, 3)
