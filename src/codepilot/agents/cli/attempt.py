"""One attempt of a batch task: a program is given the prompt as it is, and code classifies how that ended."""

from __future__ import annotations

import posixpath
import time
from collections import deque
from dataclasses import replace
from datetime import datetime

from codepilot.agents.cli.failures import MISSING
from codepilot.agents.cli.protocol import AgentAdapter, AgentEvent, AgentStart, RunningAgent, Text, ToolCall, ToolResult
from codepilot.agents.cli.pty import PtyAdapter, PtyAgent, Watching
from codepilot.agents.cli.settings import CliSettings
from codepilot.agents.cli.step import CliStep
from codepilot.agents.protocol import StepContext, denied
from codepilot.core.artifacts import PatchCandidate
from codepilot.core.attempt import (
    Attempt,
    AttemptEnded,
    End,
    KeysSent,
    MarkerWatch,
    Outcome,
    Seen,
    classify,
    matching,
    reset_time,
)
from codepilot.core.events import EventType
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.executor import StartProcess
from codepilot.sandbox import Process

KEPT_OUTPUT = 4 << 20
"""So much of the end of a program's output is kept with the run."""
SHOWN = 300
_OUTCOMES: dict[FailureKind, Outcome] = {
    FailureKind.MODEL_AUTH: "failed_auth",
    FailureKind.MODEL_QUOTA: "failed_quota",
    FailureKind.TOOL_PERMISSION_DENIED: "failed_permission_blocked",
    FailureKind.POLICY_VIOLATION: "failed_permission_blocked",
    FailureKind.DENIED: "failed_permission_blocked",
    FailureKind.MODEL_TIMEOUT: "failed_timeout",
}


class _Stopped(Exception):
    """The program is to be ended here."""

    def __init__(self, ended: End) -> None:
        super().__init__(ended)
        self.ended = ended


class AttemptStep(CliStep):
    """One program's attempt. Nobody is asked: what the task's policy does not allow is denied."""

    def __init__(self, adapter: AgentAdapter, settings: CliSettings, context: StepContext, attempt: Attempt) -> None:
        self._attempt = attempt
        self._marker = MarkerWatch(attempt.marker, attempt.prompt)
        self._marked_at: float | None = None
        self._until = time.monotonic() + attempt.timeout_sec
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._running: RunningAgent | None = None
        if isinstance(adapter, PtyAdapter):
            watching = Watching(attempt.marker, frozenset(attempt.answers), self._output, self._keys)
            adapter = adapter.watched(attempt.profile, watching)
        super().__init__(adapter, settings, replace(context, ask=denied))

    def make(self) -> PatchCandidate:
        """Let the program work once, and record how that ended."""
        failure: Failure | None = None
        ended: End = "exit"
        try:
            self._add_output(self._run_once(self._attempt.prompt, None))
        except _Stopped as stopped:
            ended = stopped.ended
        except CodePilotError as error:
            if self._context.stopped():
                raise
            failure = error.failure
        self._record(ended, failure)
        return PatchCandidate(diff="", touched_files=(), rationale=f"what the attempt of {self._adapter.name} left")

    def _starting(self, prompt: str, resume: str | None) -> AgentStart:
        """In the directory of the task: of the workspace, or the directory itself."""
        start, task = super()._starting(prompt, resume), self._context.run.task
        changed = {"in_place": task.repo} if self._attempt.in_place else {"cwd": task.path or "."}
        directory = task.repo if self._attempt.in_place else posixpath.join(start.directory, task.path).rstrip("/")

        def start_process(request: StartProcess) -> Process:
            return start.start_process(request.model_copy(update=changed))

        return replace(start, start_process=start_process, directory=directory)

    def _follow(self, running: RunningAgent) -> str:
        self._running = running
        return super()._follow(running)

    def _look(self, *, busy: bool) -> None:
        super()._look(busy=busy)
        now = time.monotonic()
        if now >= self._until:
            raise _Stopped("timeout")
        if self._marked_at is not None and now - self._marked_at >= self._attempt.profile.grace_sec:
            raise _Stopped("after_marker")

    def _take(self, event: AgentEvent, running: RunningAgent) -> None:
        super()._take(event, running)
        if isinstance(running, PtyAgent):
            return
        match event:
            case Text(text=text, final=True):
                self._output(f"{text}\n".encode())
            case ToolCall(tool=tool, subject=subject):
                self._output(f"> {tool} {subject}\n".encode())
            case ToolResult(ok=ok, text=text) if not ok:
                self._output(f"! {text[:SHOWN]}\n".encode())
        if isinstance(event, Text) and event.final:
            self._add_output(event.text)

    def _add_output(self, text: str) -> None:
        if self._marker.look(text) and self._marked_at is None:
            self._marked_at = time.monotonic()

    def _require_progress(self, running: RunningAgent) -> None:
        """The attempt's own time is the only limit."""

    def _output(self, data: bytes) -> None:
        self._context.on_output(data)
        self._kept.append(data)
        self._size += len(data)
        while self._size > KEPT_OUTPUT and len(self._kept) > 1:
            self._size -= len(self._kept.popleft())

    def _keys(self, sent: KeysSent) -> None:
        self._context.append(EventType.KEYS_SENT, sent)

    def _record(self, ended: End, failure: Failure | None) -> None:
        running = self._running
        if isinstance(running, PtyAgent):
            self._context.on_text(running.rest())
            seen, keys = running.seen(ended), running.keys
            outcome = classify(seen, self._attempt.profile.auth_regex, self._attempt.profile.quota_regex)
        else:
            marked = self._marked_at is not None
            code = None if ended != "exit" else (0 if failure is None else _exit_code(failure))
            seen, keys = Seen(ended=ended, marker=marked, exit_code=code, text=""), {}
            outcome = _outcome_of(seen, failure)
        log = self._context.keep(b"".join(self._kept)) if self._kept else None
        data = AttemptEnded(
            outcome=outcome,
            marker_seen=seen.marker,
            exit_code=seen.exit_code,
            ended=seen.ended,
            keys=keys,
            message="" if outcome == "completed" else self._message(outcome, seen, failure),
            log=log,
            reset_at=_reset_at(seen, failure) if outcome == "failed_quota" else None,
        )
        self._context.append(EventType.ATTEMPT_ENDED, data, () if log is None else (log,))

    def _message(self, outcome: Outcome, seen: Seen, failure: Failure | None) -> str:
        profile = self._attempt.profile
        match outcome:
            case "failed_timeout":
                return f"It had not ended after {self._attempt.timeout_sec:g} s."
            case "failed_incomplete":
                return f"It ended without the line {self._attempt.marker}."
            case "failed_auth" | "failed_quota":
                patterns = profile.auth_regex if outcome == "failed_auth" else profile.quota_regex
                if line := matching(patterns, seen.text):
                    return line[:SHOWN]
        if failure is not None and (seen.exit_code in (None, MISSING) or not isinstance(self._running, PtyAgent)):
            return failure.message[:SHOWN]
        return _end_with_code(seen, self._attempt.marker)


def _end_with_code(seen: Seen, marker: str) -> str:
    """The code of a program that ended itself, and the last line that it printed."""
    how = f"It printed {marker}, but ended" if seen.marker else "It ended"
    lines = [line.strip() for line in seen.text.splitlines() if line.strip() and marker not in line]
    return f"{how} with code {seen.exit_code}{': ' + lines[-1][:SHOWN] if lines else '.'}"


def _outcome_of(seen: Seen, failure: Failure | None) -> Outcome:
    """The class of an attempt of a program that reports its end itself."""
    if failure is None:
        return classify(seen, (), ())
    return _OUTCOMES.get(failure.kind, "failed_process")


def _reset_at(seen: Seen, failure: Failure | None) -> int | None:
    """When the quota is there again, as a protocol or the program's words say."""
    reset_at = failure.details.get("reset_at") if failure is not None else None
    if isinstance(reset_at, int):
        return reset_at
    words = seen.text or (failure.message if failure is not None else "")
    at = reset_time(words, datetime.now().astimezone())
    return None if at is None else round(at.timestamp() * 1_000_000)


def _exit_code(failure: Failure) -> int:
    code = failure.details.get("exit_code")
    return code if isinstance(code, int) else 1
