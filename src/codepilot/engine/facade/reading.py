"""The part of the façade that a service reads runs with: pages of a list, steps, artifacts, what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError
from codepilot.engine.facade.base import FacadeBase
from codepilot.store import ArtifactMissing

if TYPE_CHECKING:
    from codepilot.core.artifacts import ArtifactRef
    from codepilot.core.memory import MemoryKind
    from codepilot.core.run import Run
    from codepilot.store import MemoryRow, RunChange, RunFilter, RunRow, StepRow
    from codepilot.telemetry import Analytics, Costs, Feedback


class Reading(FacadeBase):
    def page(self, wanted: RunFilter, limit: int = 50) -> list[RunRow]:
        """The newest runs that the filter lets through."""
        return self._runtime.store.listing.page(wanted, limit)

    def changes(self, run_ids: Sequence[str] = (), since: int | None = None) -> list[RunChange]:
        """How far the logs of these runs have come; with `since`, those of every run that changed since that time."""
        return self._runtime.store.listing.changes(run_ids, since)

    def views(self, run_ids: Sequence[str]) -> dict[str, Run]:
        """The runs by their ids, for lists; one that is damaged or of a newer version is left out."""
        return self._runtime.views.of(run_ids)

    def steps(self, run_id: str = "last") -> list[StepRow]:
        """The steps of a run, oldest first."""
        return self._runtime.store.steps(self.find(run_id))

    def steps_at_work(self) -> list[StepRow]:
        """The steps that workers hold now, of all runs."""
        return self._runtime.store.listing.steps_at_work()

    def analytics(self, newest: int = 200) -> Analytics:
        """What the newest runs achieved, took and cost."""
        from codepilot.store import RunFilter
        from codepilot.telemetry import analyse

        listing = self._runtime.store.listing
        runs = self.views([row.run_id for row in listing.page(RunFilter(), newest)])
        tallies = [self._runtime.views.tally(run) for run in runs.values()]
        memory = (sum(one.asked for one in tallies), sum(one.found for one in tallies))
        calls: dict[str, Counter[str]] = {}
        for (tool, status), number in (call for one in tallies for call in one.calls.items()):
            calls.setdefault(tool, Counter())[status] += number
        return analyse(list(runs.values()), listing.retries(list(runs)), memory, calls)

    def costs(self, run_id: str = "last") -> Costs:
        """What a run and the runs that work on parts of its plan used, with what those at work have used so far."""
        from codepilot.telemetry import costs

        store, found = self._runtime.store, self.find(run_id)
        return costs(store.load(found), [store.load(child) for child in sorted(store.families.children_of(found))])

    def memory(
        self, kind: MemoryKind, *, repo: str | None = None, language: str | None = None, limit: int = 50
    ) -> list[MemoryRow]:
        """What runs recorded for later ones to learn from, the newest first."""
        return self._runtime.store.memories(kind, repo=repo, language=language, limit=limit)

    def feedback(self, run_id: str = "last") -> Feedback:
        """The outcome of a run in short: what changed, what failed, and the events that tell it."""
        from codepilot.telemetry import feedback

        found, store = self.find(run_id), self._runtime.store
        return feedback(store.load(found), store.events(found), self.settings.redact)

    def pack_program(self, run_id: str, into: IO[bytes]) -> None:
        """Write the files of the program or module that a run made as a zip archive."""
        from codepilot.engine.change.apply import pack_program

        pack_program(self._runtime, self._runtime.store.load(self.find(run_id)), into)

    def timeline(self, run_id: str = "last") -> JsonObject:
        """The timeline of a run: how long each step took and how it ended, without secrets."""
        from codepilot.telemetry import timeline

        found = self.find(run_id)
        store = self._runtime.store
        return timeline(store.load(found), store.events(found), self.settings.redact)

    def artifact(self, ref: ArtifactRef) -> Iterator[bytes]:
        """The bytes of an artifact in pieces; an error before the first one if they are gone."""
        artifacts = self._runtime.artifacts
        if not artifacts.has(ref):
            raise ArtifactMissing(ref, artifacts.place)
        return artifacts.stream(ref)

    def queue_depth(self) -> int:
        """How many steps wait for a worker."""
        return self._runtime.store.queue.depth()

    def healthy(self) -> bool:
        """True if the store answers."""
        try:
            self._runtime.store.credentials.now()
        except CodePilotError:
            return False
        return not self._runtime.store.replaced
