"""The store: append events, project them and queue the next step, all in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Connection, exists, func, select

from codepilot.core.events import TERMINAL, Event, EventDraft, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.memory import Memory, MemoryKind
from codepilot.core.run import Run
from codepilot.store.database import Database
from codepilot.store.fsck import broken, check_run, rebuild_run, some_runs
from codepilot.store.log import Log
from codepilot.store.meta import store_id
from codepilot.store.outbox import Outbox
from codepilot.store.queue import LEASE, Lease, Queue
from codepilot.store.rows import (
    ApprovalRow,
    ArtifactRow,
    Claim,
    ClaimedStep,
    MemoryRow,
    RunRow,
    StepRow,
    Unreadable,
    Written,
    no_run,
    read_artifact_row,
    read_event,
    read_run_row,
    read_step_row,
)
from codepilot.store.schema import approvals, artifacts, events, memories, runs, steps
from codepilot.store.wakeup import Wakeup
from codepilot.telemetry import Figures, figures, now_us
from codepilot.telemetry.figures import BREAKS, COUNTED

NEWEST_MEMORIES = 200
MEMORY_TIMEOUT_SEC = 5.0
_RUNS_AT_ONCE = 200
_DUE_AT_ONCE = 20

_memory: TypeAdapter[Memory] = TypeAdapter(Memory)


class Store:
    """Runs, steps and events of one database. Safe to use from any thread."""

    def __init__(self, database: Database, clock: Callable[[], int], lease: Lease) -> None:
        self._database = database
        self._log = Log(database, clock)
        self._liveness = database.liveness()
        self.queue = Queue(database, self._liveness, self._log, clock, lease)
        self.outbox = Outbox(database, self._log, clock)

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
        """Whether workers on other machines may work on its runs."""
        return self._database.shared

    @property
    def place(self) -> str:
        """The file or the server, as messages name it."""
        return self._database.place

    @property
    def replaced(self) -> bool:
        """Whether its file was removed, or another was put in its place, since it was opened."""
        return self._database.replaced

    @cached_property
    def store_id(self) -> str:
        """The store's own id, the same however it is reached."""
        return store_id(self._database)

    def wakeup(self) -> Wakeup:
        """What a thread waits on for steps; each waiting thread has its own, and closes it."""
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

    def register_worker(self, worker: str) -> None:
        """Show that `worker` lives, until `release_worker`, `close` or the end of this process."""
        self.queue.register(worker)

    def release_worker(self, worker: str) -> None:
        """The worker is done; steps it still holds may be reclaimed."""
        self.queue.release(worker)

    def beat(self, worker: str) -> None:
        self.queue.beat(worker)

    def worker_alive(self, worker: str) -> bool:
        return self.queue.alive(worker)

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
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"{prefix!r} names several runs: {', '.join(found[:5])}{', …' if len(found) > 5 else ''}.",
                next_action="Give more characters of the id; `codepilot history` lists them.",
            )
        return found[0]

    def history(self, limit: int = 50) -> list[RunRow]:
        """The newest runs first."""
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
        newest = select(*wanted).order_by(runs.c.created_at.desc(), runs.c.run_id.desc()).limit(limit)
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
        """What the run's events name, in their order."""
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
        kind: MemoryKind,
        *,
        repo: str | None = None,
        language: str | None = None,
        limit: int = NEWEST_MEMORIES,
        timeout_sec: float = MEMORY_TIMEOUT_SEC,
    ) -> list[MemoryRow]:
        """What runs recorded for others to learn from, the newest first. A run can do without it, so a server that
        takes longer than the timeout is not waited for.
        """
        wanted = select(memories).where(memories.c.kind == kind)
        if repo is not None:
            wanted = wanted.where(memories.c.repo == repo)
        if language is not None:
            wanted = wanted.where(memories.c.language == language)
        newest = wanted.order_by(memories.c.at.desc(), memories.c.run_id.desc(), memories.c.seq.desc()).limit(limit)

        def ask(connection: Connection) -> list[MemoryRow]:
            if self.shared:
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {max(1, round(timeout_sec * 1000))}")
            return [found for row in connection.execute(newest).all() for found in _read_memory(row._mapping)]

        return self._database.reading(ask)

    def iterations(self, run_id: str) -> Figures:
        """What each iteration of the run used and achieved, and their totals."""
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
        """What is wrong with each run whose rows differ from its log."""
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
    newest = select(runs.c.run_id).order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
    if wanted == "last":
        return list(connection.scalars(newest.limit(1)))
    full = wanted if wanted.startswith("r-") else f"r-{wanted}"
    if connection.scalar(select(exists().where(runs.c.run_id == full))):
        return [full]
    return list(connection.scalars(newest.where(runs.c.run_id.startswith(full, autoescape=True)).limit(6)))


def _read_memory(row: Mapping[Any, Any]) -> Iterator[MemoryRow]:
    """Nothing for one that is damaged or another version's: nobody could use it."""
    with suppress(ValueError):
        memory = _memory.validate_json(row["memory"])
        yield MemoryRow(row["run_id"], row["seq"], row["at"], row["repo"], row["language"], memory)
