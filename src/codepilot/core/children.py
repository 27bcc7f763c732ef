"""The child runs of a run, each at work on one node of its plan: what the run knows of them, folded from its events."""

from __future__ import annotations

from collections.abc import Sequence

from codepilot.core.contract import Contract
from codepilot.core.events import ChildJoined, ChildStarted
from codepilot.core.plan import NodeStatus, Plan, with_status
from codepilot.core.task import Budget


class Child(Contract):
    """A run that works, or worked, on one node of the plan."""

    run_id: str
    node: str
    tree: str
    """The tree on which it began."""
    budget: Budget
    joined: ChildJoined | None = None
    """What became of it; None while it is at work."""
    kept: bool = True
    """False once another plan began without its change."""


def started(event: ChildStarted) -> Child:
    return Child(run_id=event.child_run_id, node=event.node, tree=event.tree, budget=event.budget)


def joined(children: Sequence[Child], event: ChildJoined) -> tuple[Child, ...]:
    """The children after one of them ended."""
    return tuple(
        child.model_copy(update={"joined": event}) if child.run_id == event.child_run_id else child
        for child in children
    )


def at_work(children: Sequence[Child]) -> tuple[Child, ...]:
    """The children that were begun and have not been joined."""
    return tuple(child for child in children if child.joined is None)


def dropped(children: Sequence[Child], plan: Plan | None) -> tuple[tuple[Child, ...], Plan | None]:
    """The children and the plan of a fork: those at work stay with the original, and their nodes are open again."""
    left = [child.node for child in at_work(children)]
    ended = tuple(child for child in children if child.joined is not None)
    return ended, with_status(plan, NodeStatus.PENDING, *left) if plan is not None and left else plan


def remembered(children: Sequence[Child], plan: Plan | None) -> tuple[Child, ...]:
    """The children under a changed plan: what they made counts only while their nodes stay succeeded."""
    done = {node.id for node in plan.nodes if node.status is NodeStatus.SUCCEEDED} if plan is not None else set()
    return tuple(
        child if child.joined is None or child.node in done else child.model_copy(update={"kept": False})
        for child in children
    )


def merged_changes(children: Sequence[Child], plan: Plan | None) -> tuple[Child, ...]:
    """The children whose changes are part of the work: the last one of each node that succeeded, as they were joined.

    They stay when another iteration begins, while nodes that the run worked on by itself start again.
    """
    done = {node.id for node in plan.nodes if node.status is NodeStatus.SUCCEEDED} if plan is not None else set()
    last = {child.node: child for child in children if child.kept and child.joined and child.joined.outcome == "merged"}
    return tuple(child for child in children if child.node in done and last.get(child.node) is child)
