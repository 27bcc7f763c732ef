"""Calls that an action makes of its caller: who answers them, in this process and over HTTP."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import JsonValue

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.executor.protocol import HostAnswer, HostCall
from codepilot.sandbox import Answer


def with_host_calls(names: Collection[str], caller: Answer | None, installed: Answer | None) -> Answer | None:
    """The caller answers what it named; the skills that are installed beside the executor answer the rest."""
    if caller is None or not names:
        return installed

    def answer(function: str, arguments: JsonObject) -> JsonValue:
        if function in names:
            return caller(function, arguments)
        if installed is None:
            raise CodePilotError(FailureKind.TOOL_FAILED, f"{function} cannot be called here.")
        return installed(function, arguments)

    return answer


def answer_of(answer: Answer | None, call: HostCall, workspace: str, action: str) -> HostAnswer:
    """Answer a call that came over HTTP. A failure becomes the call's error, which the action can handle."""
    given = HostAnswer(workspace=workspace, action=action, number=call.number)
    try:
        if answer is None:
            raise CodePilotError(FailureKind.TOOL_FAILED, f"{call.function} cannot be called here.")
        return given.model_copy(update={"value": answer(call.function, call.arguments)})
    except CodePilotError as error:
        return given.model_copy(update={"error": error.failure})
    except Exception as error:  # noqa: BLE001 - a function may raise anything; the action is told
        message = f"{call.function}: {type(error).__name__}: {error}"[:2000]
        return given.model_copy(update={"error": Failure(kind=FailureKind.TOOL_FAILED, message=message)})
