"""One program at work in one step: its reports become events, its questions get answers, its end is typed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal

from codepilot.agents.cli.permissions import answer
from codepilot.agents.cli.prompt import GO_ON, prompt_for, with_messages
from codepilot.agents.cli.protocol import (
    Acknowledged,
    AgentAdapter,
    AgentEvent,
    AgentStart,
    Failed,
    Finished,
    Permission,
    PlanShown,
    RunningAgent,
    SessionOpened,
    Text,
    ToolCall,
    ToolResult,
    TurnEnded,
    UsageSeen,
)
from codepilot.agents.cli.settings import CliSettings
from codepilot.agents.protocol import StepContext
from codepilot.core.artifacts import Answer, PatchCandidate
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.events import (
    Event,
    EventType,
    SessionEnded,
    SessionStarted,
    TurnFinished,
    TurnStarted,
    Usage,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.spending import no_turn_of_run_left
from codepilot.core.task import TaskKind

IDLE_SEC = 0.25
"""How often a silent program is looked at, and how often the run is asked whether it must stop."""
RESTARTS = 2
"""How often a program that crashed is started again in one step."""
SHOWN = 500
MOST_TEXT = 20_000
MOST_TOOLS = 1_000
"""Tools of a turn that are recorded."""
LONG_COMMAND = 60.0
"""What a program may need beyond a command's longest time."""
_CRASHED = (
    "You were started again because your program ended unexpectedly. The files are as you left them; check them before"
    " you go on. Then finish the task that you were given."
)


@dataclass
class _Turn:
    """The tools that are in use at the same time: from the first call until none is open."""

    number: int
    tools: dict[str, JsonObject] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)


class CliStep:
    """One agent's work on one step. `before` says what another agent left behind."""

    def __init__(self, adapter: AgentAdapter, settings: CliSettings, context: StepContext, before: str = "") -> None:
        self._adapter = adapter
        self._settings = settings
        self._context = context
        self._before = before
        self._session_id = _last_session(adapter.name, context.history)
        self._number = sum(isinstance(event.data, TurnStarted) for event in context.history)
        self._turn: _Turn | None = None
        self._words = ""
        self._plan: tuple[str, ...] = ()
        self._used = Usage()
        self._uncharged = Usage()
        self._denied: list[str] = []
        self._started = self._resumed = False
        self._progress_at = self._looked_at = time.monotonic()
        self._tree = ""

    def work(self) -> PatchCandidate | Answer:
        """Let the program work until it has ended, and start it again if it crashes."""
        prompt = GO_ON if self._session_id else prompt_for(self._context, self._before)
        for restart in range(RESTARTS + 1):
            resumed = self._session_id
            try:
                self._context.executor.init_git(self._context.workspace)  # where git is missing it does without
                session = self._context.session
                prompt = with_messages(prompt, session.user_messages() if session is not None else ())
                text = self._run_once(prompt, resumed)
                break
            except CodePilotError as error:
                unknown = error.failure.details.get("session") == "unknown"
                if not (unknown or error.kind is FailureKind.AGENT_CRASHED) or restart == RESTARTS:
                    raise
            if resumed is not None and (unknown or not self._started):
                self._session_id = None  # the program does not know it any more
            going_on = self._session_id is not None
            prompt = _CRASHED if going_on else prompt_for(self._context, self._before or _CRASHED)
        return self._result(text)

    def _run_once(self, prompt: str, resume: str | None) -> str:
        """One start of the program, to its end."""
        context = self._context
        context.raise_if_stopped()
        self._started, self._resumed = False, resume is not None
        running = self._adapter.start(self._starting(prompt, resume))
        failure: Failure | None = None
        finished = False
        try:
            if context.session is not None:
                context.session.attached(running)
            text = self._follow(running)
            finished = True
            return text
        except CodePilotError as error:
            failure = error.failure
            raise
        finally:
            self._leave(running, finished=finished, failure=failure)

    def _starting(self, prompt: str, resume: str | None) -> AgentStart:
        context = self._context
        return AgentStart(
            start_process=context.executor.start_process,
            workspace=context.workspace,
            directory=context.directory(),
            prompt=prompt,
            resume=resume,
            endpoint=context.model_endpoint if self._settings.credentials == "gateway" else None,
            model=self._settings.model,
            profile=self._settings.profiles.get(self._adapter.name.removeprefix("pty:")),
            environ=self._settings.environ,
        )

    def _leave(self, running: RunningAgent, *, finished: bool, failure: Failure | None) -> None:
        """End the program, and record what is open unless the step must be dropped at once."""
        context = self._context
        try:
            if context.session is not None:
                context.session.detached()
        finally:
            running.close()
        self._session_id = running.session_id or self._session_id
        if context.stopped():
            return
        if self._turn is not None:
            self._end_turn("interrupted")
        if self._started:
            how: Literal["finished", "failed", "stopped"] = "failed" if failure is not None else "stopped"
            ended = SessionEnded(
                agent=self._adapter.name,
                session_id=self._session_id,
                how="finished" if finished else how,
                failure=failure,
                usage=self._used,
            )
            self._append(EventType.SESSION_ENDED, ended)

    def _follow(self, running: RunningAgent) -> str:
        """The program's last words."""
        self._progress_at = time.monotonic()
        for event in running.events(IDLE_SEC):
            self._look(busy=event is not None)
            if event is None:
                self._require_progress(running)
                continue
            self._progress_at = time.monotonic()
            if isinstance(event, Failed):
                self._look(busy=False)  # a refusal of ours counts more than what the program made of it
                raise CodePilotError.of(self._with_reset(event.failure))
            if isinstance(event, Finished):
                return event.text or self._words
            self._take(event, running)
        self._look(busy=False)
        raise CodePilotError(
            FailureKind.AGENT_CRASHED, f"{self._adapter.name} ended without a result.", agent=self._adapter.name
        )

    def _with_reset(self, failed: Failure) -> Failure:
        """A used-up quota with the time of its reset: the gateway saw it, also where the program does not repeat it."""
        if failed.kind is not FailureKind.MODEL_QUOTA or failed.details.get("reset_at") is not None:
            return failed
        return failed.model_copy(update={"details": {**failed.details, "reset_at": self._context.quota_reset_at()}})

    def _look(self, *, busy: bool) -> None:
        """A safe point, at most a few times a second."""
        now = time.monotonic()
        if not busy or now - self._looked_at >= IDLE_SEC:
            self._looked_at = now
            self._context.raise_if_stopped()

    def _take(self, event: AgentEvent, running: RunningAgent) -> None:
        if isinstance(event, SessionOpened):
            self._open(event)
            return
        if not self._started:
            self._open(SessionOpened(running.session_id or ""))
        match event:
            case Text(text=text, final=final):
                self._context.on_text(text)
                if final:
                    self._words = (self._words + text)[-MOST_TEXT:]
            case ToolCall():
                self._call(event)
            case ToolResult():
                self._tool_ended(event)
            case Permission():
                given = answer(event, self._context)
                if not given.allow:
                    self._denied.append(f"{event.operation} {event.subject}"[:SHOWN])
                running.answer(event.id, given.allow, given.message)
            case PlanShown(entries=entries):
                self._plan = entries
            case UsageSeen(usage=usage):
                self._used = _sum(self._used, usage)
                self._uncharged = _sum(self._uncharged, usage)
            case TurnEnded():
                self._turn_ended(running)
            case Acknowledged():
                pass  # the sender waits for it

    def _open(self, opened: SessionOpened) -> None:
        if self._started and opened.session_id in ("", self._session_id):
            return
        self._started = True
        self._session_id = opened.session_id or self._session_id
        started = SessionStarted(
            agent=self._adapter.name, session_id=self._session_id, model=opened.model, resumed=self._resumed
        )
        self._append(EventType.SESSION_STARTED, started)

    def _call(self, call: ToolCall) -> None:
        tool: JsonObject = {"tool": call.tool, "subject": call.subject[:SHOWN]}
        if self._turn is None:
            if (spent := no_turn_of_run_left(self._context.now())) is not None:
                raise CodePilotError.of(spent)
            self._turn = self._begin_turn(tool)
        if len(self._turn.tools) < MOST_TOOLS:
            self._turn.tools[call.id] = tool
            self._turn.open.add(call.id)

    def _tool_ended(self, result: ToolResult) -> None:
        if self._turn is None or result.id not in self._turn.tools:
            return
        tool = self._turn.tools[result.id]
        tool["ok"] = result.ok
        if result.text:
            tool["text"] = result.text[:SHOWN]
        if result.denied:
            tool["denied"] = True
            self._denied.append(f"{tool['tool']} {tool['subject']}"[:SHOWN])
        self._turn.open.discard(result.id)
        if not self._turn.open:
            with self._frozen():
                self._end_turn("ok")
            if self._context.session is not None:
                self._context.session.tool_ended()

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """Stop everything that runs, so that the snapshot of a turn is of one moment."""
        if self._context.still is not None:
            with self._context.still():
                yield
            return
        executor, workspace = self._context.executor, self._context.workspace
        frozen = executor.freeze(workspace)
        try:
            yield
        finally:
            if not frozen.already:
                executor.thaw(workspace)

    def _begin_turn(self, action: JsonObject) -> _Turn:
        self._number += 1
        words, self._words = self._words.strip(), ""
        action = {"agent": self._adapter.name, **action}
        if words:
            action["text"] = words
        if self._plan:
            action["plan"], self._plan = list(self._plan), ()
        self._append(EventType.TURN_STARTED, TurnStarted(turn=self._number, action=action, usage=self._charged()))
        return _Turn(self._number)

    def _end_turn(self, status: str) -> None:
        """Record the turn; the engine takes a snapshot of the files with it."""
        turn, self._turn = self._turn, None
        assert turn is not None
        observation: JsonObject = {"status": status}
        if turn.tools:
            observation["tools"] = list(turn.tools.values())
        recorded = self._append(EventType.TURN_FINISHED, TurnFinished(turn=turn.number, observation=observation)).data
        self._tree = (recorded.tree if isinstance(recorded, TurnFinished) else None) or self._tree

    def _charged(self) -> Usage:
        """A turn, with what a program without the gateway reported. A subscription is not paid by the call."""
        used, self._uncharged = self._uncharged, Usage()
        if self._settings.credentials == "gateway":
            return Usage(turns=1)
        return used.model_copy(update={"turns": 1, "cost_usd": 0.0, "unpriced_tokens": 0})

    def _turn_ended(self, running: RunningAgent) -> None:
        """A safe point of an interactive agent: it gets the findings of a checkpoint."""
        if self._context.session is None:
            return
        for message in self._context.session.turn_ended():
            running.send(message)

    def _require_progress(self, running: RunningAgent) -> None:
        """Raise if the program has reported nothing for too long; a tool that it uses may take a command's time."""
        limit = self._settings.no_progress_sec
        if self._turn is not None:
            limit = max(limit, self._context.run.task.budget.command_sec + LONG_COMMAND)
        silent = time.monotonic() - max(self._progress_at, self._context.model_active_at())
        if silent < limit:
            return
        with suppress(OSError):
            running.interrupt()
        raise CodePilotError(
            FailureKind.MODEL_TIMEOUT,
            f"{self._adapter.name} has reported nothing for {silent:.0f} s.",
            next_action="Try again with `codepilot resume`, or raise [agents] no_progress_sec.",
            agent=self._adapter.name,
        )

    def _result(self, text: str) -> PatchCandidate | Answer:
        """The end as the last turn, with the files as they are. The end of an agent that was denied is no success."""
        text = text.strip()[-MOST_TEXT:]
        self._words = ""
        self._turn = self._begin_turn({"reply": text})
        self._end_turn("ok")
        if self._context.run.task.kind is TaskKind.QUESTION:
            if not text:
                raise CodePilotError(FailureKind.MODEL_BAD_REPLY, f"{self._adapter.name} gave no answer.")
            return Answer(answer=text)
        base = self._context.run.base
        if self._denied and base is not None and self._tree == base.tree:
            listed = "; ".join(dict.fromkeys(self._denied))
            raise CodePilotError(
                FailureKind.TOOL_PERMISSION_DENIED,
                f"{self._adapter.name} was not allowed to do what it tried, and changed no file: {listed[:SHOWN]}",
                agent=self._adapter.name,
            )
        return PatchCandidate(diff="", touched_files=(), rationale=text or f"{self._adapter.name} gave no reason")

    def _append(self, kind: EventType, data: Contract) -> Event:
        return self._context.append(kind, data)


def _last_session(agent: str, history: Sequence[Event]) -> str | None:
    """The session that an interrupted start of this step left."""
    known = [event.data for event in history if isinstance(event.data, SessionStarted | SessionEnded)]
    return next((one.session_id for one in reversed(known) if one.agent == agent and one.session_id), None)


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in Usage.model_fields})
