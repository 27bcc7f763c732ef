"""Independent parts of a plan side by side: which begin, what each may spend, and when the run goes on. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from codepilot.core.children import Child, at_work
from codepilot.core.events import (
    TERMINAL,
    WAITING,
    BasePinned,
    ChildStarted,
    EventDraft,
    EventType,
    NodeChanged,
    RunResumed,
    State,
    StepQueued,
    TaskSpecRecorded,
    Usage,
)
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.plan import NodeStatus, Plan, PlanNode, ancestors, ready_nodes, with_status
from codepilot.core.run import Run
from codepilot.core.spending import total
from codepilot.core.task import Budget, TaskSpec

ONE_AFTER_THE_OTHER = ("scripted:", "replay:")
"""Models whose replies come in one order: their plans are worked on part by part."""
CHILD_ITERATIONS = 2
"""How often a child may attempt its node."""


def begin_now(run: Run) -> tuple[PlanNode, ...]:
    """The nodes that begin as child runs now: independent parts of the plan, as many as the budget lets be at work.

    A node that is ready alone is no child: the run works on it by itself.
    """
    plan, limit = run.plan, run.task.budget.parallel
    if plan is None or limit < 2 or run.task.parent_run_id is not None:
        return ()
    if (run.task.model or "").startswith(ONE_AFTER_THE_OTHER):
        return ()
    open_children = {child.node for child in at_work(run.children)}
    ready = ready_nodes(plan)
    if any(node.status is NodeStatus.RUNNING and node.id not in open_children for node in ready):
        return ()  # interrupted in the middle of a node of its own
    free = [node for node in ready if node.kind == "agent" and node.status is NodeStatus.PENDING]
    if len(free) + len(open_children) < 2:
        return ()
    return tuple(free[: max(0, limit - len(open_children))])


def shared_budget(run: Run, children: int) -> Budget:
    """What each of so many new children may spend: an equal part of what is left, one part of which stays here."""
    budget, spent = run.task.budget, run.spent
    reserved = [child.budget for child in at_work(run.children)]
    tokens = int(total(run, "tokens")) - spent.tokens - sum(one.tokens for one in reserved)
    cost = total(run, "cost_usd") - spent.cost_usd - sum(one.cost_usd for one in reserved)
    changes: dict[str, object] = {
        "iterations": CHILD_ITERATIONS,
        "parallel": 1,
        "tokens": max(1, tokens // (children + 1)),
        "cost_usd": max(0.0, round(cost / (children + 1), 6)),
        "wall_sec": max(1.0, total(run, "wall_sec") - spent.wall_us / 1e6),
    }
    if budget.turns is not None or "turns" in run.limits:
        turns = int(total(run, "turns")) - spent.turns - sum(one.turns or 0 for one in reserved)
        changes["turns"] = max(1, turns // (children + 1))
    return budget.model_copy(update=changes)


def child_id(run: Run, number: int) -> str:
    """The id of the child that begins as number `number`, the same after a crash."""
    return f"{run.run_id}-c{number}"


def starts(run: Run, nodes: tuple[PlanNode, ...], tree: str) -> list[ChildStarted]:
    """The children that begin on these nodes, all on the same tree."""
    budget, first = shared_budget(run, len(nodes)), len(run.children) + 1
    return [
        ChildStarted(child_run_id=child_id(run, number), node=node.id, tree=tree, budget=budget)
        for number, node in enumerate(nodes, start=first)
    ]


def child_task(run: Run, child: Child) -> TaskSpec:
    """The task of a child: its parent's, for one node, and judged with its parent's."""
    number = child.run_id.rpartition("-c")[2]
    return run.task.model_copy(
        update={
            "task_id": f"{run.task.task_id}-c{number}",
            "parent_run_id": run.run_id,
            "node_id": child.node,
            "budget": child.budget,
            "policy": run.task.policy.model_copy(update={"free_first": False}),
            "accept": (),
            "branch": None,
            "notify": False,
        }
    )


def child_events(run: Run, child: Child, base: BasePinned, done: Mapping[str, NodeChanged]) -> list[EventDraft]:
    """The first events of a child: its base, and what its parent knows, so that it begins where its parent is.

    `done` are the results of the nodes that succeeded.
    """
    drafts = [
        EventDraft(type=EventType.TASK_SPEC_RECORDED, data=TaskSpecRecorded(task=child_task(run, child))),
        EventDraft(type=EventType.BASE_PINNED, data=base, artifacts=base.carried),
    ]
    if run.repo_map is not None:
        drafts.append(EventDraft(type=EventType.REPO_MAPPED, data=run.repo_map))
    if run.plan is not None:
        part = part_of(run.plan, child.node)
        drafts.append(EventDraft(type=EventType.PLAN_CREATED, data=part))
        before = [done.get(node.id, NodeChanged(node=node.id)) for node in part.nodes if node.id != child.node]
        drafts += [EventDraft(type=EventType.NODE_SUCCEEDED, data=changed) for changed in before]
    drafts += [
        EventDraft(type=EventType.CHILD_JOINED, data=past.joined.model_copy(update={"usage": Usage(), "wall_us": 0}))
        for past in run.children
        if past.node == child.node and past.joined is not None and past.joined.outcome == "conflict"
    ]
    for kind, data in (
        (EventType.TESTS_JUDGED, run.test_result),
        (EventType.REFLECTION_RECORDED, run.reflection),
        (EventType.REVIEW_RECORDED, run.review),
    ):
        if data is not None:
            drafts.append(EventDraft(type=kind, data=data))
    first = f"s-{child.run_id.removeprefix('r-')}-0001"
    queued = StepQueued(state=State.INIT, reason=f"part {child.node} of {run.run_id}", narrowed=run.narrowed)
    return [*drafts, EventDraft(type=EventType.STEP_QUEUED, data=queued, step_id=first, attempt=1)]


def part_of(plan: Plan, node_id: str) -> Plan:
    """The plan of a child: its node and those that the node builds on."""
    wanted = {*ancestors(plan, node_id), node_id}
    nodes = tuple(node for node in plan.nodes if node.id in wanted)
    return with_status(plan.model_copy(update={"nodes": nodes}), NodeStatus.PENDING)


def decide_children(run: Run, states: Mapping[str, State]) -> list[EventDraft]:
    """Let a run that waits for its children go on if one ended, or if none can go on without a person.

    `states` are the states of its children.
    """
    if not run.awaits_children or run.state is not State.BLOCKED:
        return []
    found = [states[child.run_id] for child in at_work(run.children) if child.run_id in states]
    ended = any(state in TERMINAL for state in found)
    stalled = run.failure is None and bool(found) and all(state in WAITING for state in found)
    if not (ended or stalled):
        return []
    return [EventDraft(type=EventType.RUN_RESUMED, data=RunResumed(), step_id=run.step_id, attempt=run.attempt)]


def child_failure(child: Run) -> Failure:
    """Why a child did not succeed, as a failure of its parent."""
    failure = child.failure or Failure(kind=FailureKind.INTERNAL, message=f"it ended {child.state}")
    budget = failure.details.get("budget") if failure.kind is FailureKind.BUDGET_EXCEEDED else None
    if budget == "iterations" and child.failures:
        failure = child.failures[-1]
    details = {**failure.details, "node": child.task.node_id or "", "child_run_id": child.run_id}
    message = f"Part {child.task.node_id} of the plan failed: {failure.message}"
    return failure.model_copy(update={"message": message, "details": details})
