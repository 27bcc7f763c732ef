"""Webhook: posts the end of each run to `[notify] url`.

The transaction that ends a run writes a pending row to the store's outbox. A sender leases the row, posts it and
records the outcome. If the sender dies in between, another one posts the same bytes under the same `Idempotency-Key`
when the lease is over: at least once on the wire, once on record.
"""

from __future__ import annotations

import logging
import math
import random
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from codepilot import __version__
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
from codepilot.engine.runtime import Runtime
from codepilot.engine.service.links import answer_link
from codepilot.engine.settings import Settings
from codepilot.store import NotificationRow
from codepilot.store.projection import PENDING
from codepilot.telemetry import METRICS, ReportedNotification, now_us, rfc3339
from codepilot.verify import notice

TRY_SEC = 10.0
LEASE_SEC = 15.0
"""How long a row is leased: longer than an attempt."""
POLL_SEC = 2.0
"""How often the outbox is read although no run ended here."""
WAIT_SEC = 0.25
"""How often a command that waits for another sender's lease looks again."""
LAST_SEC = 5.0
"""How long a stopping sender starts further attempts."""

_log = logging.getLogger(__name__)
_results = METRICS.counter("codepilot_notifications_total", "Attempts to post the end of a run.", ["result"])
_RESULTS = {Taken: "sent", GivenUp: "failed", Again: "again"}


class Unanswered(Exception):
    """The receiver did not answer; the text says why and does not contain the URL."""


@dataclass(frozen=True)
class Answer:
    status: int
    retry_after: str | None = None


class WebhookClient:
    """Posts to one URL. Follows no redirect, uses no proxy, and reads only the status and `Retry-After`."""

    def __init__(self, url: str) -> None:
        """`url` has passed `mistake_in`."""
        self._url = url
        parts = urlsplit(url)
        self.place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        """The part of the URL that may be shown."""

    def post(self, key: str, body: bytes, seconds: float) -> Answer:
        """Post the body and return the answer. After `seconds` the connection is cut and nothing more is sent."""
        deadline = time.monotonic() + seconds
        answer: Future[Answer] = Future()
        opened: list[socket.socket] = []

        def trace(event: str, info: Mapping[str, Any]) -> None:
            if event.endswith(".started") and "close" not in event and time.monotonic() >= deadline:
                raise TimeoutError
            if event == "connection.connect_tcp.complete":
                opened.append(info["return_value"].get_extra_info("socket").dup())

        def send() -> None:
            try:
                answer.set_result(self._send(key, body, seconds, trace))
            except Exception as error:  # noqa: BLE001 - raised in the calling thread
                answer.set_exception(error)

        # A thread, because neither a resolver nor a receiver that sends a byte a second is bound by httpx's timeouts.
        threading.Thread(target=send, name="webhook-post", daemon=True).start()
        try:
            return answer.result(seconds)
        except Exception as error:  # noqa: BLE001 - whatever the client raised
            late = isinstance(error, TimeoutError) or time.monotonic() >= deadline
            reason = f"not within {seconds:g} s" if late else str(error).rstrip(".") or type(error).__name__
            raise Unanswered(reason) from None
        finally:
            for connection in opened:
                with connection, suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _send(self, key: str, body: bytes, seconds: float, trace: Any) -> Answer:
        import httpx2

        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            "User-Agent": f"codepilot/{__version__}",
            "Connection": "close",
        }
        verify = ssl.create_default_context() if self._url.startswith("https:") else False
        with (
            httpx2.Client(trust_env=False, verify=verify, timeout=seconds) as client,
            client.stream(
                "POST", self._url, content=body, headers=headers, extensions={"trace": trace}, follow_redirects=False
            ) as response,
        ):
            return Answer(response.status_code, response.headers.get("Retry-After"))


class WebhookSender:
    """Sends what is due from a thread between `with` and its end, or one run's notifications when asked to."""

    def __init__(self, runtime: Runtime, client: WebhookClient) -> None:
        self._runtime = runtime
        self._outbox = runtime.store.outbox
        self._client = client
        self._woken = threading.Event()
        self._ends_at: float | None = None
        self._thread = threading.Thread(target=self._loop, name="webhook", daemon=True)

    def wake(self) -> None:
        """Read the outbox now: a run has ended here."""
        self._woken.set()

    def __enter__(self) -> WebhookSender:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Try once more what is due, for as long as there is time."""
        self._ends_at = time.monotonic() + LAST_SEC
        self._woken.set()
        self._thread.join(LAST_SEC + TRY_SEC)

    def send_due(self) -> float:
        """Send every pending notification whose time has come; return the seconds until the next look."""
        again = POLL_SEC
        while rows := self._outbox.pending():
            blocked: set[str] = set()
            """Runs with an earlier end that is not sent yet: the ends of a run are sent in order."""
            for row in (one for one in rows if one.run_id not in blocked):
                if self._ends_at is not None and time.monotonic() > self._ends_at:
                    return 0.0
                outcome = self._try(row)
                if not isinstance(outcome, Taken | GivenUp):
                    blocked.add(row.run_id)
                if isinstance(outcome, Again):
                    again = min(again, outcome.seconds)
        return again

    def send_run(self, run_id: str) -> str:
        """Try each pending notification of the run once; return what failed, or an empty string."""
        rows = [row for row in self._outbox.of(run_id) if row.state == PENDING]
        return " ".join(problem for row in rows if (problem := self._send_now(row)))

    def _send_now(self, row: NotificationRow) -> str:
        """Send the row as soon as no other sender leases it."""
        retried = "A worker tries again{}, for example `codepilot worker --until-idle`."
        deadline = time.monotonic() + LEASE_SEC
        while row.state == PENDING:
            wait = ((row.not_before or 0) - now_us()) / 1e6
            if wait > LEASE_SEC or time.monotonic() > deadline:
                return f"Another attempt is pending. {retried.format(f' in {math.ceil(wait)} s')}"
            match self._send(row) if wait <= 0 else (None, ""):
                case Again(seconds=seconds), text:
                    return f"{text} {retried.format(f' in {math.ceil(seconds)} s')}"
                case GivenUp(), text:
                    return f"{text} It is not tried again."
                case Taken(), _:
                    return ""
            time.sleep(WAIT_SEC)
            row = next(one for one in self._outbox.of(row.run_id) if one.seq == row.seq)
        return ""

    def _loop(self) -> None:
        while True:
            last, wait = self._ends_at is not None, POLL_SEC
            try:
                wait = self.send_due()
            except CodePilotError as error:
                _log.warning("the store does not answer: %s", error)
            except Exception:  # noqa: BLE001 - one defect must not end the sender
                _log.exception("the outbox could not be read")
            if last:
                return
            self._woken.wait(wait)
            self._woken.clear()

    def _try(self, row: NotificationRow) -> Taken | Again | GivenUp | None:
        """Make one attempt. Any error except a lost store postpones the row."""
        fields = {"run_id": row.run_id}
        try:
            outcome, text = self._send(row)
        except Exception as error:
            if isinstance(error, CodePilotError) and error.kind is FailureKind.STORE_UNAVAILABLE:
                raise
            _log.exception("the end of %s could not be posted", row.run_id, extra=fields)
            outcome = Again(wait_after(row.tries + 1, random.random()))
            if leased := self._outbox.lease(row, LEASE_SEC):
                self._outbox.put_off(leased, outcome.seconds)
            return outcome
        if isinstance(outcome, Again | GivenUp):
            _log.warning("the end of %s could not be posted: %s", row.run_id, text, extra=fields)
        return outcome

    def _send(self, row: NotificationRow) -> tuple[Taken | Again | GivenUp | None, str]:
        """Lease the row, post it, record the outcome. The outcome is None if another sender has the row."""
        outcome: Taken | Again | GivenUp | None = too_late(_age_sec(row))
        # The same bytes for the same key, whatever happened to the run since it ended.
        run = None if outcome else replay(self._runtime.store.events(row.run_id, limit=row.seq))
        body = b""
        if run is not None:
            made = notice(run, self._runtime.redact, answer_link(self._runtime, run))
            body = made.model_dump_json(by_alias=False).encode()
        leased = self._outbox.lease(row, LEASE_SEC)
        if leased is None:
            return None, ""
        text = "It was not posted."
        if outcome is None:
            tried, text = self._post(leased, body)
            outcome = after_try(tried, random.random())
        _results.inc(result=_RESULTS[type(outcome)])
        match outcome:
            case Taken(status=status):
                self._settle(leased, EventType.NOTIFICATION_SENT, NotificationSent(of=row.seq, status=status))
            case GivenUp(why=why):
                failure = Failure(kind=FailureKind.NOTIFY_FAILED, message=f"{text[:-1]}, and {why}.")
                self._settle(leased, EventType.NOTIFICATION_FAILED, NotificationFailed(of=row.seq, failure=failure))
            case Again(seconds=seconds):
                self._outbox.put_off(leased, seconds)
        return outcome, text

    def _post(self, row: NotificationRow, body: bytes) -> tuple[Tried, str]:
        place = self._client.place
        try:
            answer = self._client.post(f"{row.run_id}:{row.seq}", body, TRY_SEC)
        except Unanswered as error:
            text = self._runtime.redact(f"{place} did not answer: {error}.")
            return Tried(None, row.tries, _age_sec(row)), text
        asked = asked_wait(answer.retry_after, now_us() / 1e6)
        return Tried(answer.status, row.tries, _age_sec(row), asked), f"{place} answered {answer.status}."

    def _settle(self, row: NotificationRow, kind: EventType, data: NotificationSent | NotificationFailed) -> None:
        """Record the outcome in the store, and in the run's log file if that is here."""
        self._outbox.settle(row, EventDraft(type=kind, data=data))
        if (self._runtime.home.logs / f"{row.run_id}.jsonl").exists():
            try:
                open_log(self._runtime, row.run_id).close()
            except (OSError, CodePilotError) as error:
                _log.warning("the log file could not be written: %s", error, extra={"run_id": row.run_id})


def _age_sec(row: NotificationRow) -> float:
    """Seconds since the run's end."""
    return (now_us() - row.at) / 1e6


def open_webhook(runtime: Runtime) -> WebhookSender | None:
    """The sender, if a URL is configured."""
    url = runtime.settings.notify_url
    return None if url is None else WebhookSender(runtime, WebhookClient(url))


def webhook_place(settings: Settings) -> str | None:
    """The part of the configured URL that may be shown."""
    url = settings.notify_url
    return None if url is None else WebhookClient(url).place


def notifications_of(runtime: Runtime, run_id: str) -> tuple[ReportedNotification, ...]:
    """The run's notifications, for `--json`."""
    return tuple(
        ReportedNotification(
            event=row.seq,
            at=rfc3339(row.at),
            state=row.state,
            tries=row.tries,
            not_before=rfc3339(row.not_before) if row.state == PENDING and row.not_before is not None else None,
            settled_at=None if row.settled_at is None else rfc3339(row.settled_at),
            reason=row.settled_by,
        )
        for row in runtime.store.outbox.of(run_id)
    )


def notify(runtime: Runtime, run_id: str) -> str:
    """One attempt from a command at the run's pending notifications; what is wrong, if anything is. Never raises."""
    try:
        sender = open_webhook(runtime)
        return "" if sender is None else sender.send_run(run_id)
    except Exception as error:  # noqa: BLE001 - the command has done its work, whatever this is
        _log.debug("the end of %s could not be posted", run_id, exc_info=True)
        return runtime.redact(f"{type(error).__name__}: {error}")
