"""Calls on the host's side: within their policies, tried again when that may help, timed and counted."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

import pytest

from codepilot.core.events import SkillCall
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Capability
from codepilot.skills import Registry, SkillPolicy, Target, basic_skills
from codepilot.skills.host_call import Caller
from codepilot.telemetry import Metrics

FULL = Capability.FULL_SHELL


class Bench:
    """A registry whose sleeps are noted and whose dice are known."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.slept: list[float] = []
        self.registry = Registry(Caller(self.metrics, self.slept.append, lambda: 0.5))

    def add(self, function: Callable[..., object], **policy: object) -> None:
        self.registry.skill(SkillPolicy.model_validate({"target": Target.LOCAL, **policy}))(function)

    def fails(self, name: str, **arguments: int) -> FailureKind:
        with pytest.raises(CodePilotError) as caught:
            self.registry.call(name, dict(arguments), FULL)
        return caught.value.kind

    def counted(self, skill: str, status: str) -> float:
        return self.metrics.value("codepilot_skill_calls_total", skill=skill, status=status)


def failing(times: int, error: Exception) -> Callable[[], int]:
    calls = []

    def flaky() -> int:
        """Fails so many times."""
        calls.append(1)
        if len(calls) <= times:
            raise error
        return len(calls)

    return flaky


def test_what_may_pass_by_itself_is_tried_again_with_growing_jittered_waits() -> None:
    bench = Bench()
    bench.add(failing(2, ConnectionResetError()))
    assert bench.registry.call("flaky", {}, FULL) == 3
    assert bench.slept == [0.2, 0.4]
    assert bench.counted("flaky", "success") == 1


@pytest.mark.parametrize(
    ("error", "policy", "kind", "waits"),
    [
        (ConnectionResetError(), {}, FailureKind.TOOL_FAILED, 2),
        (ConnectionResetError(), {"filesystem_write": True, "needs": "write_with_diff"}, FailureKind.TOOL_FAILED, 0),
        (ConnectionResetError(), {"retries": 2}, FailureKind.TOOL_FAILED, 1),
        (OSError(errno.EAGAIN, "again"), {}, FailureKind.TOOL_FAILED, 2),
        (OSError(errno.ENOENT, "none"), {}, FailureKind.TOOL_FAILED, 0),
        (ValueError("wrong"), {}, FailureKind.TOOL_FAILED, 0),
        (PermissionError("no"), {}, FailureKind.TOOL_PERMISSION_DENIED, 0),
        (CodePilotError(FailureKind.TOOL_INVALID_ARGS, "wrong"), {}, FailureKind.TOOL_INVALID_ARGS, 0),
    ],
)
def test_every_failure_is_typed_and_no_ceiling_is_passed(
    error: Exception, policy: dict[str, object], kind: FailureKind, waits: int
) -> None:
    bench = Bench()
    bench.add(failing(9, error), **policy)
    assert bench.fails("flaky") is kind
    assert len(bench.slept) == waits
    denied = kind is FailureKind.TOOL_PERMISSION_DENIED
    assert bench.counted("flaky", "policy_violation" if denied else "error") == 1


def test_a_local_skill_is_left_at_its_timeout() -> None:
    bench = Bench()
    release = threading.Event()

    def waits() -> None:
        """Waits."""
        release.wait(60)

    bench.add(waits, timeout_sec=0.05)
    assert [bench.fails("waits") for _ in range(9)] == [FailureKind.TOOL_TIMEOUT] * 9
    assert bench.slept == []
    assert bench.counted("waits", "timeout") == 9
    running = [thread for thread in threading.enumerate() if thread.name == "skill waits"]
    assert len(running) == 8
    release.set()
    for thread in running:
        thread.join(10)


def test_a_skill_cannot_end_its_caller() -> None:
    bench = Bench()

    def leaves() -> None:
        """Leaves."""
        raise SystemExit(3)

    bench.add(leaves)
    assert bench.fails("leaves") is FailureKind.TOOL_FAILED


def test_only_registered_names_become_labels() -> None:
    bench = Bench()

    def known() -> None:
        """Is known."""

    bench.registry.skill(SkillPolicy(target=Target.LOCAL))(known)
    with pytest.raises(CodePilotError):
        bench.registry.call("made up", {}, FULL)
    bench.registry.count([SkillCall(skill=f"forged {number}", status="success") for number in range(2_000)])
    bench.registry.count([SkillCall(skill="known", status="success")])
    text = bench.metrics.render()
    assert 'codepilot_skill_calls_total{skill="unknown",status="success"} 2000.0' in text
    assert 'codepilot_skill_calls_total{skill="unknown",status="error"} 1.0' in text
    assert "forged" not in text
    assert "made up" not in text
    assert 'skill="known"' not in text  # LOCAL calls are counted where they are made
    reported = bench.registry.known(
        [SkillCall(skill="forged", status="error"), SkillCall(skill="known", status="success")]
    )
    assert [call.skill for call in reported] == ["unknown", "known"]


def test_calls_from_inside_are_counted_with_their_target() -> None:
    metrics = Metrics()
    registry = Registry(Caller(metrics))
    for skill in basic_skills():
        registry.add(skill)
    registry.count([SkillCall(skill="read_file", status="success", duration_ms=2.0)])
    registry.call("check_policy", {"diff": ""}, Capability.READ_ONLY)
    durations = "codepilot_skill_duration_seconds_count"
    assert metrics.value(durations, skill="read_file", target="executor") == 1
    assert metrics.value(durations, skill="check_policy", target="local") == 1


def test_what_a_kernel_asks_is_answered_with_plain_data() -> None:
    answer = basic_skills().answer(Capability.READ_ONLY)
    assert answer("score_patch_quality", {"diff": ""})["score"] == 0.0  # type: ignore[index, call-overload]
    for name, arguments in (("read_file", {"path": "/etc/passwd"}), ("__init__", {}), ("check_policy", {"diff": 3})):
        with pytest.raises(CodePilotError) as caught:
            answer(name, arguments)
        assert caught.value.kind is FailureKind.TOOL_INVALID_ARGS


def test_everything_that_is_promised_is_shipped() -> None:
    promised = {
        "read_file", "write_file", "list_files", "search_code", "git_status", "git_diff", "apply_patch", "git_reset",
        "run_command", "create_file", "run_tests", "parse_surefire_xml", "score_patch_quality", "check_policy",
    }  # fmt: skip
    there = {skill.name: skill.manifest for skill in basic_skills()}
    assert promised <= set(there)
    assert all(manifest.input_schema["type"] == "object" for manifest in there.values())
