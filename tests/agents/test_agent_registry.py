from __future__ import annotations

import pytest

from codepilot.agents import ROLES, make_agent
from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.models import ScriptedModel
from codepilot.skills import basic_skills


def test_agents_are_made_by_name_and_declare_their_roles() -> None:
    assert make_agent("repair").roles == {State.IMPLEMENT}
    codeact = make_agent("codeact", model=ScriptedModel([]), skills=basic_skills())
    assert codeact.name == "codeact"
    assert codeact.roles == {State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.REFLECT, State.REVIEW}


def test_a_name_that_cannot_be_served_is_refused_with_what_to_do() -> None:
    with pytest.raises(CodePilotError, match="There is no agent 'nobody'") as caught:
        make_agent("nobody")
    assert "codeact, repair" in caught.value.failure.advice
    with pytest.raises(CodePilotError, match="needs a chat model") as caught:
        make_agent("codeact")
    assert caught.value.kind is FailureKind.INVALID_SPEC


@pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.name)
def test_a_role_asks_only_for_what_a_model_can_know(role: object) -> None:
    schema = role.schema()  # type: ignore[attr-defined]
    for given in role.given:  # type: ignore[attr-defined]
        assert f'"{given}"' not in schema
    assert "title" not in schema or '"title": {"type"' in schema
    assert role.template.read_text()  # type: ignore[attr-defined]
