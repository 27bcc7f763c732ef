"""Calls a skill on the host: enforces its policy, and times and counts every call."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from codepilot.core.contract import JsonObject
from codepilot.core.events import SkillCall
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.skills.inside_call import TRANSIENT
from codepilot.skills.manifest import Target
from codepilot.telemetry import METRICS, Metrics

if TYPE_CHECKING:
    from codepilot.skills.registry import Skill

BACKOFF_SEC = 0.2
MAX_OVERDUE = 8
"""The calls of one caller that may run on after their timeout before new ones are refused."""
MAX_OVERDUE_IN_ALL = 64
DURATIONS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
UNKNOWN = "unknown"

Status = Literal["success", "error", "timeout", "policy_violation"]
_STATUS: dict[FailureKind, Status] = {
    FailureKind.TOOL_TIMEOUT: "timeout",
    FailureKind.TOOL_PERMISSION_DENIED: "policy_violation",
    FailureKind.POLICY_VIOLATION: "policy_violation",
}


class Caller:
    """Calls skills within their policies. `sleep` and `jitter` make the backoff."""

    def __init__(
        self,
        metrics: Metrics = METRICS,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._sleep = sleep
        self._jitter = jitter
        self._overdue: dict[threading.Thread, str] = {}
        self._lock = threading.Lock()
        self._calls = metrics.counter(
            "codepilot_skill_calls_total", "Calls of skills by how they ended.", ("skill", "status")
        )
        self._durations = metrics.histogram(
            "codepilot_skill_duration_seconds", "How long calls of skills took.", ("skill", "target"), DURATIONS
        )

    def call(self, skill: Skill, arguments: JsonObject, capability: Capability, asker: str = "") -> Any:
        """The skill's result, or a typed failure. Calls that do not end count against their asker."""
        started = time.perf_counter()
        status: Status = "success"
        try:
            checked = _allowed(skill, arguments, capability)
            return self._tried(skill, checked, asker)
        except CodePilotError as error:
            status = _STATUS.get(error.kind, "error")
            raise
        finally:
            self.count(skill.name, skill.policy.target, status, time.perf_counter() - started)

    def count(self, name: str, target: Target, status: Status, seconds: float) -> None:
        self._calls.inc(skill=name, status=status)
        self._durations.observe(seconds, skill=name, target=target.value)

    def count_all(self, calls: Sequence[SkillCall], targets: dict[str, Target]) -> None:
        """Count calls that a kernel reports. Unknown names count as one; calls of LOCAL skills are counted already."""
        for call in calls:
            target = targets.get(call.skill)
            if target is not Target.LOCAL:
                name = UNKNOWN if target is None else call.skill
                self.count(name, Target.EXECUTOR, call.status, call.duration_ms / 1000)

    def _tried(self, skill: Skill, arguments: dict[str, Any], asker: str) -> Any:
        last = skill.policy.tries
        deadline = time.monotonic() + skill.policy.timeout_sec
        for past in range(last):
            try:
                return self._run(skill, arguments, deadline, asker)
            except Exception as error:
                wait = BACKOFF_SEC * 2**past * (0.5 + self._jitter())
                if past + 1 == last or not _transient(error) or time.monotonic() + wait >= deadline:
                    if isinstance(error, CodePilotError):
                        raise
                    raise _typed(skill, error) from error
            self._sleep(wait)
        raise AssertionError("a skill is tried at least once")

    def _run(self, skill: Skill, arguments: dict[str, Any], deadline: float, asker: str) -> Any:
        """Run the body in a thread until the deadline. A later result is dropped."""
        with self._lock:
            self._overdue = {thread: whose for thread, whose in self._overdue.items() if thread.is_alive()}
            askers = list(self._overdue.values())
        if askers.count(asker) >= MAX_OVERDUE or len(askers) >= MAX_OVERDUE_IN_ALL:
            raise _Overdue(
                f"{askers.count(asker) or len(askers)} earlier calls still run; {skill.name} was not started."
            )
        given: list[Any] = []
        raised: list[BaseException] = []

        def body() -> None:
            try:
                given.append(skill.function(**arguments))
            except BaseException as error:  # noqa: BLE001  (raised in the caller's thread)
                raised.append(error)

        thread = threading.Thread(target=body, name=f"skill {skill.name}", daemon=True)
        thread.start()
        thread.join(max(0.0, deadline - time.monotonic()))
        if given:
            return given[0]
        if raised and isinstance(raised[0], Exception):
            raise raised[0]
        if raised:
            raise RuntimeError(f"it ended itself ({type(raised[0]).__name__})")
        with self._lock:
            self._overdue[thread] = asker
        raise _Overdue(f"{skill.name} took longer than its {skill.policy.timeout_sec:g} s.")


class _Overdue(Exception):
    """Not transient: what ran too long once runs too long again."""


def _allowed(skill: Skill, arguments: JsonObject, capability: Capability) -> dict[str, Any]:
    """The arguments as the function takes them, if the call may be made at all."""
    name = skill.name
    if skill.policy.target is not Target.LOCAL:
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS,
            f"{name} runs inside a workspace.",
            next_action="Call it from a code action.",
        )
    if not capability.allows(skill.policy.needs):
        raise CodePilotError(
            FailureKind.TOOL_PERMISSION_DENIED, f"{name} needs {skill.policy.needs}; the task has {capability}."
        )
    try:
        checked = skill.arguments.model_validate(arguments)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'the arguments'}: {problem['msg']}"
            for problem in error.errors()[:5]
        )
        raise CodePilotError(
            FailureKind.TOOL_INVALID_ARGS, f"{name}: {wrong} (it is {skill.signature})", signature=skill.signature
        ) from None
    return {field: getattr(checked, field) for field in type(checked).model_fields}


def _transient(error: Exception) -> bool:
    """True if the same call may succeed in a moment."""
    if isinstance(error, CodePilotError):
        return error.failure.handling.retryable and error.kind is not FailureKind.TOOL_TIMEOUT
    if isinstance(error, OSError):
        return isinstance(error, (ConnectionError, TimeoutError)) or error.errno in TRANSIENT
    return False


def _typed(skill: Skill, error: Exception) -> CodePilotError:
    if isinstance(error, (_Overdue, TimeoutError)):
        return CodePilotError(FailureKind.TOOL_TIMEOUT, str(error) or f"{skill.name} timed out.", skill=skill.name)
    if isinstance(error, PermissionError):
        return CodePilotError(FailureKind.TOOL_PERMISSION_DENIED, f"{skill.name}: {error}", skill=skill.name)
    message = f"{skill.name}: {type(error).__name__}: {error}"[:2000]
    return CodePilotError(FailureKind.TOOL_FAILED, message, skill=skill.name)
