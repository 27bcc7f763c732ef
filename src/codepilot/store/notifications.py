"""Rows of the ends of runs that are to be notified. They follow from the events of tasks that ask for it, alone;
only how often each was tried, and when it may be again, is not worth an event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection

from codepilot.core.events import Event, RunBlocked, RunFinished, RunForked
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.notify import NotificationFailed, NotificationSent
from codepilot.store.records import plain_text
from codepilot.store.rows import Unreadable
from codepilot.store.statements import INSERT_NOTIFICATION, SETTLE_NOTIFICATION

PENDING, SENT, FAILED = "pending", "sent", "failed"


def project_notifications(connection: Connection, events: Iterable[Event]) -> None:
    """Write what the events say of these rows. What is settled must have been owed."""
    fresh: dict[int, dict[str, Any]] = {}
    for event in events:
        if isinstance(event.data, NotificationSent | NotificationFailed):
            named = {"in_run": event.run_id, "in_seq": event.data.of}
            settled = {f"new_{name}": value for name, value in _settled(event, event.data).items()}
            if SETTLE_NOTIFICATION.send(connection, {**named, **settled}).touched != 1:
                raise CodePilotError(
                    FailureKind.INTERNAL,
                    f"{event.type} speaks of event {event.data.of}, of which no notification is owed.",
                    run_id=event.run_id,
                    seq=event.seq,
                )
        else:
            fold_notifications(fresh, event)
    if fresh:
        INSERT_NOTIFICATION.send(connection, *fresh.values())


def fold_notifications(rows: dict[int, dict[str, Any]], event: Event) -> None:
    """Bring the rows so far up to `event`. A run that waits for a person has come to an end too, if not its last."""
    match event.data:
        case RunFinished() | RunBlocked(until=None):
            unsettled = {"state": PENDING, "settled_at": None, "settled_by": None}
            rows[event.seq] = {"run_id": event.run_id, "seq": event.seq, "at": event.at, **unsettled}
        case RunForked():
            rows.clear()  # those ends were the other run's
        case NotificationSent(of=of) | NotificationFailed(of=of):
            if of not in rows or rows[of]["state"] != PENDING:
                unknown = LookupError(f"no notification of event {of} was owed")
                raise Unreadable(event.run_id, f"event {event.seq}", unknown)
            rows[of].update(_settled(event, event.data))


def _settled(event: Event, data: NotificationSent | NotificationFailed) -> dict[str, Any]:
    if isinstance(data, NotificationSent):
        return {"state": SENT, "settled_at": event.at, "settled_by": str(data.status)}
    return {"state": FAILED, "settled_at": event.at, "settled_by": plain_text(data.failure.message)}
