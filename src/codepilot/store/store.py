"""The store: append events, project them and queue the next step, all in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path

from sqlalchemy import Connection, exists, func, select

from codepilot.core.events import TERMINAL, Event, EventDraft, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import MemoryKind
from codepilot.core.run import Run
from codepilot.store.activity import Activities
from codepilot.store.credentials import Credentials
from codepilot.store.database import Database
from codepilot.store.families import Families
from codepilot.store.fsck import broken, check_run, rebuild_run, some_runs
from codepilot.store.listing import Listing
from codepilot.store.locks import LockTable
from codepilot.store.log import Log
from codepilot.store.memories import NEWEST_MEMORIES, TIMEOUT_SEC, Memories
from codepilot.store.meta import store_id
from codepilot.store.outbox import Outbox
from codepilot.store.queue import LEASE, Lease, Queue
from codepilot.store.removal import remove_run, was_removed
from codepilot.store.rows import (
    ApprovalRow,
    ArtifactRow,
    Claim,
    ClaimedStep,
    MemoryRow,
    RunRow,
    SeveralRuns,
    StepRow,
    Unreadable,
    Written,
    no_run,
    read_artifact_row,
    read_event,
    read_run_row,
    read_step_row,
)
from codepilot.store.schema import approvals, artifacts, events, runs, steps
from codepilot.store.wakeup import Wakeup
from codepilot.telemetry import Figures, figures, now_us
from codepilot.telemetry.figures import BREAKS, COUNTED

_RUNS_AT_ONCE = 200
_DUE_AT_ONCE = 20


class Store:
    """Runs, steps and events of one database. Safe to use from any thread."""

    def __init__(self, database: Database, clock: Callable[[], int], lease: Lease) -> None:
        self._database = database
        self._log = Log(database, clock)
        self._liveness = database.liveness()
        self.queue = Queue(database, self._liveness, self._log, clock, lease)
        self.outbox = Outbox(database, self._log, clock)
        self.activities = Activities(database, self._liveness, clock)
        self.credentials = Credentials(database, clock)
        self.listing = Listing(database)
        self.memory = Memories(database, clock, shared=database.shared)
        self.families = Families(database)
        self.locks = LockTable(database, clock)

    @classmethod
    def open(
        cls,
        url_or_path: str | Path,
        *,
        clock: Callable[[], int] = now_us,
        locks: Path | None = None,
        lease: Lease = LEASE,
    ) -> Store:
        """Open the store, migrating it if need be. `locks` is where workers on SQLite show that they live."""
        return cls(Database.open(url_or_path, locks), clock, lease)

    def close(self) -> None:
        """Let go of the database; workers registered here count as gone."""
        self._liveness.close()
        self._database.close()

    @property
    def shared(self) -> bool:
        """True if workers on other machines may work on its runs."""
        return self._database.shared

    @property
    def place(self) -> str:
        """The file or the server, as messages name it."""
        return self._database.place

    @property
    def replaced(self) -> bool:
        """True if its file was removed, or another was put in its place, since it was opened."""
        return self._database.replaced

    @cached_property
    def store_id(self) -> str:
        """The store's own id, the same however it is reached."""
        return store_id(self._database)

    def wakeup(self) -> Wakeup:
        """A new wakeup for a thread that waits for steps; each thread has its own and closes it."""
        return self._database.wakeup()

    # writing ----------------------------------------------------------------------------------------

    def create_run(self, run_id: str, drafts: Sequence[EventDraft], claim_for: str | None = None) -> Written:
        """Begin a run with its first events; a second call with the same id returns those that exist.

        With `claim_for`, the step that the events queue is begun by that worker in the same transaction, unless the
        run exists already: no other worker can claim it first.
        """
        if claim_for is not None:
            self.queue.require(claim_for)
        return self._log.create(run_id, drafts, claim_for)

    def append(self, claim: Claim, drafts: Sequence[EventDraft]) -> list[Event]:
        """Add events of a claimed step. They survive a killed process, and a power cut from the next commit on.

        On a server they are durable at once: it may die while its workers go on.
        """
        return self._log.append(claim, drafts)

    def commit(self, claim: Claim, decide: Callable[[Run], Sequence[EventDraft]], claim_next: bool = False) -> Written:
        """Add what `decide` makes of the run, if the claim still holds. `decide` must not use the store.

        With `claim_next`, the step that these events queue is begun by the same worker in the same transaction.
        """
        return self._log.commit(claim, decide, claim_next)

    def control(
        self, run_id: str, decide: Callable[[Run], Sequence[EventDraft]], claim_for: str | None = None
    ) -> Written:
        """Add what `decide` makes of the run from outside a step: requests to pause, cancel or resume.

        With `claim_for`, the run's pending step, if there is one, is begun by that worker in the same transaction.
        """
        if claim_for is None:
            return self._log.control(run_id, decide)
        self.queue.require(claim_for)
        return self._log.control(run_id, decide, lambda db: self.queue.claim(db, claim_for, run_id))

    def remove_run(self, run_id: str) -> list[str]:
        """Delete every row of the run; the hashes of the artifacts that no other run names. See `removal`."""
        self.reclaim(run_id, wait=True)
        clock = self._log.clock
        return self._database.writing(lambda db: remove_run(db, run_id, clock), notify=False)

    def now(self) -> int:
        """Microseconds by the clock that all users of the store share."""
        return self._database.reading(lambda db: self._database.now(db, self._log.clock))

    def was_removed(self, run_id: str) -> bool:
        return self._database.reading(lambda db: was_removed(db, run_id))

    # scheduling -------------------------------------------------------------------------------------

    def claim_next(self, worker: str, run_id: str | None = None) -> ClaimedStep | None:
        """Begin the oldest pending step of the highest priority, if there is one in a run that is active.

        The store's limit of running steps applies, unless the run is named: somebody waits for that one.
        """
        self.queue.require(worker)
        return self.queue.claim_next(worker, run_id)

    def reclaim(self, run_id: str | None = None, *, wait: bool = False) -> list[str]:
        """Return the steps of dead workers to PENDING with a higher fence; the ids of those steps."""
        return self.queue.reclaim(run_id, wait=wait)

    def give_back(self, claim: Claim) -> None:
        """Let another worker have the step at once."""
        self.queue.give_back(claim)

    def register_worker(self, worker: str, takes_queued: bool = False) -> None:
        """Show that `worker` lives, until `release_worker`, `close` or the end of this process."""
        self.queue.register(worker, takes_queued)

    def release_worker(self, worker: str) -> None:
        """The worker is done; steps it still holds may be reclaimed."""
        self.queue.release(worker)

    def beat(self, worker: str) -> None:
        self.queue.beat(worker)

    # reading ----------------------------------------------------------------------------------------

    def load(self, run_id: str) -> Run:
        """The run as its whole log says, from the stored view and the few events after it."""
        return self._database.reading(lambda connection: self._log.current(connection, run_id))

    def find(self, prefix: str) -> str:
        """The id of the run that `prefix` names alone (`r-` may be left out); `last` is the newest."""
        wanted = prefix.strip().lower()
        found = self._database.reading(lambda connection: _named(connection, wanted))
        if not found or not wanted:
            raise no_run(prefix)
        if len(found) > 1:
            raise SeveralRuns(prefix, found)
        return found[0]

    def history(self, limit: int = 50) -> list[RunRow]:
        """The newest runs first, without child runs."""
        wanted = (
            runs.c.run_id,
            runs.c.state,
            runs.c.verdict,
            runs.c.goal,
            runs.c.repo,
            runs.c.created_at,
            runs.c.updated_at,
            runs.c.failure_kind,
        )
        newest = select(*wanted).where(runs.c.parent_run_id.is_(None))
        newest = newest.order_by(runs.c.created_at.desc(), runs.c.run_id.desc()).limit(limit)
        return [read_run_row(row) for row in self._database.reading(lambda db: db.execute(newest).all())]

    def events(self, run_id: str, after: int = 0, step_id: str | None = None, limit: int | None = None) -> list[Event]:
        """The run's events in order, those after `after`; only one step's if `step_id` is given."""
        wanted = select(events).where(events.c.run_id == run_id, events.c.seq > after).order_by(events.c.seq)
        if step_id is not None:
            queued = select(func.min(steps.c.queued_seq)).where(steps.c.run_id == run_id, steps.c.step_id == step_id)
            wanted = wanted.where(events.c.step_id == step_id, events.c.seq >= queued.scalar_subquery())
        return [read_event(row) for row in self._database.reading(lambda db: db.execute(wanted.limit(limit)).all())]

    def steps(self, run_id: str) -> list[StepRow]:
        """The run's steps, oldest first."""
        wanted = select(steps).where(steps.c.run_id == run_id).order_by(steps.c.queued_seq)
        return [read_step_row(row) for row in self._database.reading(lambda db: db.execute(wanted).all())]

    def due(self, now: int) -> list[str]:
        """Some of the runs that were parked until a time that has come, but for quarantined ones."""
        wanted = (
            select(runs.c.run_id)
            .where(runs.c.parked_until.is_not(None), runs.c.parked_until <= now)
            .where(runs.c.run_id.not_in(self.queue.quarantined()))
            .order_by(runs.c.parked_until)
            .limit(_DUE_AT_ONCE)
        )
        return self._database.reading(lambda db: list(db.scalars(wanted)))

    def named_artifacts(self, hashes: Sequence[str], since: int) -> set[str]:
        """Those of `hashes` that are named by a run that goes on, or that something happened to after `since`."""
        needing = runs.c.state.not_in([state.value for state in TERMINAL]) | (runs.c.updated_at > since)
        named = select(artifacts.c.sha256).distinct().join(runs, runs.c.run_id == artifacts.c.run_id)
        wanted = named.where(artifacts.c.sha256.in_(hashes), needing)
        return self._database.reading(lambda db: set(db.scalars(wanted)))

    def not_understood(self) -> dict[str, str]:
        """Runs of which this version does not know how they stand, and why: a later one may have written them."""
        known = [state.value for state in State]
        wanted = select(runs.c.run_id, runs.c.state).where(runs.c.state.not_in(known)).order_by(runs.c.run_id)
        found = self._database.reading(lambda db: db.execute(wanted).all())
        why = {row.run_id: ValueError(f"{row.state!r} is no state known here") for row in found}
        return {run_id: str(Unreadable(run_id, "its state", unknown)) for run_id, unknown in why.items()}

    def artifacts(self, run_id: str) -> list[ArtifactRow]:
        """The artifacts that the run's events name, in their order."""
        named = artifacts.join(events, (events.c.run_id == artifacts.c.run_id) & (events.c.seq == artifacts.c.seq))
        step = (steps.c.run_id == events.c.run_id) & (steps.c.step_id == events.c.step_id)
        wanted = (
            select(artifacts, events.c.type.label("event"), events.c.step_id, steps.c.state)
            .select_from(named.outerjoin(steps, step & (steps.c.attempt == events.c.attempt)))
            .where(artifacts.c.run_id == run_id)
            .order_by(artifacts.c.seq, artifacts.c.type, artifacts.c.sha256)
        )
        return [read_artifact_row(row) for row in self._database.reading(lambda db: db.execute(wanted).all())]

    def approvals(self, run_id: str | None = None, *, waiting: bool = False) -> list[ApprovalRow]:
        """What people were asked, oldest first; of one run, or only what waits for an answer."""
        wanted = select(approvals).order_by(approvals.c.requested_at, approvals.c.run_id, approvals.c.seq)
        if run_id is not None:
            wanted = wanted.where(approvals.c.run_id == run_id)
        if waiting:
            wanted = wanted.where(approvals.c.decision.is_(None))
        rows = self._database.reading(lambda db: db.execute(wanted).all())
        return [ApprovalRow(**row._mapping) for row in rows]

    def memories(
        self,
        kind: MemoryKind | None = None,
        *,
        repo: str | None = None,
        language: str | None = None,
        text: str = "",
        limit: int = NEWEST_MEMORIES,
        timeout_sec: float = TIMEOUT_SEC,
    ) -> list[MemoryRow]:
        """What runs and people recorded for others to learn from; see `Memories.rows`."""
        return self.memory.rows(kind, repo=repo, language=language, text=text, limit=limit, timeout_sec=timeout_sec)

    def iterations(self, run_id: str) -> Figures:
        """The figures of each iteration of the run, and their totals."""
        broke = events.alias()
        before_break = select(broke.c.seq - 1).where(broke.c.run_id == run_id, broke.c.type.in_(sorted(BREAKS)))
        last = select(runs.c.last_seq).where(runs.c.run_id == run_id).scalar_subquery()
        counted = events.c.type.in_(sorted(COUNTED)) | (events.c.seq == last) | events.c.seq.in_(before_break)
        wanted = select(events).where(events.c.run_id == run_id, counted).order_by(events.c.seq)
        found = figures(map(read_event, self._database.reading(lambda db: db.execute(wanted).all())))
        if found is None:
            raise no_run(run_id)
        return found

    # proving ----------------------------------------------------------------------------------------

    def check(self, run_id: str) -> None:
        """Prove that the log is gapless and that every stored row is what the log says, or raise INTERNAL."""

        def prove(connection: Connection) -> None:
            check_run(connection, run_id, lambda: self._log.current(connection, run_id))

        with _damaged(run_id):
            self._database.reading(prove)

    def check_all(self) -> dict[str, str]:
        """The differences between rows and log, for each run that has any."""
        return self._problems(self._every_run(), self.check)

    def repair(self, run_ids: Iterable[str]) -> dict[str, str]:
        """Write the rows of these runs anew; what is still wrong with runs whose log itself is damaged."""

        def anew(run_id: str) -> None:
            if self.rebuild(run_id):
                self.check(run_id)

        return self._problems(run_ids, anew)

    def rebuild(self, run_id: str) -> bool:
        """Write every row of the run anew from its log; whether there is such a run."""

        with _damaged(run_id):
            return self._database.writing(lambda db: rebuild_run(db, run_id))

    def _problems(self, run_ids: Iterable[str], look: Callable[[str], None]) -> dict[str, str]:
        problems: dict[str, str] = {}
        for run_id in run_ids:
            try:
                look(run_id)
            except CodePilotError as error:
                if error.kind is FailureKind.STORE_UNAVAILABLE:
                    raise
                problems[run_id] = str(error)
        return problems

    def _every_run(self) -> Iterator[str]:
        page = [""]
        while page := self._database.reading(partial(some_runs, after=page[-1], limit=_RUNS_AT_ONCE)):
            yield from page


@contextmanager
def _damaged(run_id: str) -> Iterator[None]:
    """A database file keeps anything anywhere: an error nobody foresaw is reported of that run alone."""
    try:
        yield
    except (ValueError, TypeError, LookupError) as error:
        raise broken(run_id, f"{type(error).__name__}: {error}") from error


def _named(connection: Connection, wanted: str) -> list[str]:
    """The runs that `wanted` may mean, a few of them."""
    own = runs.c.parent_run_id.is_(None)
    newest = select(runs.c.run_id).where(own).order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
    if wanted == "last":
        return list(connection.scalars(newest.limit(1)))
    full = wanted if wanted.startswith("r-") else f"r-{wanted}"
    if connection.scalar(select(exists().where(runs.c.run_id == full))):
        return [full]
    return list(connection.scalars(newest.where(runs.c.run_id.startswith(full, autoescape=True)).limit(6)))
