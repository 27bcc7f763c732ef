"""The plan: a graph of nodes, of which ready ones are worked on."""

from enum import StrEnum
from typing import Literal, Self

from pydantic import model_validator

from codepilot.core.contract import Contract, JsonObject


class NodeStatus(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    BLOCKED = "blocked"


_OPEN = (NodeStatus.PENDING, NodeStatus.RUNNING)


class PlanNode(Contract):
    """One part of the work: of a role (the Implementer by default), or one call of a tool."""

    id: str
    kind: Literal["tool", "agent"] = "agent"
    title: str = ""
    role: str = ""
    tool: str | None = None
    args: JsonObject = {}
    depends_on: tuple[str, ...] = ()
    status: NodeStatus = NodeStatus.PENDING


class PlanMetadata(Contract):
    rationale: str = ""
    version: str = "v1"
    created_at: str = ""


class Critique(Contract):
    """The critic's word on a plan or a change."""

    verdict: Literal["APPROVE", "REQUEST_CHANGES"]
    reasons: tuple[str, ...] = ()
    """What would do harm, and what should be done instead."""
    risks: tuple[str, ...] = ()
    """Why a critic was asked."""


class Plan(Contract):
    """How the change will be made, which paths it may touch, and how it will be judged."""

    nodes: tuple[PlanNode, ...]
    metadata: PlanMetadata = PlanMetadata()
    root_cause: str = ""
    approach: str = ""
    files_to_examine: tuple[str, ...] = ()
    acceptance_criteria: tuple[str, ...] = ()
    regression_strategy: str = ""
    expected_challenges: tuple[str, ...] = ()
    testing_strategy: str = ""
    allowed_areas: tuple[str, ...] = ()
    forbidden_areas: tuple[str, ...] = ()
    contracts: tuple[str, ...] = ()
    critique: Critique | None = None
    """The critic's word on the plan, where something about it is risky."""

    @model_validator(mode="after")
    def _is_a_dag(self) -> Self:
        ids = [node.id for node in self.nodes]
        if len(set(ids)) != len(ids):
            raise ValueError("node ids repeat")
        for node in self.nodes:
            unknown = set(node.depends_on) - set(ids)
            if unknown:
                raise ValueError(f"node {node.id} depends on unknown nodes: {', '.join(sorted(unknown))}")
        if len(walk_order(self.nodes)) != len(self.nodes):
            raise ValueError("the nodes depend on each other in a circle")
        return self


def walk_order(nodes: tuple[PlanNode, ...]) -> list[str]:
    """Node ids with every dependency before its dependants; nodes in a circle are left out."""
    done: list[str] = []
    waiting = list(nodes)
    while waiting:
        ready = [node for node in waiting if set(node.depends_on) <= set(done)]
        if not ready:
            break
        done.extend(node.id for node in ready)
        waiting = [node for node in waiting if node not in ready]
    return done


def with_status(plan: Plan, status: NodeStatus, *ids: str) -> Plan:
    """The plan with this status for these nodes, or for every node."""
    nodes = (node.model_copy(update={"status": status}) if not ids or node.id in ids else node for node in plan.nodes)
    return plan.model_copy(update={"nodes": tuple(nodes)})


def reopened(plan: Plan, changed_by: tuple[str, ...]) -> Plan:
    """The plan for another iteration, which starts from the base.

    Succeeded nodes stay succeeded, except those that changed files, whose changes are lost, and nodes that depend on
    them. If no node is left, the nodes on which no other depends are done again.
    """
    lost = {*changed_by, *(node for one in changed_by for node in waiting_for(plan, one))}
    kept = {node.id for node in plan.nodes if node.status is NodeStatus.SUCCEEDED} - lost
    if len(kept) == len(plan.nodes):
        kept &= {needed for node in plan.nodes for needed in node.depends_on}
    left = [node.id for node in plan.nodes if node.id not in kept]
    return with_status(plan, NodeStatus.PENDING, *left) if left else plan


def waiting_for(plan: Plan, node_id: str) -> tuple[str, ...]:
    """The nodes that depend on this one, directly or through others."""
    found = {node_id}
    by_id = {node.id: node for node in plan.nodes}
    for each in walk_order(plan.nodes):
        if found & set(by_id[each].depends_on):
            found.add(each)
    return tuple(node.id for node in plan.nodes if node.id in found and node.id != node_id)


def ancestors(plan: Plan, node_id: str) -> frozenset[str]:
    """The nodes that this one depends on, directly or through others."""
    by_id = {node.id: node for node in plan.nodes}
    found: set[str] = set()
    ahead = [*by_id[node_id].depends_on] if node_id in by_id else []
    while ahead:
        if (one := ahead.pop()) not in found:
            found.add(one)
            ahead.extend(by_id[one].depends_on)
    return frozenset(found)


def ready_nodes(plan: Plan) -> tuple[PlanNode, ...]:
    """Open nodes whose dependencies have succeeded or were skipped; running ones come first."""
    finished = {n.id for n in plan.nodes if n.status in (NodeStatus.SUCCEEDED, NodeStatus.SKIPPED)}
    found = [n for n in plan.nodes if n.status in _OPEN and set(n.depends_on) <= finished]
    return tuple(sorted(found, key=lambda node: node.status is not NodeStatus.RUNNING))
