"""Notifies the ends of runs. What is owed is in the store; whoever knows where to may send it, one at a time.

A courier may die anywhere. If it does so between the answer and its record, another one sends the same notification
again under the same key: a receiver that keeps keys sees each end once.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Literal
from zlib import crc32

from codepilot.core.events import EventDraft, EventType
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.notify import (
    Again,
    GivenUp,
    NotificationFailed,
    NotificationSent,
    Taken,
    Tried,
    after_try,
    asked_wait,
    too_late,
    wait_after,
)
from codepilot.core.run import replay
from codepilot.engine.close import open_log
from codepilot.engine.receiver import Receiver, Unanswered
from codepilot.engine.runtime import Runtime
from codepilot.engine.settings import receiver_url
from codepilot.store import NotificationRow, new_id
from codepilot.store.notifications import FAILED, PENDING, SENT
from codepilot.telemetry import METRICS, ReportedNotification, now_us, rfc3339
from codepilot.verify import notice

TRY_SEC = 10.0
LEASE_SEC = 15.0
"""How long nobody else tries what one is at: longer than a try."""
PREPARED_SEC = 2.0
"""What usually suffices before a try. If it took longer, the lease begins anew."""
TURN_SEC = 0.25
"""How often a door looks whether it is its turn."""
LANES = 64
"""In how many lanes couriers send beside one another: the store keeps a row for every lock that was ever taken."""
POLL_SEC = 2.0
"""How often the store is asked what is owed, although no run has ended here."""
LAST_SEC = 5.0
"""How long a courier goes on when it is told to stop, before its last try."""

_log = logging.getLogger(__name__)
_results = METRICS.counter("codepilot_notifications_total", "Tries to notify the end of a run.", ["result"])
_RESULTS = {Taken: "sent", GivenUp: "failed", Again: "again"}

_STATES: Mapping[str, Literal["owed", "sent", "given_up"]] = {PENDING: "owed", SENT: "sent", FAILED: "given_up"}

_AGAIN = "A worker tries again{}, for example `codepilot worker --until-idle`."

Key = tuple[str, int]


class Courier:
    """Sends by itself between `with` and its end, or what a run owes when it is asked to. For one thread."""

    def __init__(self, runtime: Runtime, receiver: Receiver) -> None:
        self._runtime = runtime
        self._receiver = receiver
        self._name = new_id("c-")
        self._due: dict[Key, float] = {}
        """When what did not work here is looked at again, by this process's clock; others may have tried it by then."""
        self._woken = threading.Event()
        self._ends_at: float | None = None
        self._thread = threading.Thread(target=self._work, name="courier", daemon=True)

    def poke(self) -> None:
        """Look at once: a run has ended here."""
        self._woken.set()

    def __enter__(self) -> Courier:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is owed and due is tried once more, as long as there is time."""
        self._ends_at = time.monotonic() + LAST_SEC
        self._woken.set()
        self._thread.join(LAST_SEC + TRY_SEC + PREPARED_SEC)

    def round(self) -> None:
        """Try everything that is owed and due."""
        ripe = {key for key, due in self._due.items() if due <= time.monotonic()}
        rest = {run_id for run_id, seq in self._due.keys() - ripe}
        while rows := self._runtime.store.outbox.owed(rest):
            for owed in rows:
                if self._ends_at is not None and time.monotonic() > self._ends_at:
                    return
                ripe.discard((owed.run_id, owed.seq))
                if owed.run_id in rest:
                    continue  # an end before this one is not told of yet
                if not isinstance(self._try(owed), Taken | GivenUp):
                    rest.add(owed.run_id)
        for seen_to_elsewhere in ripe:
            self._due.pop(seen_to_elsewhere, None)

    def deliver(self, run_id: str) -> str:
        """One try at what the run owes; what is wrong, if anything is."""
        problems = []
        for owed in self._runtime.store.outbox.of(run_id):
            if owed.state == PENDING:
                match self._send_in_turn(owed):
                    case Again(seconds=seconds), said:
                        problems.append(f"{said} {_AGAIN.format(f' in {math.ceil(seconds)} s')}")
                    case None, said if said:
                        problems.append(f"{said} {_AGAIN.format('')}")
                    case GivenUp(), said:
                        problems.append(f"{said} It is not tried again.")
        return " ".join(problems)

    def _send_in_turn(self, owed: NotificationRow) -> tuple[Taken | Again | GivenUp | None, str]:
        """The same as `_send`, when nobody else is at it any more; one that died is at it for as long as its lease."""
        deadline = time.monotonic() + LEASE_SEC + PREPARED_SEC
        while (found := self._send(owed))[0] is None:
            now = self._runtime.store.outbox.still(owed)
            if now is None:
                return found
            if time.monotonic() > deadline:
                return None, "Somebody else is at it."
            owed = now
            time.sleep(TURN_SEC)
        return found

    def _work(self) -> None:
        while self._ends_at is None:
            self._woken.wait(self._look())
            self._woken.clear()
        self._look()

    def _look(self) -> float:
        """Make a round; for how long there will be nothing to do."""
        try:
            self.round()
        except CodePilotError as error:
            _log.warning("the store does not answer: %s", error)
        except Exception:  # noqa: BLE001 - the others' notifications must not be lost with one
            _log.exception("what is owed could not be looked at")
        else:
            due = min(self._due.values(), default=math.inf)
            return min(POLL_SEC, max(0.0, due - time.monotonic()))
        return POLL_SEC

    def _try(self, owed: NotificationRow) -> Taken | Again | GivenUp | None:
        """What came of it; what went wrong is tried again later, whatever it was."""
        try:
            found, said = self._send(owed)
        except CodePilotError as error:
            if error.kind is FailureKind.STORE_UNAVAILABLE:
                raise
            found, said = self._later(owed), str(error)
        except Exception:  # noqa: BLE001 - one run's defect must not keep the others from being told of
            _log.exception("the end of %s could not be notified", owed.run_id, extra={"run_id": owed.run_id})
            return self._later(owed)
        if not isinstance(found, Taken | None):
            _log.warning("the end of %s could not be notified: %s", owed.run_id, said, extra={"run_id": owed.run_id})
        return found

    def _send(self, owed: NotificationRow) -> tuple[Taken | Again | GivenUp | None, str]:
        """What follows from one try, and what is wrong; None if somebody else is at it, has tried it or has done it."""
        store = self._runtime.store
        began = time.monotonic()
        lock = store.lock(f"notify {crc32(owed.run_id.encode()) % LANES}", self._name, LEASE_SEC)
        if lock is None:
            self._due[owed.run_id, owed.seq] = began + POLL_SEC
            return None, ""
        try:
            now = store.outbox.still(owed)
            if now is None or now.tries != owed.tries:
                self._due.pop((owed.run_id, owed.seq), None)
                return None, ""
            late = too_late(_age_sec(owed))
            if late is not None:
                return self._settle(owed, late, "Nobody was told.")
            body = self._body(owed)
            if time.monotonic() - began > PREPARED_SEC and store.renew(lock, LEASE_SEC) is None:
                return None, ""
            tried, said = self._post(owed, body)
            return self._settle(owed, after_try(tried, random.random()), said)
        finally:
            store.unlock(lock)

    def _body(self, owed: NotificationRow) -> bytes:
        """As the run was when it ended: the same bytes for the same key, whatever has become of it since."""
        run = replay(self._runtime.store.events(owed.run_id, limit=owed.seq))
        return notice(run, self._runtime.redact).model_dump_json(by_alias=False).encode()

    def _post(self, owed: NotificationRow, body: bytes) -> tuple[Tried, str]:
        """The try, and what there is to say of it."""
        place, tries = self._receiver.place, owed.tries + 1
        try:
            answer = self._receiver.post(f"{owed.run_id}:{owed.seq}", body, TRY_SEC)
        except Unanswered as error:
            said = self._runtime.redact(f"{place} did not answer: {error}.")
            return Tried(None, tries, _age_sec(owed)), said
        asked = asked_wait(answer.retry_after, now_us() / 1e6)
        return Tried(answer.status, tries, _age_sec(owed), asked), f"{place} answered {answer.status}."

    def _settle(
        self, owed: NotificationRow, found: Taken | Again | GivenUp, said: str
    ) -> tuple[Taken | Again | GivenUp, str]:
        _results.inc(result=_RESULTS[type(found)])
        match found:
            case Taken(status=taken):
                self._record(owed, EventType.NOTIFICATION_SENT, NotificationSent(of=owed.seq, status=taken))
            case GivenUp(why=why):
                failure = Failure(kind=FailureKind.NOTIFY_FAILED, message=f"{said[:-1]}, and {why}.")
                self._record(owed, EventType.NOTIFICATION_FAILED, NotificationFailed(of=owed.seq, failure=failure))
            case Again(seconds=seconds):
                self._later(owed, seconds)
        return found, said

    def _record(self, owed: NotificationRow, kind: EventType, data: NotificationSent | NotificationFailed) -> None:
        """In the store, and in the run's log file if that is here."""
        self._runtime.store.outbox.settle(owed, EventDraft(type=kind, data=data))
        self._due.pop((owed.run_id, owed.seq), None)
        if (self._runtime.home.logs / f"{owed.run_id}.jsonl").exists():
            try:
                open_log(self._runtime, owed.run_id).close()
            except (OSError, CodePilotError) as error:
                _log.warning("the log file could not be written: %s", error, extra={"run_id": owed.run_id})

    def _later(self, owed: NotificationRow, seconds: float | None = None) -> Again:
        """Nobody tries it for a while: neither those who share the store nor, if that cannot be told, this one."""
        wait = wait_after(owed.tries + 1, random.random()) if seconds is None else seconds
        try:
            self._runtime.store.outbox.put_off(owed, wait)
        finally:
            self._due[owed.run_id, owed.seq] = time.monotonic() + wait
        return Again(wait)


def _age_sec(owed: NotificationRow) -> float:
    """Since the run's end."""
    return (now_us() - owed.at) / 1e6


def open_courier(runtime: Runtime, environ: Mapping[str, str]) -> Courier | None:
    """One that knows where to, if that is configured here."""
    url = receiver_url(environ)
    return None if url is None else Courier(runtime, Receiver(url))


def receiver_place(environ: Mapping[str, str]) -> str | None:
    """What may be shown of where ends of runs are notified."""
    url = receiver_url(environ)
    return None if url is None else Receiver(url).place


def notifications_of(runtime: Runtime, run_id: str) -> tuple[ReportedNotification, ...]:
    """What became of telling others of the run's ends, as programs read it."""
    return tuple(_reported(row) for row in runtime.store.outbox.of(run_id) if row.state in _STATES)


def _reported(row: NotificationRow) -> ReportedNotification:
    return ReportedNotification(
        event=row.seq,
        at=rfc3339(row.at),
        state=_STATES[row.state],
        tries=row.tries,
        not_before=rfc3339(row.not_before) if row.state == PENDING and row.not_before is not None else None,
        settled_at=None if row.settled_at is None else rfc3339(row.settled_at),
        said=row.settled_by,
    )


def deliver(runtime: Runtime, run_id: str, environ: Mapping[str, str]) -> str:
    """One try, from a door, at what the run owes; what is wrong, if anything is. Nothing of the run depends on it."""
    try:
        courier = open_courier(runtime, environ)
        return "" if courier is None else courier.deliver(run_id)
    except Exception as error:  # noqa: BLE001 - the command has done what it was asked for, whatever this is
        _log.debug("the end of %s could not be notified", run_id, exc_info=True)
        return runtime.redact(f"{type(error).__name__}: {error}")
