from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest

from codepilot.agents import ROLES, AgentParts, AgentSpec, RepairAgent, agent_spec, make_agent, registry
from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.models import ScriptedModel
from codepilot.skills import basic_skills


def test_agents_are_made_by_name_and_declare_their_roles() -> None:
    assert make_agent("repair").roles == {State.IMPLEMENT}
    codeact = make_agent("codeact", AgentParts(model=ScriptedModel([]), skills=basic_skills()))
    assert codeact.name == "codeact"
    assert agent_spec("codeact").needs_model
    assert agent_spec("codeact").languages is None
    assert not agent_spec("repair").needs_model
    assert agent_spec("repair").languages == {"python"}
    assert codeact.roles == {State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.REFLECT, State.REVIEW}


def test_a_name_that_cannot_be_served_is_refused_with_what_to_do() -> None:
    with pytest.raises(CodePilotError, match="There is no agent 'nobody'") as caught:
        make_agent("nobody")
    assert "codeact, codex" in caught.value.failure.advice
    assert "pty:COMMAND" in caught.value.failure.advice
    with pytest.raises(CodePilotError, match="needs a chat model") as caught:
        make_agent("codeact")
    assert caught.value.kind is FailureKind.INVALID_SPEC


OTHER = AgentSpec(name="other", make=lambda parts: RepairAgent(), roles=frozenset({State.IMPLEMENT}))
INCOMPLETE = AgentSpec(name="part", make=lambda parts: SimpleNamespace(name="part"), roles=OTHER.roles)  # type: ignore[arg-type]


@pytest.fixture
def read_anew() -> Iterator[None]:
    """What is installed is read anew in the test, and after it."""
    registry._points.cache_clear()
    yield
    registry._points.cache_clear()


@pytest.mark.usefixtures("read_anew")
def test_installed_packages_add_agents_and_cannot_replace_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    points = (
        EntryPoint("other", f"{__name__}:OTHER", registry.GROUP),
        EntryPoint("broken", "no.such.module:SPEC", registry.GROUP),
        EntryPoint("part", f"{__name__}:INCOMPLETE", registry.GROUP),
        EntryPoint("repair", f"{__name__}:OTHER", registry.GROUP),
        EntryPoint("strange", f"{__name__}:EntryPoint", registry.GROUP),
    )
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    assert agent_spec("other") is OTHER
    assert agent_spec("repair").languages == {"python"}
    programs = {"claude", "codex", "gemini", "opencode"}
    assert {*registry.agent_names()} == {
        "broken",
        "codeact",
        "other",
        "part",
        "repair",
        "strange",
        "template",
        *programs,
    }
    for name in ("broken", "strange"):
        with pytest.raises(CodePilotError, match="cannot be loaded") as caught:
            agent_spec(name)
        assert caught.value.kind is FailureKind.INVALID_SPEC
    with pytest.raises(CodePilotError, match="'part' is incomplete: it has no roles and no needs"):
        make_agent("part")


def test_the_package_declares_the_agents_it_brings() -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    points = declared["project"]["entry-points"][registry.GROUP]
    assert points == {point.name: point.value for point in registry.BUILT_IN}


@pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.name)
def test_a_role_asks_only_for_what_a_model_can_know(role: object) -> None:
    schema = role.schema()  # type: ignore[attr-defined]
    assert not set(role.given) & set(role.fields())  # type: ignore[attr-defined]
    assert "title" not in schema or '"title": {"type"' in schema
    assert role.template.read_text()  # type: ignore[attr-defined]
