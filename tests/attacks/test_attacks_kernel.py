"""Code actions that attack their kernel: the host gets an answer in time, and the next action works."""

from __future__ import annotations

import pytest
from attack_kit import Attack, Targets, expected, settle, view
from corpus import of

from codepilot.sandbox import Kernel, Sandbox


@pytest.mark.parametrize("attack", of("action"), ids=lambda attack: attack.name)
def test_an_action_harms_nobody_and_the_next_one_runs(attack: Attack, sandbox: Sandbox, targets: Targets) -> None:
    kernel = Kernel(sandbox, view(targets), attack.limits)
    try:
        result = kernel.run(attack.program, timeout_sec=1.0)
        assert result.status in expected(attack, sandbox.level), result
        assert len(result.stdout) + len(result.stderr) < 1 << 20
        after = kernel.run("41 + 1", timeout_sec=10)
        if after.status != "ok" or after.value != "42":
            after = kernel.run("41 + 1", timeout_sec=10)
        assert (after.status, after.value) == ("ok", "42")
        message = (result.stdout + result.stderr + str(result.value) + str(result.error)).encode()
    finally:
        kernel.stop()
    settle(targets)
    assert targets.harm(message) == []
