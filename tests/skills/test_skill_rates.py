"""The policy inside: a skill that is called too often, or that it denies, refuses and says why."""

from __future__ import annotations

import pytest

from codepilot.core.permit import written_rules
from codepilot.core.policy import Policy
from codepilot.skills import inside_call
from codepilot.skills.errors import PolicyError, SkillError


def test_a_skill_refuses_beyond_its_rate_until_the_minute_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(inside_call, "RATES", '{"rated": 2}')
    monkeypatch.setattr(inside_call.time, "monotonic", lambda: now[0])

    def rated() -> str:
        return "done"

    def free() -> str:
        return "done"

    call, other = inside_call.called(rated), inside_call.called(free)
    assert [call(), call()] == ["done", "done"]
    with pytest.raises(SkillError, match=r"rates\.rated.*60 s"):
        call()
    assert [other() for _ in range(5)] == ["done"] * 5
    now[0] = 61.0
    assert call() == "done"


def test_a_skill_that_the_policy_denies_refuses_under_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy.model_validate(
        {"tools": {"deny": ["listed"]}, "arguments": [{"tool": "judged", "pattern": "*.lock"}]}
    )
    monkeypatch.setattr(inside_call, "POLICY", written_rules(policy))

    def listed() -> str:
        return "done"

    def judged(path: str) -> str:
        return path

    with pytest.raises(PolicyError, match=r"tools\.deny"):
        inside_call.called(listed)()
    call = inside_call.called(judged)
    assert call("a.py") == "a.py"
    with pytest.raises(PolicyError, match=r"arguments\.judged"):
        call("poetry.lock")
