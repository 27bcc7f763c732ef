"""The part of the façade for what comes after a run: review by hunk, and landing on a branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from codepilot.engine.facade.upkeep import Upkeep

if TYPE_CHECKING:
    from codepilot.core.landing import Landed, LandingEntry, LandingRefused
    from codepilot.core.review import HunkChoice
    from codepilot.engine.change.landing_queue import LandingWorker
    from codepilot.engine.change.review import Reasons, Reviewed, Wanted
    from codepilot.workspace import ChangedFile


class Afterwards(Upkeep):
    def changed_files(self, run_id: str = "last") -> tuple[ChangedFile, ...]:
        """The change of an ended run as files and hunks."""
        from codepilot.engine.change.review import change_of

        return change_of(self._runtime, self.find(run_id))

    def document(self, run_id: str, name: str) -> bytes:
        """A document of a run by its name: the answer, or the plan, commands or diff of a dry run."""
        from codepilot.engine.report import document_of

        return document_of(self._runtime, self.find(run_id), name)

    def review(
        self,
        run_id: str = "last",
        *,
        accept: Sequence[Wanted] = (),
        reject: Sequence[Wanted] = (),
        reason: Reasons = "",
        rest: HunkChoice | None = None,
        again: bool = False,
        by: str = "user",
    ) -> Reviewed:
        """Take a part of a run's change, named by `FILE` or `FILE:HUNK`, and begin the run that judges what remains.

        What is not named is decided the other way, or left out with both lists, or as `rest` says. `again` also begins
        a run that works on the rejected parts. Give the begun runs to `work`.
        """
        from codepilot.engine.change.review import Choices, review_run

        choices = Choices(tuple(accept), tuple(reject), reason, rest, again, by)
        return review_run(self._runtime, self.find(run_id), choices)

    def land(
        self,
        run_ids: Sequence[str],
        onto: str,
        *,
        accept_plausible: bool = False,
        jobs: int = 2,
        by: str = "user",
        on_progress: Callable[[str], None] = lambda message: None,
        on_outcome: Callable[[str, Landed | LandingRefused], None] = lambda run_id, outcome: None,
    ) -> dict[str, Landed | LandingRefused]:
        """Add the changes of these runs to a branch, one commit each, after each merged tree has been judged.

        What does not hold on top of the branch and of the others is refused; the rest lands. No checkout is touched.
        """
        from codepilot.engine.change.landing import Landing, land

        asked = Landing(onto, accept_plausible, jobs, by, on_progress, on_outcome)
        return land(self._runtime, [self.find(run_id) for run_id in run_ids], asked)

    def landings(self) -> list[LandingEntry]:
        """The changes that wait for a branch in their order, then those that landed or were refused, newest first."""
        from codepilot.engine.change.landing_queue import landings

        return landings(self._runtime)

    def queue_landing(
        self, run_ids: Sequence[str], onto: str, *, accept_plausible: bool = False, by: str = "user"
    ) -> list[LandingEntry]:
        """Let the changes of these runs wait for a branch; a `landing_worker` carries it out."""
        from codepilot.engine.change.landing import Landing
        from codepilot.engine.change.landing_queue import queue_landing

        asked = Landing(onto, accept_plausible, by=by)
        return queue_landing(self._runtime, [self.find(run_id) for run_id in run_ids], asked)

    def landing_worker(self) -> LandingWorker:
        """Works off the landing queue of this machine's checkouts, between `with` and its end."""
        from codepilot.engine.change.landing_queue import LandingWorker

        return LandingWorker(self._runtime)
