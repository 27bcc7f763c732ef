"""What each role's model reads, word for word; after a change that was meant, `make snapshots` writes it again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from codepilot.agents import PARTS, ROLES, CodeActAgent, Role
from codepilot.agents.roles import CRITIC
from codepilot.context import Survey
from codepilot.core.artifacts import PatchCandidate, RepoMap, Review, TestError, TestResult
from codepilot.core.events import EventType, PatchProposed, State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.plan import Plan, PlanNode
from codepilot.models import Message, ScriptedModel

if TYPE_CHECKING:
    from conftest import Harness

SNAPSHOTS = Path(__file__).with_name("snapshots")
EVERY = {role.name: role for role in (*ROLES.values(), *PARTS, CRITIC)}
DIFF = """--- a/shop/price.py
+++ b/shop/price.py
@@ -8,2 +8,2 @@
-    return amount - amount * discount // 10
+    return amount - amount * discount // 1000
"""


class Asked(Exception):
    """The opening is all that is wanted."""


def opening_of(role: Role, harness: Harness) -> tuple[Message, ...]:
    def ask(messages: object) -> str:
        raise Asked

    model = ScriptedModel(ask)
    roles = {**ROLES, role.state: role}
    with pytest.raises(Asked):
        CodeActAgent(model, roles=roles).perform(role.state, harness.context(role.state))
    return model.requests[0]


def so_far(harness: Harness, role: Role, survey: Survey) -> None:
    """A run in the middle of its work: everything that some role is shown exists."""
    harness.survey = lambda: survey
    plan = Plan(
        nodes=() if role.state is State.IMPLEMENT else (PlanNode(id="one", title="mend total"),),
        root_cause="a percentage is a hundredth",
        approach="divide by 100",
        acceptance_criteria=("a discount of 20 is a fifth",),
        regression_strategy="one test for each boundary",
        allowed_areas=("shop/",),
        forbidden_areas=("shop/__init__.py",),
    )
    error = TestError(
        test="tests/test_price.py::test_discount", error_type="AssertionError", message="assert 980 == 800"
    )
    failed = TestResult(
        passed=False,
        cmd=("pytest",),
        exit_code=1,
        failed_tests_after=("tests/test_price.py::test_discount",),
        errors=(error,),
        log_tail="1 failed, 2 passed",
    )
    patch = PatchCandidate(diff=DIFF, touched_files=("shop/price.py",), rationale="r")
    ref = harness.keep(DIFF.encode())
    harness.run = harness.run.model_copy(
        update={
            "repo_map": RepoMap(build_system="pytest", test_cmd=("pytest",), test_files=("tests/test_price.py",)),
            "plan": plan,
            "proposal": PatchProposed(patch=patch, diff=ref, tree="t", snapshot="s"),
            "attempted": (patch,),
            "test_result": failed,
            "review": Review(verdict="REQUEST_CHANGES", patch_loc=2, reasons=("divide by 100",)),
        }
    )


@pytest.mark.parametrize("name", sorted(EVERY))
def test_the_prompt_of_a_role_is_the_one_on_record(harness: Harness, survey: Survey, name: str) -> None:
    so_far(harness, EVERY[name], survey)
    text = "\n\n".join(f"===== {message.role} =====\n{message.content}" for message in opening_of(EVERY[name], harness))
    kept = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("RENEW_SNAPSHOTS"):
        kept.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == kept.read_text(encoding="utf-8"), "if this was meant: make snapshots"


@pytest.mark.parametrize(
    ("name", "unseen"),
    [
        ("RepoMapper", ["# Plan", "# Reflection", "divide by 1000"]),
        ("Planner", ["# The review asked for", "# Plan\n"]),
        ("Reflector", ["# Repository", "# The review asked for"]),
        ("Reviewer", ["# Failures so far", "# Repository"]),
        ("TestWriter", ["# Reflection", "# Changes that did not hold", "# Plan\n"]),
    ],
)
def test_a_role_sees_only_what_it_needs(harness: Harness, survey: Survey, name: str, unseen: list[str]) -> None:
    so_far(harness, EVERY[name], survey)
    task = opening_of(EVERY[name], harness)[1].content
    assert [title for title in unseen if title in task] == []


def test_what_was_chosen_of_the_repository_is_recorded_once_a_step(harness: Harness, survey: Survey) -> None:
    harness.edit()
    harness.survey = lambda: survey
    harness.run = harness.run.model_copy(
        update={"plan": Plan(nodes=(PlanNode(id="a"), PlanNode(id="b", depends_on=("a",))))}
    )
    model = ScriptedModel(['<result>{"rationale": "r"}</result>'] * 2)
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    (gathered,) = harness.of(EventType.CONTEXT_GATHERED)
    assert "shop/price.py" in [choice.path for choice in gathered.data.choices]  # type: ignore[attr-defined]
    assert all("def total(prices, discount=0):" in request[1].content for request in model.requests)


def test_a_repository_that_cannot_be_mapped_is_worked_on_all_the_same(harness: Harness) -> None:
    harness.edit()

    def broken() -> Survey:
        raise CodePilotError(FailureKind.INTERNAL, "no grammar")

    harness.survey = broken
    model = ScriptedModel(['<result>{"rationale": "r"}</result>'])
    CodeActAgent(model).perform(State.IMPLEMENT, harness.context())
    (degraded,) = harness.of(EventType.DEPENDENCY_DEGRADED)
    assert degraded.data.dependency == "context"  # type: ignore[attr-defined]


def test_prompts_are_short() -> None:
    for role in EVERY.values():
        assert len(role.template.read_text(encoding="utf-8")) < 900, role.name
