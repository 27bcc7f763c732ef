"""A plan's nodes: which are ready, and which stay done when another iteration begins."""

from __future__ import annotations

import pytest
from run_kit import Log, red

from codepilot.core.decide import Failed
from codepilot.core.events import EventType, NodeChanged, State, TurnFinished
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.plan import NodeStatus, Plan, PlanNode, ready_nodes


def test_nodes_are_walked_in_order_and_those_begun_come_first() -> None:
    log = Log()
    log.reach(State.PLAN)
    nodes = (PlanNode(id="b", depends_on=("a",)), PlanNode(id="a"), PlanNode(id="c", status=NodeStatus.SUCCEEDED))
    log.record(EventType.PLAN_CREATED, Plan(nodes=nodes))
    log.reach(State.IMPLEMENT)

    def ready() -> list[str]:
        assert log.now.plan is not None
        return [node.id for node in ready_nodes(log.now.plan)]

    assert ready() == ["a", "c"], "a plan cannot call its own work done"
    log.record(EventType.NODE_STARTED, NodeChanged(node="c"))
    assert ready() == ["c", "a"]
    log.record(EventType.NODE_SUCCEEDED, NodeChanged(node="c"))
    log.record(EventType.NODE_FAILED, NodeChanged(node="a"))
    assert ready() == []


LOOK_AND_MEND = (
    PlanNode(id="look"),
    PlanNode(id="mend", depends_on=("look",)),
    PlanNode(id="check", depends_on=("mend",)),
)


@pytest.mark.parametrize(
    ("changed_at", "left"),
    [(None, ["check"]), ("look", ["look", "mend", "check"]), ("mend", ["mend", "check"]), ("check", ["check"])],
)
def test_another_iteration_keeps_nodes_whose_work_is_still_there(changed_at: str | None, left: list[str]) -> None:
    log = Log()
    log.reach(State.PLAN)
    log.record(EventType.PLAN_CREATED, Plan(nodes=LOOK_AND_MEND))
    log.reach(State.IMPLEMENT)
    for number, node in enumerate(LOOK_AND_MEND):
        log.record(EventType.NODE_STARTED, NodeChanged(node=node.id))
        tree = f"tree {number}" if node.id == changed_at else log.now.tree
        log.record(EventType.TURN_FINISHED, TurnFinished(turn=1, observation={}, tree=tree))
        log.record(EventType.NODE_SUCCEEDED, NodeChanged(node=node.id))
    log.reach(State.TEST)
    log.ends(red())
    log.reach(State.IMPLEMENT)
    assert log.now.plan is not None
    assert [node.id for node in log.now.plan.nodes if node.status is not NodeStatus.SUCCEEDED] == left


def test_another_iteration_keeps_what_succeeded_next_to_a_node_that_failed() -> None:
    log = Log()
    log.reach(State.PLAN)
    log.record(EventType.PLAN_CREATED, Plan(nodes=LOOK_AND_MEND))
    log.reach(State.IMPLEMENT)
    log.record(EventType.NODE_SUCCEEDED, NodeChanged(node="look"))
    log.record(EventType.NODE_FAILED, NodeChanged(node="mend", blocked=("check",)))
    log.ends(Failed(Failure(kind=FailureKind.PATCH_CONFLICT, message="it does not apply")))
    log.reach(State.IMPLEMENT)
    assert log.now.plan is not None
    assert [node.id for node in ready_nodes(log.now.plan)] == ["mend"]
