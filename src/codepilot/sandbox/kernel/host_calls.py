"""Answers the calls that a kernel makes to the host, and reads its record of calls. All of it can be forged."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from typing import Any, Literal, cast

from pydantic import JsonValue

from codepilot.core.contract import JsonObject
from codepilot.core.events import SkillCall
from codepilot.core.failures import CodePilotError, FailureKind

Answer = Callable[[str, JsonObject], JsonValue]
"""Calls a skill that runs on the host's side, by name and arguments."""

MAX_ASKS = 1_000
MAX_BYTES = 16 << 20
MAX_CALLS = 1_100
_LOOK_SEC = 0.05
_NAME_CHARS = 100
_VIOLATION_CHARS = 500
_ARGUMENTS_CHARS = 300
_VIOLATION = "policy_violation"
_LONGEST_MS = 1e10


class HostCalls:
    """Answers the calls of one action one by one. It never raises."""

    def __init__(self, answer: Answer | None) -> None:
        self._answer = answer
        self._count = 0
        self._noted: list[object] = []

    def note(self, row: object) -> None:
        """Keep a violation that was reported at once: the kernel may not live to reply."""
        if len(self._noted) < MAX_CALLS:
            self._noted.append(row)

    def calls(self, reported: tuple[SkillCall, ...]) -> tuple[SkillCall, ...]:
        """The calls of a reply, with the violations noted before that it leaves out."""
        noted = read_calls(self._noted, None)
        kept = [call for call in reported if call.status != _VIOLATION]
        return reported if len(reported) - len(kept) >= len(noted) else (*noted, *kept)

    def reply(self, message: dict[str, Any], given_up: Callable[[], bool]) -> bytes:
        """The line that answers `message`, at the latest when `given_up` says so."""
        self._count += 1
        number, skill, arguments = message.get("call"), message.get("skill"), message.get("arguments")
        result: dict[str, JsonValue]
        if not isinstance(skill, str) or not isinstance(arguments, dict):
            result = _error(FailureKind.TOOL_INVALID_ARGS, "A call names a skill and its arguments.")
        elif self._answer is None:
            result = _error(FailureKind.TOOL_FAILED, "No skill of the host's can be called here.")
        elif self._count > MAX_ASKS:
            result = _error(FailureKind.TOOL_FAILED, f"An action may call the host {MAX_ASKS} times.")
        else:
            result = _run(self._answer, skill, cast(JsonObject, arguments), given_up)
        return _line(number if isinstance(number, int) else 0, result)


def _run(answer: Answer, skill: str, arguments: JsonObject, given_up: Callable[[], bool]) -> dict[str, JsonValue]:
    """Call in a thread, so that the action's deadline and interrupts hold for any skill."""
    done = threading.Event()
    result: list[dict[str, JsonValue]] = []

    def call() -> None:
        try:
            result.append({"value": answer(skill, arguments)})
        except CodePilotError as error:
            result.append(_error(error.kind, error.failure.message))
        except Exception as error:  # noqa: BLE001  (a skill may raise anything; it becomes the answer)
            result.append(_error(FailureKind.TOOL_FAILED, f"{skill}: {type(error).__name__}: {error}"))
        finally:
            done.set()

    threading.Thread(target=call, name=f"skill {skill[:_NAME_CHARS]}", daemon=True).start()
    while not done.wait(_LOOK_SEC):
        if given_up():
            return _error(FailureKind.TOOL_TIMEOUT, f"{skill} had not answered when the action's time was over.")
    return result[0] if result else _error(FailureKind.TOOL_FAILED, f"{skill} was ended.")


def _line(number: int, result: dict[str, JsonValue]) -> bytes:
    try:
        line = json.dumps({"call": number, **result}).encode()
    except (TypeError, ValueError, RecursionError) as error:
        return _line(number, _error(FailureKind.TOOL_FAILED, f"The answer is no plain data: {type(error).__name__}"))
    if len(line) > MAX_BYTES:
        return _line(number, _error(FailureKind.TOOL_FAILED, f"The answer is larger than {MAX_BYTES >> 20} MiB."))
    return line + b"\n"


def _error(kind: FailureKind, message: str) -> dict[str, JsonValue]:
    return {"error": {"kind": kind.value, "message": message[:2000]}}


def read_calls(value: object, stopped: Literal["timeout", "interrupted"] | None) -> tuple[SkillCall, ...]:
    """The calls in a reply. Malformed rows are dropped. `stopped` says how the action ended."""
    if not isinstance(value, list):
        return ()
    statuses = {"success", "error", "timeout", _VIOLATION}
    calls = []
    for row in value[:MAX_CALLS]:
        if not isinstance(row, list) or len(row) not in (4, 6):
            continue
        skill, status, duration, violation, arguments, exit_ = (*row, "", "")[:6]
        if not all(isinstance(text, str) for text in (skill, status, violation, arguments, exit_)):
            continue
        if isinstance(duration, bool) or not isinstance(duration, (int, float)) or not 0 <= duration < math.inf:
            continue
        if status == "interrupted":
            status = "timeout" if stopped == "timeout" else "error"
        if status in statuses:
            calls.append(
                SkillCall(
                    skill=_clean(skill, _NAME_CHARS),
                    status=cast(Any, status),
                    duration_ms=float(min(duration, _LONGEST_MS)),
                    violation=_clean(violation, _VIOLATION_CHARS),
                    arguments=_clean(arguments, _ARGUMENTS_CHARS),
                    exit=_clean(exit_, _NAME_CHARS),
                )
            )
    return tuple(calls)


def _clean(text: str, limit: int) -> str:
    return text[:limit].encode("utf-8", "backslashreplace").decode()
