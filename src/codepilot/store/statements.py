"""The statements that every step and every event runs, built once."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import (
    ColumnElement,
    Text,
    and_,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    update,
)

from codepilot.core.events import TERMINAL, WAITING
from codepilot.store.prepared import Prepared
from codepilot.store.rows import OPEN, StepStatus
from codepilot.store.schema import (
    approvals,
    artifacts,
    events,
    leases,
    locks,
    memories,
    meta,
    notifications,
    runs,
    steps,
    views,
    workspaces,
)
from codepilot.store.wakeup import CHANNEL
from codepilot.telemetry.figures import BREAKS, COUNTED


def _quoted(values: Iterable[str]) -> list[ColumnElement[str]]:
    """Constants of our own as SQL text: with parameters the engines would not see that a partial index fits."""
    return [literal_column(f"'{value}'") for value in sorted(values)]


def status_is(*statuses: StepStatus) -> ColumnElement[bool]:
    if len(statuses) == 1:
        return steps.c.status == _quoted(statuses)[0]
    return steps.c.status.in_(_quoted(statuses))


def _but(run: ColumnElement[str]) -> ColumnElement[bool]:
    """A run that is not among the keys of a JSON object. This is the one form that both engines understand."""
    return run.not_in(text("(SELECT key FROM json_each(:in_but))"))


_this_run = runs.c.run_id == bindparam("in_run")
_this_step = and_(
    steps.c.run_id == bindparam("in_run"),
    steps.c.step_id == bindparam("in_step"),
    steps.c.attempt == bindparam("in_attempt"),
)
_held = and_(
    _this_step,
    status_is(StepStatus.RUNNING),
    steps.c.fence == bindparam("in_fence"),
    steps.c.worker == bindparam("in_worker"),
)

# a transaction on a server ----------------------------------------------------------------------------

SERVER_NOW = Prepared(text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"))
NOT_DURABLE = Prepared(text("SET LOCAL synchronous_commit = off"))
RING = Prepared(text(f"SELECT pg_notify('{CHANNEL}', '')"))
EXCLUDE = Prepared(text(f"SELECT pg_advisory_xact_lock({0x636F6466})"))

# the store ------------------------------------------------------------------------------------------

SELECT_META = Prepared(select(meta.c.value).where(meta.c.key == bindparam("in_key")))
SET_META = Prepared(
    text("INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value")
)
KEEP_META = Prepared(text("INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO NOTHING"))

# a run ----------------------------------------------------------------------------------------------

_select_held = (
    select(runs.c.last_seq)
    .join_from(runs, steps, runs.c.run_id == steps.c.run_id)
    .where(_held)
    .with_for_update(of=[runs, steps])
)
SELECT_HELD = Prepared(_select_held)
"""Last event of the claim's run, nothing if the claim is lost. Locks the run, then the step: never the other way
round, and whoever takes a step back locks only steps, so that nobody waits in a circle."""
SELECT_HELD_RUN = Prepared(
    _select_held.join(views, views.c.run_id == runs.c.run_id).add_columns(views.c.seq, views.c.shape, views.c.view)
)
EXPECT_HELD = Prepared(
    select(literal_column("1") / func.count()).select_from(
        _select_held.where(runs.c.last_seq == bindparam("in_seq")).subquery()
    )
)
"""Divides by zero where the claim is lost or the run has other events: the statements sent after it then come to
nothing, and none of them has to wait for its answer."""

_select_run = (
    select(runs.c.last_seq, views.c.seq, views.c.shape, views.c.view)
    .join_from(runs, views, views.c.run_id == runs.c.run_id)
    .where(_this_run)
)
SELECT_RUN = Prepared(_select_run)
SELECT_RUN_LOCKED = Prepared(_select_run.with_for_update(of=runs))

SELECT_DUE = Prepared(
    select(runs.c.run_id)
    .where(runs.c.parked_until.is_not(None), runs.c.parked_until <= bindparam("in_now"), _but(runs.c.run_id))
    .order_by(runs.c.parked_until)
    .limit(literal_column("20"))
)
SELECT_EVENTS = Prepared(
    select(events)
    .where(events.c.run_id == bindparam("in_run"), events.c.seq > bindparam("in_after"))
    .order_by(events.c.seq)
)
SELECT_SOME_EVENTS = Prepared(
    select(events)
    .where(events.c.run_id == bindparam("in_run"), events.c.seq > bindparam("in_after"))
    .order_by(events.c.seq)
    .limit(bindparam("in_limit"))
)
SELECT_PLACED = Prepared(
    select(events)
    .where(events.c.run_id == bindparam("in_run"), events.c.seq.between(bindparam("in_first"), bindparam("in_last")))
    .order_by(events.c.seq)
)
SELECT_NEWER_THAN_VIEW = Prepared(
    select(events)
    .where(
        events.c.run_id == bindparam("in_run"),
        events.c.seq > select(views.c.seq).where(views.c.run_id == bindparam("in_run")).scalar_subquery(),
    )
    .order_by(events.c.seq)
)
_break = events.alias()
_last = select(runs.c.last_seq).where(_this_run).scalar_subquery()
_before_break = select(_break.c.seq - literal_column("1")).where(
    _break.c.run_id == bindparam("in_run"), _break.c.type.in_(_quoted(BREAKS))
)
SELECT_COUNTED = Prepared(
    select(events)
    .where(
        events.c.run_id == bindparam("in_run"),
        events.c.type.in_(_quoted(COUNTED)) | (events.c.seq == _last) | events.c.seq.in_(_before_break),
    )
    .order_by(events.c.seq)
)
"""What the figures of a run are made of: what turns brought forth is most of a log, and is none of it."""
INSERT_TASK = Prepared(
    text(
        "INSERT INTO tasks (task_id, kind, goal, repo, ref, spec, created_at) "
        "VALUES (:task_id, :kind, :goal, :repo, :ref, :spec, :created_at) ON CONFLICT (task_id) DO NOTHING"
    )
)
INSERT_RUN = Prepared(insert(runs), [column.name for column in runs.columns])
INSERT_VIEW = Prepared(insert(views), [column.name for column in views.columns])
INSERT_WORKSPACE = Prepared(insert(workspaces), ["run_id"])
SET_WORKSPACE = {
    column: Prepared(
        update(workspaces)
        .where(workspaces.c.run_id == bindparam("in_run"))
        .values({column: bindparam("new_value", type_=Text)})
    )
    for column in ("workspace", "base_commit", "snapshot", "held_by")
}
INSERT_APPROVAL = Prepared(insert(approvals), [column.name for column in approvals.columns])
DECIDE_APPROVAL = Prepared(
    update(approvals)
    .where(
        approvals.c.run_id == bindparam("in_run"),
        approvals.c.approval_id == bindparam("in_approval"),
        approvals.c.decision.is_(None),
    )
    .values(
        decision=bindparam("new_decision"),
        decided_by=bindparam("new_decided_by"),
        decided_at=bindparam("new_decided_at"),
    )
)
INSERT_ARTIFACT = Prepared(insert(artifacts), [column.name for column in artifacts.columns])
INSERT_MEMORY = Prepared(insert(memories), [column.name for column in memories.columns])
INSERT_NOTIFICATION = Prepared(insert(notifications), ["run_id", "seq", "at", "state", "settled_at", "settled_by"])
_pending = notifications.c.state == _quoted(["pending"])[0]
_this_notification = and_(
    notifications.c.run_id == bindparam("in_run"), notifications.c.seq == bindparam("in_seq"), _pending
)
_resting = notifications.alias("resting")
_rests = select(_resting.c.run_id).where(
    _resting.c.state == _quoted(["pending"])[0], _resting.c.not_before > bindparam("in_now")
)
SELECT_PENDING_DUE = Prepared(
    select(notifications)
    .where(_pending, notifications.c.run_id.not_in(_rests))
    .order_by(notifications.c.at, notifications.c.run_id, notifications.c.seq)
    .limit(bindparam("in_limit"))
)
SELECT_PENDING = Prepared(select(notifications).where(_this_notification))
_this_attempt = and_(_this_notification, notifications.c.tries == bindparam("in_tries"))
_free = or_(notifications.c.not_before.is_(None), notifications.c.not_before <= bindparam("in_now"))
LEASE_NOTIFICATION = Prepared(
    update(notifications)
    .where(_this_attempt, _free)
    .values(tries=bindparam("new_tries"), not_before=bindparam("new_not_before"))
)
PUT_OFF_NOTIFICATION = Prepared(
    update(notifications).where(_this_attempt).values(not_before=bindparam("new_not_before"))
)
SETTLE_NOTIFICATION = Prepared(
    update(notifications)
    .where(_this_notification)
    .values(
        state=bindparam("new_state"),
        settled_at=bindparam("new_settled_at"),
        settled_by=bindparam("new_settled_by"),
    )
)
INSERT_EVENT = Prepared(insert(events), [column.name for column in events.columns])
LENGTHEN_RUN = Prepared(
    update(runs).where(_this_run).values(last_seq=bindparam("new_last_seq"), updated_at=bindparam("new_updated_at"))
)
UPDATE_RUN = Prepared(
    update(runs).where(_this_run),
    [
        "state",
        "verdict",
        "failure_kind",
        "iterations",
        "pause_requested",
        "cancel_requested",
        "parked_until",
        "updated_at",
        "last_seq",
    ],
)
UPDATE_VIEW = Prepared(update(views).where(views.c.run_id == bindparam("in_run")), ["seq", "shape", "view"])

# its steps ------------------------------------------------------------------------------------------

_goes_on = runs.c.state.not_in(_quoted(TERMINAL | WAITING))
_next_step = (
    select(
        *(steps.c.run_id, steps.c.step_id, steps.c.attempt, steps.c.fence, steps.c.state),
        *(runs.c.last_seq, views.c.seq, views.c.shape, views.c.view),
    )
    .join(runs, runs.c.run_id == steps.c.run_id)
    .join(views, views.c.run_id == steps.c.run_id)
    .where(status_is(StepStatus.PENDING), _goes_on)
    .order_by(steps.c.priority.desc(), steps.c.queued_at, steps.c.step_id)
    .limit(1)
    .with_for_update(of=[steps, runs], skip_locked=True)
)
SELECT_STANDING = Prepared(
    select(
        *(steps.c.run_id, steps.c.step_id, steps.c.attempt, steps.c.fence, steps.c.state),
        *(runs.c.pause_requested, runs.c.cancel_requested),
    )
    .join(runs, runs.c.run_id == steps.c.run_id)
    .where(status_is(StepStatus.RUNNING), steps.c.worker == bindparam("in_worker"))
)
COUNT_RUNNING = Prepared(select(func.count()).select_from(steps).where(status_is(StepStatus.RUNNING)))
_counted = select(func.count()).select_from(steps).join(runs, runs.c.run_id == steps.c.run_id).where(_goes_on)
COUNT_OPEN = Prepared(_counted.where(status_is(*OPEN)))
COUNT_OPEN_BUT = Prepared(_counted.where(status_is(*OPEN), _but(steps.c.run_id)))
COUNT_PENDING = Prepared(_counted.where(status_is(StepStatus.PENDING)))
"""Steps of runs that are paused or blocked wait for a person, not for a worker."""
MOST_URGENT = Prepared(
    select(steps.c.priority)
    .join(runs, runs.c.run_id == steps.c.run_id)
    .where(status_is(StepStatus.PENDING), _goes_on, _but(steps.c.run_id))
    .order_by(steps.c.priority.desc(), steps.c.queued_at)
    .limit(literal_column("1"))
)
NEXT_STEP = Prepared(_next_step)
NEXT_STEP_BUT = Prepared(_next_step.where(_but(steps.c.run_id)))
NEXT_STEP_OF_RUN = Prepared(_next_step.where(steps.c.run_id == bindparam("in_run")))
TAKE_STEP = Prepared(
    update(steps)
    .where(_this_step)
    .values(
        status=_quoted([StepStatus.RUNNING])[0],
        fence=bindparam("new_fence"),
        worker=bindparam("new_worker"),
        claimed_at=bindparam("new_claimed_at"),
    )
)
RETURN_STEP = Prepared(
    update(steps)
    .where(_held)
    .values(
        status=_quoted([StepStatus.PENDING])[0],
        fence=steps.c.fence + 1,
        worker=literal_column("NULL"),
    )
)
QUEUE_STEP = Prepared(
    insert(steps),
    [
        "run_id",
        "step_id",
        "attempt",
        "state",
        "status",
        "priority",
        "fence",
        "worker",
        "queued_seq",
        "queued_at",
        "claimed_at",
    ],
)
END_STEP = Prepared(
    update(steps)
    .where(_this_step, status_is(*OPEN))
    .values(status=bindparam("new_status"), ended_at=bindparam("new_ended_at"))
)
REOPEN_STEP = Prepared(
    update(steps)
    .where(_this_step, status_is(*OPEN, StepStatus.FAILED))
    .values(
        status=_quoted([StepStatus.PENDING])[0],
        fence=steps.c.fence + 1,
        worker=literal_column("NULL"),
        ended_at=literal_column("NULL"),
    )
)
CLOSE_STEPS = Prepared(
    update(steps)
    .where(steps.c.run_id == bindparam("in_run"), status_is(*OPEN))
    .values(status=_quoted([StepStatus.CANCELLED])[0], ended_at=bindparam("new_ended_at"))
)

# workers ----------------------------------------------------------------------------------------------

SELECT_LEASE = Prepared(select(leases.c.beat_at).where(leases.c.worker == bindparam("in_worker")))
BEAT = Prepared(
    text(
        "INSERT INTO leases (worker, host, pid, started_at, beat_at, stale_us) "
        "VALUES (:worker, :host, :pid, :now, :now, :stale_us) "
        "ON CONFLICT (worker) DO UPDATE SET beat_at = excluded.beat_at, stale_us = excluded.stale_us"
    )
)
GRANT_LEASE = Prepared(
    text(
        "INSERT INTO leases (worker, host, pid, started_at, beat_at, stale_us) "
        "VALUES (:worker, '', 0, :now, :now, :stale_us) "
        "ON CONFLICT (worker) DO NOTHING"
    )
)
END_LEASE = Prepared(delete(leases).where(leases.c.worker == bindparam("in_worker")))
END_LEASE_SEEN = Prepared(
    delete(leases).where(leases.c.worker == bindparam("in_worker"), leases.c.beat_at == bindparam("in_beat_at"))
)

# locks ------------------------------------------------------------------------------------------------

TAKE_LOCK = Prepared(
    text(
        "INSERT INTO locks (name, holder, token, expires_at) VALUES (:name, :holder, 1, :expires_at) "
        "ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at, "
        "token = CASE WHEN locks.holder = excluded.holder AND locks.expires_at > :now THEN locks.token "
        "ELSE locks.token + 1 END "
        "WHERE locks.holder IS NULL OR locks.holder = excluded.holder OR locks.expires_at <= :now RETURNING token"
    )
)
"""Free, expired or already the holder's: the token only stays the same if nobody could have had it in between."""
_this_lock = and_(
    locks.c.name == bindparam("in_name"),
    locks.c.holder == bindparam("in_holder"),
    locks.c.token == bindparam("in_token"),
)
RENEW_LOCK = Prepared(
    update(locks)
    .where(_this_lock, locks.c.expires_at > bindparam("in_now"))
    .values(expires_at=bindparam("new_expires_at"))
)
FREE_LOCK = Prepared(update(locks).where(_this_lock).values(holder=literal_column("NULL"), expires_at=0))
SELECT_LOCK = Prepared(select(locks.c.expires_at).where(_this_lock))
