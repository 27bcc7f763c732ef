"""A step's way through the store: begun, added to, ended. In company: what the threads of a process have to write at
the same time is one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from sqlalchemy import Connection

from codepilot.core.events import Event, EventDraft, StepQueued
from codepilot.core.failures import CodePilotError
from codepilot.core.run import Run
from codepilot.store.convoy import Convoy
from codepilot.store.database import Database
from codepilot.store.faults import is_conflict, is_stale
from codepilot.store.log import Log, started
from codepilot.store.queue import Queue, claim_params
from codepilot.store.rows import Claim, ClaimedStep, LostLease, Unreadable
from codepilot.store.statements import SELECT_HELD, SELECT_RUN_LOCKED
from codepilot.store.tries import Tried, twice

_MOST_PASSED_OVER = 100
"""Whoever takes a step may be told to stop meanwhile: after so many unreadable runs it is let go, to look again."""

_LAST = "~"
"""Whoever takes a step goes last in a convoy, behind all ids of runs: it takes what nobody has locked. Where it might
wait, for its turn to count what is at work or for a step that it may have taken before, it goes alone."""

Answer = TypeVar("Answer")

_log = logging.getLogger(__name__)


class Progress:
    def __init__(self, database: Database, log: Log, queue: Queue) -> None:
        self._database = database
        self._log = log
        self._queue = queue
        self._convoy = Convoy(database)
        self._shared = database.shared

    def create(
        self, run_id: str, drafts: Sequence[EventDraft], worker: str | None
    ) -> tuple[list[Event], ClaimedStep | None]:
        """See `Store.create_run`."""
        try:
            return self._create(run_id, drafts, worker, new=True)
        except CodePilotError as error:
            if not is_conflict(error):
                raise
            return self._create(run_id, drafts, worker, new=False)

    def control(
        self, run_id: str, decide: Callable[[Run], Sequence[EventDraft]], worker: str | None
    ) -> tuple[list[Event], ClaimedStep | None]:
        """See `Store.control`."""

        def write(tried: Tried) -> tuple[list[Event], ClaimedStep | None]:
            with self._database.write(durable=True, rings=True) as connection:
                run = self._log.locked(connection, run_id)
                added = self._log.committed(connection, tried)
                if added is None:
                    added = self._log.record(connection, run, decide(run), tried)[0]
                return added, self._take(connection, tried, worker, run_id) if worker else None

        return twice(self._database, write)

    def start(self, worker: str, run_id: str | None) -> ClaimedStep | None:
        """See `Store.claim_next`."""
        most_running = self._queue.limit.most_running() if run_id is None else None

        def take(connection: Connection, tried: Tried) -> ClaimedStep | None:
            return self._take(connection, tried, worker, run_id, most_running)

        def go(tried: Tried) -> ClaimedStep | None:
            if most_running is None and tried.begun is None:
                return self._convoy.go(_LAST, lambda connection: take(connection, tried), durable=self._shared)
            with self._database.write(durable=self._shared) as connection:
                return take(connection, tried)

        return self._readable(go, run_id)

    def append(self, claim: Claim, drafts: Sequence[EventDraft], known: Run | None) -> list[Event]:
        """See `Store.append`."""

        def work(connection: Connection, tried: Tried, trusting: bool) -> list[Event]:
            if known is not None and trusting:
                self._log.expect(connection, claim, known)
                return self._log.extend(connection, claim.run_id, known.last_seq, drafts, tried)
            held = SELECT_HELD.row(connection, claim_params(claim))
            if (added := self._log.committed(connection, tried)) is not None:
                return added
            if held is None:
                raise LostLease(claim)
            return self._log.extend(connection, claim.run_id, held[0], drafts, tried)

        return twice(self._database, lambda tried: self._together(claim, work, tried, durable=self._shared))

    def end(
        self, claim: Claim, decide: Callable[[Run], Sequence[EventDraft]], known: Run | None, go_on: bool
    ) -> tuple[list[Event], ClaimedStep | None]:
        """What the end of the claim's step brings and, with `go_on`, the start of the run's next one."""

        def work(connection: Connection, tried: Tried, trusting: bool) -> tuple[list[Event], ClaimedStep | None]:
            if known is not None and trusting:
                self._log.expect(connection, claim, known)
                return self._follow(connection, claim, decide(known), known, go_on, tried)
            run = self._log.held(connection, claim, known)
            if (added := self._log.committed(connection, tried)) is not None:
                if (begun := tried.begun) is None:
                    return added, None
                kept = SELECT_HELD.row(connection, claim_params(begun.claim))
                return added[:-1], begun if kept else None
            if run is None:
                raise LostLease(claim)
            return self._follow(connection, claim, decide(run), run, go_on, tried)

        return twice(self._database, lambda tried: self._together(claim, work, tried, rings=not go_on))

    def _create(
        self, run_id: str, drafts: Sequence[EventDraft], worker: str | None, *, new: bool
    ) -> tuple[list[Event], ClaimedStep | None]:
        """One that is believed to be `new` is not looked for first."""
        heir = _following(run_id, worker, drafts) if worker else None

        def write(tried: Tried) -> tuple[list[Event], ClaimedStep | None]:
            with self._database.write(durable=True, rings=heir is None) as connection:
                existing = [] if new and not tried.placed else self._log.whole(connection, run_id)
                if (begun := tried.begun) is not None and existing and self._is_ours(connection, begun):
                    return self._log.whole(connection, run_id)[:-1], begun
                if existing:
                    return existing, None
                if heir is None:
                    return self._log.create(connection, run_id, drafts, tried)[0], None
                added, run = self._log.create(connection, run_id, [*drafts, started(heir)], tried, heir)
                tried.begun = ClaimedStep(heir, added[-1:], run)
                return added[:-1], tried.begun

        return twice(self._database, write)

    def _take(
        self, connection: Connection, tried: Tried, worker: str, run_id: str | None, most_running: int | None = None
    ) -> ClaimedStep | None:
        """Begin the next step there is, unless an earlier try has."""
        if (begun := tried.begun) is not None and self._is_ours(connection, begun):
            return begun
        tried.begun = None
        taken = self._queue.take(connection, worker, run_id, most_running)
        if taken is None:
            return None
        tried.begun = self._log.start(connection, *taken)
        return tried.begun

    def _readable(self, go: Callable[[Tried], Answer], run_id: str | None) -> Answer | None:
        """What comes of it; a run that cannot be read keeps nobody from the others."""
        for _ in range(_MOST_PASSED_OVER):
            try:
                return twice(self._database, go)
            except Unreadable as error:
                if run_id is not None:
                    raise
                self._queue.quarantine(error.run_id)
                _log.error("passed over: %s", error, extra={"run_id": error.run_id})
        return None

    def _is_ours(self, connection: Connection, begun: ClaimedStep) -> bool:
        """Whether that start was committed and still holds. Once it has come to nothing, another thread of the same
        worker may be given the very same claim: only the event tells whose it is.
        """
        SELECT_RUN_LOCKED.row(connection, {"in_run": begun.claim.run_id})  # its commit may still be under way
        held = SELECT_HELD.row(connection, claim_params(begun.claim))
        return held is not None and self._log.committed(connection, Tried(begun.events)) is not None

    def _together(
        self,
        claim: Claim,
        work: Callable[[Connection, Tried, bool], Answer],
        tried: Tried,
        *,
        durable: bool = True,
        rings: bool = False,
    ) -> Answer:
        """What `work` makes of the claim's run, beside what others have to write.

        On a server it may trust what it knows of the run at first: the transaction comes to nothing if that is stale.
        """
        stale = False

        def mine(connection: Connection) -> Answer:
            return work(connection, tried, self._shared and not tried.placed and not stale)

        try:
            return self._convoy.go(claim.run_id, mine, durable=durable, rings=rings)
        except CodePilotError as error:
            if not is_stale(error):
                raise
            stale = True
            return self._convoy.go(claim.run_id, mine, durable=durable, rings=rings)

    def _follow(
        self,
        connection: Connection,
        claim: Claim,
        drafts: Sequence[EventDraft],
        run: Run,
        go_on: bool,
        tried: Tried,
    ) -> tuple[list[Event], ClaimedStep | None]:
        """Record what the end of the claim's step brings, and the start of the next one if it goes on."""
        heir = _following(claim.run_id, claim.worker, drafts) if go_on else None
        tried.begun = None
        if heir is None:
            return self._log.record(connection, run, drafts, tried, claim)[0], None
        added, run = self._log.record(connection, run, [*drafts, started(heir)], tried, claim, heir)
        tried.begun = ClaimedStep(heir, added[-1:], run)
        return added[:-1], tried.begun


def _following(run_id: str, worker: str, drafts: Sequence[EventDraft]) -> Claim | None:
    """The worker's claim on the step that these events queue last."""
    queued = drafts[-1] if drafts else None
    if queued is None or not isinstance(queued.data, StepQueued) or queued.step_id is None:
        return None
    return Claim(run_id, queued.step_id, queued.attempt, 1, worker, queued.data.state)
