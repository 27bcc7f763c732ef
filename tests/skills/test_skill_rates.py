"""The policy's rates: a skill that is called too often in a minute refuses, and says when it is free again."""

from __future__ import annotations

import pytest

from codepilot.skills import inside_call
from codepilot.skills.errors import SkillError


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
