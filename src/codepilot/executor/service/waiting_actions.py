"""Actions whose host calls the HTTP caller answers: each waits between two requests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from pydantic import JsonValue

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor.local import LocalExecutor
from codepilot.executor.protocol import Conflict, HostAnswer, RunCode, Unfinished
from codepilot.executor.service.admission import Busy
from codepilot.sandbox import CodeResult, HostCall

KEPT = 64
"""How many ended actions keep their replies for repeated requests."""


@dataclass
class _Action:
    request: RunCode
    replies: list[CodeResult | BaseException] = field(default_factory=list)
    """One for each host call, then the result."""
    answers: dict[int, HostAnswer] = field(default_factory=dict)
    ended: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def run(self, run: Callable[[], CodeResult]) -> None:
        reply: CodeResult | BaseException
        try:
            reply = run()
        except BaseException as error:  # noqa: BLE001 - raised again in the waiting request
            reply = error
        with self.changed:
            self.ended = True
            self.replies.append(reply)
            self.changed.notify_all()

    def ask(self, function: str, arguments: JsonObject) -> JsonValue:
        with self.changed:
            number = len(self.replies)
            call = HostCall(number=number, function=function, arguments=arguments)
            self.replies.append(CodeResult(status="host_call", host_call=call))
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.ended or number in self.answers)
            given = self.answers.get(number)
        if given is None:
            raise CodePilotError(FailureKind.TOOL_TIMEOUT, f"{function} was not answered in time.")
        if given.error is not None:
            raise CodePilotError.of(given.error)
        return given.value

    def give(self, answer: HostAnswer) -> None:
        with self.changed:
            if answer.number >= len(self.replies):
                raise Conflict(f"the action {answer.action!r} has made no call {answer.number}")
            self.answers.setdefault(answer.number, answer)
            self.changed.notify_all()

    def reply(self, number: int) -> CodeResult:
        with self.changed:
            self.changed.wait_for(lambda: len(self.replies) > number)
            found = self.replies[number]
        if isinstance(found, BaseException):
            raise found
        return found


class WaitingActions:
    """The actions of a service by workspace and key. Every request may be repeated."""

    def __init__(self, executor: LocalExecutor) -> None:
        self._executor = executor
        self._actions: OrderedDict[tuple[str, str], _Action] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, request: RunCode) -> CodeResult:
        """Run an action until it makes its first host call, or ends."""
        if not request.idempotency_key:
            raise CodePilotError(FailureKind.TOOL_INVALID_ARGS, "an action with host calls needs an idempotency key")
        with self._lock:
            action = self._actions.get(_key(request))
            if action is None:
                action = self._start(request)
        if action.request != request:
            raise Conflict(f"the key {request.idempotency_key!r} was used for another request")
        return action.reply(0)

    def answer(self, answer: HostAnswer) -> CodeResult:
        """Resume an action until its next host call, or its end."""
        with self._lock:
            action = self._actions.get((answer.workspace, answer.action))
        if action is None:
            raise Unfinished(answer.action)
        action.give(answer)
        return action.reply(answer.number + 1)

    def _start(self, request: RunCode) -> _Action:
        if any(name == request.workspace and not one.ended for (name, _), one in self._actions.items()):
            raise Busy(f"an action in {request.workspace} waits for an answer of its caller")
        ended = [key for key, one in self._actions.items() if one.ended]
        for key in ended[: max(0, len(ended) - KEPT)]:
            del self._actions[key]
        action = self._actions[_key(request)] = _Action(request)
        run = threading.Thread(
            target=action.run,
            args=(lambda: self._executor.run_code(request, action.ask),),
            name="codepilot-action",
            daemon=True,
        )
        run.start()
        return action


def _key(request: RunCode) -> tuple[str, str]:
    return request.workspace, request.idempotency_key
