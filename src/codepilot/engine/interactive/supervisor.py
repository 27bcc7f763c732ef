"""Supervises one agent that writes files itself: watches, takes checkpoints, answers requests, sends messages."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from codepilot.agents.cli.protocol import AgentMessage, Delivery, RunningAgent
from codepilot.core.checkpoint import (
    FAILURES_TO_BLOCK,
    MessageSent,
    Pace,
    SessionRequested,
    Trigger,
    after_failures,
    due,
    notifies_agent,
    violation,
)
from codepilot.core.contract import Contract
from codepilot.core.events import Event, EventType
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.engine.interactive import messages
from codepilot.engine.interactive.checkpoints import Checkpoints, Taken
from codepilot.engine.interactive.figures import MEMORY
from codepilot.engine.interactive.messages import Notice, NoticeSender
from codepilot.engine.interactive.watch import Watch
from codepilot.engine.work import Work

TICK_SEC = 0.25
"""How often a supervisor looks whether something is due or was asked for."""
MOST_MESSAGES = 20
"""How many of the user's messages an agent that is started again gets once more."""
PAUSE_ACK_SEC = 0.5
"""How long an agent may take to agree to a pause. It is frozen anyway."""

_log = logging.getLogger(__name__)


class Supervisor:
    """The `Session` of one step. Between `attached` and `detached` a thread of its own looks after the agent."""

    def __init__(self, work: Work, watch: Watch, checkpoints: Checkpoints) -> None:
        self._work = work
        self._watch = watch
        self.checkpoints = checkpoints
        self._settings = work.run.task.interactive
        self._pace = Pace.of(self._settings)
        self._agent: RunningAgent | None = None
        self._sender: NoticeSender | None = None
        self._left: list[Notice] = []
        """The messages not delivered yet: an agent that crashed is started again."""
        self._handled: set[str] = set()
        self._idle = False
        """True while the agent waits for us at the end of its turn."""
        self._looked_at = 0.0
        self._hinted = False
        """True if the agent reported that a tool ended since the last look."""
        self._worked_sec = 0.0
        self._attached_at = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.broken: CodePilotError | None = None
        """Why the agent may not go on; raised where it is asked whether it must stop."""
        self.timed_out = False

    # Session ----------------------------------------------------------------------------------------

    def attached(self, agent: RunningAgent) -> None:
        self._agent = agent
        self._sender = NoticeSender(agent, self._record, self._settings.acknowledgement_ms / 1000)
        for notice in self._left:
            self._sender.send(notice)
        self._left.clear()
        self._stop.clear()
        self._attached_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"supervisor-{self._work.run.run_id}", daemon=True)
        self._thread.start()
        MEMORY.begin()

    def tool_ended(self) -> None:
        self._hinted = True

    def turn_ended(self) -> tuple[AgentMessage, ...]:
        """Take a checkpoint of what the agent did in its turn, and send it the findings."""
        agent = self._agent
        if agent is None:
            return ()
        self._idle = True
        try:
            notices = [] if self.broken is not None else self._turn_notices()
            if self._sender is not None:
                notices += self._sender.take_kept()
            left = [self._deliver(agent, notice) for notice in notices]
            return tuple(message for message in left if message is not None)
        finally:
            self._idle = False

    def detached(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._worked_sec += time.monotonic() - self._attached_at
            MEMORY.end()
        if self._sender is not None:
            self._left += self._sender.close()
            self._sender = None
        self._agent = None

    def user_messages(self) -> tuple[str, ...]:
        events = self._work.store.events(self._work.run.run_id)
        texts = [
            one.data.content
            for one in events
            if isinstance(one.data, MessageSent) and one.data.type == "user" and one.data.delivered
        ]
        return tuple(texts[-MOST_MESSAGES:])

    # The step ---------------------------------------------------------------------------------------

    def raise_if_broken(self) -> None:
        """Raise if interactive work cannot go on."""
        if self.broken is not None:
            raise self.broken

    def final(self) -> Taken:
        """Take the last checkpoint; nothing of the agent runs any more.

        A person's message that it did not get stays asked for: the next agent of the run gets it.
        """
        self._answer_requests()
        taken = self.checkpoints.take("final")
        self._after(taken)
        self._left.clear()
        return taken

    # The thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(TICK_SEC):
            try:
                self._tick()
            except CodePilotError as error:
                if error.kind is FailureKind.STORE_UNAVAILABLE:
                    continue  # the agent's own next event fails too, and says so
                self.broken = error
                return
            except Exception as error:  # noqa: BLE001 - an agent without supervision must not go on
                _log.exception("the supervision of %s failed", self._work.run.run_id)
                message = f"The supervision of the agent failed: {type(error).__name__}: {error}"
                self.broken = CodePilotError(FailureKind.CHECKPOINT_FAILED, message)
                return
            if self.broken is not None:
                return

    def _tick(self) -> None:
        self._answer_requests()
        if self._idle or self._stop.is_set():
            return
        if self.time_left() <= 0:
            self._end_for_time()
            return
        now = time.monotonic()
        usual = 0.0 if self._hinted else self._settings.watchdog_poll_interval_ms / 1000
        pause = max(usual, self._watch.pause_sec)
        if now - self._looked_at >= pause:
            self._look()
        trigger = due(self._pace, self._since_us(), self._watch.changed)
        if trigger is not None:
            self._take(trigger)

    def _look(self) -> None:
        """See what changed. What leaves the tree is reported at once, and brings the next checkpoint forward."""
        self._looked_at, self._hinted = time.monotonic(), False
        try:
            seen = self._watch.look()
        except CodePilotError as error:
            if error.kind is FailureKind.STORE_UNAVAILABLE:
                raise
            self._take("changes")  # it fails too, which is recorded and counted
            return
        MEMORY.look()
        if not seen.escapes:
            return
        found = [violation(one.rule, one.path, one.detail) for one in seen.escapes]
        if self._since_us() >= self._pace.shortest_us:
            self._take("changes")
        else:
            self._notify(messages.of_escapes(found))

    def _take(self, trigger: Trigger, request_id: str = "") -> Taken:
        taken = self.checkpoints.take(trigger, request_id)
        for notice in self._after(taken):
            self._notify(notice)
        return taken

    def _after(self, taken: Taken) -> list[Notice]:
        """The notices about a checkpoint; too many failures end the interactive work."""
        notices = [messages.of_edits(found, patch) for found, patch in taken.edits]
        if taken.recorded is not None and notifies_agent(taken.recorded.severity):
            notices.append(messages.of_violations(taken.recorded))
        if taken.failure is not None:
            notices.append(messages.of_failure(taken.failure))
        chain = self._work.run.chain
        if taken.failure is not None and after_failures(chain.failures) == "block":
            self.broken = self._blocked(taken)
        return notices

    def _blocked(self, taken: Taken) -> CodePilotError:
        """Freeze the agent, and explain what a person can do."""
        assert taken.failure is not None
        try:
            self._work.executor.freeze(self._work.workspace)
        except CodePilotError as error:
            _log.warning("the agent could not be frozen: %s", error)
        last = self._work.run.chain.last
        return CodePilotError(
            FailureKind.INTERACTIVE_MODE_FAILURE,
            f"{FAILURES_TO_BLOCK} checkpoints in a row failed. {taken.failure.message}",
            last_checkpoint=last.checkpoint_id if last else "",
        )

    def _end_for_time(self) -> None:
        """Keep what there is, and end the agent."""
        self.timed_out = True
        self._take("request")
        minutes = (self._settings.max_execution_time_ms or 0) / 60_000
        self.broken = CodePilotError(
            FailureKind.TOOL_TIMEOUT,
            f"The agent has worked for {minutes:.1f} minutes, the longest that max_execution_time_ms allows.",
        )

    # Requests ---------------------------------------------------------------------------------------

    def _answer_requests(self) -> None:
        """Do what people asked for since the last look."""
        if self._work.store.events(self._work.run.run_id, after=self._work.run.last_seq, limit=1):
            self._work.refresh()
        for asked in self._work.run.asked_of_session:
            if asked.request_id not in self._handled:
                self._handled.add(asked.request_id)
                self._answer(asked)

    def _answer(self, asked: SessionRequested) -> None:
        if asked.kind == "checkpoint":
            self._take("request", asked.request_id)
        elif asked.kind == "message":
            self._notify(messages.of_request(asked), at_turn_end=asked.when == "turn")
        else:
            taken, done = self.checkpoints.roll_back(asked)
            if done.failure is None:
                self._notify(messages.of_rollback(done))
            for notice in self._after(taken):
                self._notify(notice)

    # Words ------------------------------------------------------------------------------------------

    def _turn_notices(self) -> list[Notice]:
        """The checkpoint at the end of a turn. One that was taken a moment ago is waited out."""
        self._answer_requests()
        if self._watch.look().taken.tree == self.checkpoints.last.tree:
            return []
        while due(self._pace, self._since_us(), self._watch.changed, turn_ended=True) is None:
            self.raise_if_broken()
            self._work.step.raise_if_stopped()
            time.sleep(min(TICK_SEC, max(0.0, (self._pace.shortest_us - self._since_us()) / 1e6)))
        return self._after(self.checkpoints.take("turn"))

    def _deliver(self, agent: RunningAgent, notice: Notice) -> AgentMessage | None:
        """Deliver a notice to an agent that waits; the message if the agent must be asked with it anew."""
        if "messages" not in agent.features:
            self._record(*notice.record(Delivery(delivered=True)))
            return notice.message
        asked = notice.message.requires_acknowledgment and "acknowledgement" in agent.features
        started = time.monotonic()
        delivery = agent.send(notice.message, self._settings.acknowledgement_ms / 1000 if asked else 0.0)
        self._record(*notice.record(delivery, (time.monotonic() - started) * 1000))
        return None if delivery.delivered else notice.message

    def _notify(self, notice: Notice, *, at_turn_end: bool = False) -> None:
        if self._sender is not None:
            self._sender.send(notice, at_turn_end=at_turn_end)
        else:
            self._left.append(notice)

    def around_freeze(self, what: str) -> None:
        """Ask a cooperative agent to pause before it is frozen, and notify it when it goes on."""
        agent = self._agent
        if agent is None or self._idle or "pause_resume" not in agent.features:
            return
        checkpoint = {"checkpoint_id": f"after-{self.checkpoints.last.checkpoint_id or 'the beginning'}"}
        if what == "freeze":
            content = "Pause for a checkpoint."
            data: dict[str, object] = {
                **checkpoint,
                "reason": "checkpoint_validation",
                "timeout_ms": int(PAUSE_ACK_SEC * 1000),
            }
            asked = AgentMessage.model_validate(
                {"type": "pause_request", "content": content, "data": data, "requires_acknowledgment": True}
            )
            self._quietly(partial(agent.send, asked, PAUSE_ACK_SEC))
        else:
            resumed = AgentMessage.model_validate({"type": "resume", "content": "Go on.", "data": checkpoint})
            self._quietly(partial(agent.send, resumed))

    def _quietly(self, send: Callable[[], Delivery]) -> None:
        try:
            if not send().delivered:
                _log.info("the agent of %s did not take a message about a pause", self._work.run.run_id)
        except Exception as error:  # noqa: BLE001 - a pause needs nobody's consent
            _log.warning("the agent of %s could not be asked to pause: %s", self._work.run.run_id, error)

    def _record(self, kind: EventType, data: Contract) -> Event:
        return self._work.record(kind, data)

    # Clocks -----------------------------------------------------------------------------------------

    def _since_us(self) -> int:
        return int((time.monotonic() - self.checkpoints.taken_at) * 1e6)

    def time_left(self) -> float:
        """Seconds of `max_execution_time_ms`; frozen time is free."""
        limit = self._settings.max_execution_time_ms
        if limit is None:
            return float("inf")
        now = time.monotonic() - self._attached_at if self._agent is not None else 0.0
        return limit / 1000 - (self._worked_sec + now - self.checkpoints.frozen_sec)
