"""Contracts are closed, frozen, canonical, and their schemas are current."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from codepilot.core.artifacts import Review
from codepilot.core.contract import canonical_json
from codepilot.core.events import DATA, Event, EventDraft, EventType, RunPaused, StepStarted
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.pipeline import PIPELINES
from codepilot.core.plan import NodeStatus, Plan, PlanNode, ready_nodes, walk_order
from codepilot.core.task import Budget, Capability, Goal, TaskKind, TaskSpec

ROOT = Path(__file__).parent.parent.parent


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        Goal.model_validate({"natural": "x", "surprise": 1})


def test_contracts_are_frozen() -> None:
    goal = Goal(natural="x")
    with pytest.raises(ValidationError, match="frozen"):
        goal.natural = "y"  # type: ignore[misc]


def test_the_seeds_names_are_accepted_as_input() -> None:
    task = TaskSpec.model_validate(
        {
            "taskId": "t-1",
            "type": "bugfix",
            "goal": {"natural": "fix"},
            "repoUrl": "/r",
            "repoRef": "main",
            "budget": {"max_steps": 10, "max_wall_time_sec": 1200, "maxPatchLOC": 50},
            "riskProfile": {"capability": "read_only"},
        }
    )
    assert (task.kind, task.ref, task.budget.turns, task.budget.wall_sec) == (TaskKind.BUGFIX, "main", 10, 1200)
    assert task.budget.patch_lines == 50


def test_an_empty_goal_says_what_to_do() -> None:
    with pytest.raises(ValidationError, match="say what should be done"):
        TaskSpec(task_id="t", goal=Goal(natural="  "), repo="/r")


def test_defaults_by_kind() -> None:
    assert PIPELINES[TaskKind.BUGFIX].budget == Budget()
    assert PIPELINES[TaskKind.BUILD].budget.iterations == 15


def test_the_review_writes_the_names_of_its_schema() -> None:
    written = Review(verdict="APPROVE", patch_loc=3).model_dump(by_alias=True)
    assert written["patchLOC"] == 3
    assert "policyChecks" in written


def test_the_capability_ladder() -> None:
    ladder = list(Capability)
    for index, step in enumerate(ladder):
        assert [step.allows(other) for other in ladder] == [i <= index for i in range(len(ladder))]


def test_every_event_type_has_its_data_and_survives_json() -> None:
    assert set(DATA) == set(EventType)
    event = Event(type=EventType.RUN_PAUSED, data=RunPaused(reason="lunch"), event_id="e", seq=1, run_id="r", at=5)
    assert Event.model_validate_json(event.model_dump_json()) == event


def test_an_event_refuses_data_of_another_type() -> None:
    with pytest.raises(ValidationError, match="run_paused carries RunPaused"):
        EventDraft(type=EventType.RUN_PAUSED, data=StepStarted(worker="w", fence=1))


def test_a_circular_plan_is_refused() -> None:
    with pytest.raises(ValidationError, match="circle"):
        Plan(nodes=(PlanNode(id="a", depends_on=("b",)), PlanNode(id="b", depends_on=("a",))))
    with pytest.raises(ValidationError, match="unknown"):
        Plan(nodes=(PlanNode(id="a", depends_on=("z",)),))


@given(st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=8))
def test_walking_ready_nodes_visits_every_node_after_its_dependencies(edges: list[set[int]]) -> None:
    nodes = tuple(
        PlanNode(id=str(i), depends_on=tuple(str(d) for d in sorted(before) if d < i)) for i, before in enumerate(edges)
    )
    plan = Plan(nodes=nodes)
    order: list[str] = []
    while ready := ready_nodes(plan):
        order.append(ready[0].id)
        done = ready[0].model_copy(update={"status": NodeStatus.SUCCEEDED})
        plan = plan.model_copy(update={"nodes": tuple(done if n.id == done.id else n for n in plan.nodes)})
    assert sorted(order) == sorted(walk_order(nodes)) == sorted(node.id for node in nodes)
    for node in nodes:
        assert all(order.index(before) < order.index(node.id) for before in node.depends_on)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=5))
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: dict[str, object]) -> None:
    assert canonical_json(value) == canonical_json(dict(reversed(value.items())))


def test_errors_carry_plain_facts() -> None:
    error = CodePilotError(FailureKind.DISK_FULL, "no room", path=Path("/x"), files={"a"})
    assert error.failure.details == {"path": "/x", "files": ["a"]}
    assert error.failure.advice


def test_what_docs_generate_from_the_code_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "scripts")
    exported = runpy.run_path(str(ROOT / "scripts" / "export_schemas.py"))
    assert exported["stale"]() == [], "run: make schemas"
