"""Messages to an agent while it works, in words and as data, and the record of its answers."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from codepilot.agents.cli.protocol import AgentMessage, Delivery, RunningAgent
from codepilot.core.checkpoint import (
    CheckpointRecorded,
    CheckpointViolation,
    MessageSent,
    RolledBack,
    SessionRequested,
    UserEditsFound,
    ViolationAcknowledged,
)
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import EventType
from codepilot.core.failures import CodePilotError, Failure
from codepilot.telemetry import now_us, rfc3339

MOST_LISTED = 20

_log = logging.getLogger(__name__)

Record = Callable[[EventType, Contract], object]


@dataclass(frozen=True)
class Notice:
    """A message with what is recorded of its delivery."""

    message: AgentMessage
    checkpoint_id: str = ""
    """The checkpoint whose violations it reports."""
    by: str = "codepilot"
    request_id: str = ""

    def record(self, delivery: Delivery, waited_ms: float = 0.0) -> tuple[EventType, Contract]:
        """The event of its delivery."""
        if self.checkpoint_id:
            return EventType.VIOLATION_ACKNOWLEDGED, ViolationAcknowledged(
                checkpoint_id=self.checkpoint_id,
                delivered=delivery.delivered,
                acknowledged=delivery.acknowledged,
                response=delivery.response,
                waited_ms=round(waited_ms, 1),
            )
        return EventType.MESSAGE_SENT, MessageSent(
            type=self.message.type,
            content=self.message.content,
            severity=self.message.severity,
            data=self.message.data,
            by=self.by,
            delivered=delivery.delivered,
            acknowledged=delivery.acknowledged,
            response=delivery.response,
            request_id=self.request_id,
        )


# Texts ----------------------------------------------------------------------------------------------


def of_violations(one: CheckpointRecorded) -> Notice:
    """The report of a checkpoint's violations."""
    lines = [f"Your change breaks {'a rule' if len(one.violations) == 1 else 'rules'}:"]
    lines += [f"- {_line(found)}" for found in one.violations[:MOST_LISTED]]
    if more := len(one.violations[MOST_LISTED:]) + one.violations_left_out:
        lines.append(f"- and {more} more")
    lines.append(_DONE[one.action_taken])
    return Notice(_violation_message(one, "\n".join(lines)), checkpoint_id=one.checkpoint_id)


def of_escapes(found: Sequence[CheckpointViolation]) -> Notice:
    """A warning at once, before a checkpoint is due."""
    lines = ["Remove this at once; it may not be in the tree:", *(f"- {_line(one)}" for one in found[:MOST_LISTED])]
    data: JsonObject = {"violations": [one.model_dump(mode="json") for one in found[:MOST_LISTED]]}
    return Notice(AgentMessage(type="error", severity="critical", content="\n".join(lines), data=data))


def of_failure(failure: Failure) -> Notice:
    """A checkpoint could not be made: the agent may be able to help, for example when the tree is too large."""
    content = f"{failure.message}. {failure.advice}"
    return Notice(AgentMessage(type="error", severity="error", content=content))


def of_request(request: SessionRequested) -> Notice:
    """What a person wrote."""
    return Notice(AgentMessage(type="user", content=request.text), by=request.by, request_id=request.request_id)


def of_rollback(done: RolledBack) -> Notice:
    """The files that were put back while the agent worked."""
    what = (
        f"These files were put back: {_listed(done.files, done.files_left_out)}."
        if done.files
        else "All files were put back."
    )
    where = f"to checkpoint {done.checkpoint_id}" if done.checkpoint_id else "to the beginning of this step"
    content = f"{what} They are as they were at {where.removeprefix('to ')}; read them again before you go on."
    return Notice(
        AgentMessage(
            type="warning", severity="warning", content=content, data={"files": list(done.files[:MOST_LISTED])}
        )
    )


def of_edits(found: UserEditsFound, patch: str) -> Notice:
    """What a person changed in the worktree meanwhile."""
    lines = [f"The user changed {_listed(found.files, found.files_left_out)} while you worked. Keep these changes."]
    if found.conflicts:
        lines.append(f"You had changed {_listed(found.conflicts)} too: the user's version is there now, yours is gone.")
    if patch:
        lines.append(f"\n{patch}")
    return Notice(AgentMessage(type="info", content="\n".join(lines), data={"files": list(found.files[:MOST_LISTED])}))


_DONE = {
    "none": "Nothing was put back. Correct it before you finish; the change is not accepted as it is.",
    "reverted": "These files were put back. Read them again before you go on.",
    "discarded": "Everything since the last valid checkpoint was discarded. Read the files again before you go on.",
}


def _violation_message(one: CheckpointRecorded, content: str) -> AgentMessage:
    data: JsonObject = {
        "checkpoint_id": one.checkpoint_id,
        "timestamp": rfc3339(now_us()),
        "violations": [found.model_dump(mode="json") for found in one.violations[:MOST_LISTED]],
        "files_changed": list(one.files_changed[:MOST_LISTED]),
        "action_taken": one.action_taken,
    }
    return AgentMessage(
        type="checkpoint_violation",
        severity=one.severity or "warning",
        content=content,
        data=data,
        requires_acknowledgment=True,
    )


def _line(found: CheckpointViolation) -> str:
    return f"{found.message}. {found.suggestion}".rstrip()


def _listed(paths: Sequence[str], left_out: int = 0) -> str:
    more = len(paths[MOST_LISTED:]) + left_out
    return ", ".join(paths[:MOST_LISTED]) + (f" and {more} more" if more else "")


# Delivery --------------------------------------------------------------------------------------------


class NoticeSender:
    """Delivers notices one after the other in a thread of its own: an agent may take seconds to acknowledge one.

    What cannot be delivered now is kept until the agent's turn ends.
    """

    def __init__(self, agent: RunningAgent, record: Record, wait_sec: float) -> None:
        self._agent = agent
        self._record = record
        self._wait_sec = wait_sec
        self._notices: queue.SimpleQueue[Notice | None] = queue.SimpleQueue()
        self._kept: list[Notice] = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="notice-sender", daemon=True)
        self._thread.start()

    def send(self, notice: Notice, *, at_turn_end: bool = False) -> None:
        if at_turn_end or "messages" not in self._agent.features:
            with self._lock:
                self._kept.append(notice)
        else:
            self._notices.put(notice)

    def take_kept(self) -> tuple[Notice, ...]:
        """What waits for the end of a turn."""
        with self._lock:
            kept, self._kept = tuple(self._kept), []
        return kept

    def close(self) -> tuple[Notice, ...]:
        """Deliver no more; returns what was not delivered."""
        self._notices.put(None)
        self._thread.join(self._wait_sec + 1.0)
        left = []
        while not self._notices.empty():
            notice = self._notices.get()
            left += [notice] if notice is not None else []
        return (*self.take_kept(), *left)

    def _run(self) -> None:
        while (notice := self._notices.get()) is not None:
            wait = self._wait_sec if notice.message.requires_acknowledgment else 0.0
            wait = wait if "acknowledgement" in self._agent.features else 0.0
            started = time.monotonic()
            try:
                delivery = self._agent.send(notice.message, wait)
            except Exception as error:  # noqa: BLE001 - an agent that is gone must not end the supervision
                _log.warning("a message did not reach the agent: %s", error)
                delivery = Delivery(delivered=False)
            if not delivery.delivered:
                with self._lock:
                    self._kept.append(notice)
                continue
            try:
                self._record(*notice.record(delivery, (time.monotonic() - started) * 1000))
            except CodePilotError as error:
                _log.warning("the delivery of a message was not recorded: %s", error)
                return
