"""The part of the façade that looks after a home and its store: workers, limits, checks and removal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from codepilot.core.task import TaskSpec
from codepilot.engine.facade.base import FacadeBase

if TYPE_CHECKING:
    from codepilot.engine.close import Collected
    from codepilot.engine.environment.inspection import Inspection
    from codepilot.engine.removal import Expired, RemovedRun
    from codepilot.store import LockRow, Pruned, WorkerRow


@dataclass(frozen=True)
class Removed:
    """What `gc` removed, or would remove."""

    workspaces: Collected
    artifacts: Pruned | None
    """None if artifacts were not asked for."""
    expired: Expired
    """What `[retention]` no longer keeps."""


class Upkeep(FacadeBase):
    def workers(self) -> list[WorkerRow]:
        """The workers that live, those of commands that work on one run included."""
        return self._runtime.store.activities.workers()

    def locks(self) -> list[LockRow]:
        """The contract locks that runs hold."""
        return self._runtime.store.locks.rows()

    def most_running(self) -> int | None:
        """How many steps may run at a time in the whole store; None means any number."""
        return self._runtime.store.queue.limit.most_running()

    def set_most_running(self, most: int | None) -> None:
        """Set that limit for all workers of the store."""
        self._runtime.store.queue.limit.set(most)

    def gc(self, days: float = 7.0, artifact_days: float | None = None, *, dry_run: bool = False) -> Removed:
        """Remove workspaces that nothing has used for `days`, with `artifact_days` the artifacts that no run of the
        last so many days names, and the runs and bundles that `[retention]` no longer keeps.
        """
        from codepilot.engine.close import collect, prune
        from codepilot.engine.removal import expire

        kept = self.settings.retention
        expired = expire(self._runtime, kept.bundles_days, kept.history_days, rehearse=dry_run)
        pruned = None
        if artifact_days is not None:
            pruned = prune(self._runtime, timedelta(days=artifact_days), rehearse=dry_run)
        return Removed(collect(self._runtime, days, rehearse=dry_run), pruned, expired)

    def remove(self, run_id: str, *, force: bool = False) -> RemovedRun:
        """Remove a run: its rows, workspace, bundle and log, and the artifacts that no other run names.

        A run at work is refused, or with `force` cancelled first.
        """
        from codepilot.engine.removal import remove_run

        return remove_run(self._runtime, run_id, force=force)

    def inspect(
        self,
        task: TaskSpec,
        *,
        tests_sec: float | None = 60.0,
        on_progress: Callable[[str], None] = lambda stage: None,
    ) -> Inspection:
        """Look at a task's project as a run would; its tests run for at most `tests_sec`, for None not at all."""
        from codepilot.engine.environment.inspection import inspect_project

        return inspect_project(self._runtime, task, tests_sec, on_progress)

    def fsck(self, *, repair: bool = False) -> tuple[dict[str, str], dict[str, str]]:
        """What is wrong with the stored runs, by id, and what of it is left after `repair`."""
        problems = self._runtime.store.check_all()
        return problems, self._runtime.store.repair(problems) if repair else problems

    def check(self, run_id: str = "last") -> None:
        """Compare what is stored of a run with its events; a difference is an error."""
        self._runtime.store.check(self.find(run_id))
