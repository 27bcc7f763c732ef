"""Independent parts of a plan as child runs: begin them, wait for them, and join their changes by three-way merge.

The step that implements a plan begins its children and ends there; the run waits without a worker. It goes on when a
child has ended: the step then merges the change, does a conflicting part again on the merged tree, and begins what has
become ready. The gates judge the merged tree. Every start and every join is an event, so nothing is done twice.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from codepilot.core.artifacts import ArtifactRef
from codepilot.core.children import Child, at_work, merged_changes
from codepilot.core.decide import AwaitsChildren, Failed, Outcome, Paused, Succeeded
from codepilot.core.events import (
    TERMINAL,
    BaselineRecorded,
    ChildJoined,
    Event,
    EventDraft,
    EventType,
    NodeChanged,
    SnapshotTaken,
    State,
    Usage,
)
from codepilot.core.failures import CodePilotError, Failure, FailureKind
from codepilot.core.parallel import begin_now, child_events, child_failure, starts
from codepilot.core.plan import waiting_for
from codepilot.core.replan import without
from codepilot.core.run import Run
from codepilot.engine.base import carry_base, fetch_base
from codepilot.engine.change.proposal import lay_tree
from codepilot.engine.execution_context import ExecutionContext
from codepilot.engine.work import Work, recall_baseline
from codepilot.workspace import Merge, ObjectStore, merge_trees

MOST_SYMBOLS = 50
_SYMBOL = re.compile(r"\b(?:def|class|function|func|fn|interface|struct)\s+([A-Za-z_]\w*)")


def tend(work: Work, context: ExecutionContext) -> Outcome | None:
    """Join the children that ended and begin those that can; None when the run goes on by itself."""
    if work.run.task.parent_run_id is not None or work.run.plan is None:
        return None
    waiting = [(child, _child_run(work, child)) for child in at_work(work.run.children)]
    ended = [(child, run) for child, run in waiting if run.state in TERMINAL]
    if ended:
        _join(work, context, ended)
    left = [run for _, run in waiting if run.state not in TERMINAL]
    failed = _failed_part(work)
    if failed is None and begin_now(work.run):
        _begin(work, context)
        return AwaitsChildren(tuple(child.run_id for child in at_work(work.run.children)))
    if left:
        return _wait(left)
    return None if failed is None else Failed(failed)


def _wait(left: list[Run]) -> Outcome:
    """Wait for those at work; if all of them wait for a person, say for what."""
    resting = [run for run in left if run.state in (State.PAUSED, State.BLOCKED) and not run.soon_back]
    children = tuple(run.run_id for run in left)
    if len(resting) < len(left):
        return AwaitsChildren(children)
    blocked = next((run for run in resting if run.failure is not None), None)
    if blocked is None or blocked.failure is None:
        return Paused(f"part {resting[0].task.node_id} of the plan is paused")
    node = blocked.task.node_id or ""
    message = f"Part {node} of the plan waits: {blocked.failure.message}"
    details = {**blocked.failure.details, "node": node, "child_run_id": blocked.run_id}
    return AwaitsChildren(children, blocked.failure.model_copy(update={"message": message, "details": details}))


def _failed_part(work: Work) -> Failure | None:
    """Why a part failed in this step, if one did: no other begins after that."""
    for event in work.history():
        if isinstance(event.data, ChildJoined) and event.data.outcome == "failed":
            return event.data.failure
    return None


# Begin ----------------------------------------------------------------------------------------------


def _begin(work: Work, context: ExecutionContext) -> None:
    """Record the next children, then their runs: one that a crash kept from being recorded is recorded later."""
    nodes = begin_now(work.run)
    titles = {node.id: NodeChanged(node=node.id, role=node.role, note=node.title) for node in nodes}
    begun = starts(work.run, nodes, _shared_tree(work, context))
    drafts = [
        draft
        for start in begun
        for draft in (
            work.draft(EventType.NODE_STARTED, titles[start.node]),
            work.draft(EventType.CHILD_STARTED, start),
        )
    ]
    work.append(drafts)
    for child in at_work(work.run.children):
        _child_run(work, child)


def _child_run(work: Work, child: Child) -> Run:
    """The child as it is now; it is recorded if it is not yet."""
    if work.store.families.children_of(work.run.run_id).get(child.run_id) is None:
        base = work.base.model_copy(update={"tree": child.tree, "proposed": None, "measured": None})
        base = carry_base(work.runtime, base)
        work.store.create_run(child.run_id, child_events(work.run, child, base, _results(work)))
    return work.store.load(child.run_id)


def _results(work: Work) -> dict[str, NodeChanged]:
    """What the nodes that succeeded came to."""
    done = (event for event in work.store.events(work.run.run_id) if event.type is EventType.NODE_SUCCEEDED)
    return {event.data.node: event.data for event in done if isinstance(event.data, NodeChanged)}


def _shared_tree(work: Work, context: ExecutionContext) -> str:
    """The tree of the workspace, in the object store from which children are made."""
    diff = context.executor.diff(work.workspace, work.base.tree)
    if not context.objects.has_tree(diff.tree):
        made = context.objects.apply(work.base.tree, diff.patch)
        if made != diff.tree:
            raise CodePilotError(FailureKind.INTERNAL, "The workspace's tree could not be carried to its child runs.")
    return diff.tree


# Join -----------------------------------------------------------------------------------------------


@dataclass
class _Joining:
    """The merged tree so far, and what to record of each child."""

    tree: str
    drafts: list[EventDraft]


def _join(work: Work, context: ExecutionContext, ended: list[tuple[Child, Run]]) -> None:
    """Merge what the children changed into the workspace, and record it in one transaction."""
    before = _shared_tree(work, context)
    joining = _Joining(before, [])
    longest = max(run.spent.wall_us for _, run in ended)
    for number, (child, run) in enumerate(ended):
        _join_one(work, context, joining, child, run, longest if number == 0 else 0)
    kept: list[EventDraft] = []
    if joining.tree != before:
        kept = put_tree(work, context, joining.tree)
    work.append([*joining.drafts, *kept])


def _join_one(work: Work, context: ExecutionContext, joining: _Joining, child: Child, run: Run, wall_us: int) -> None:
    spent = run.spent
    usage = Usage(
        turns=spent.turns, tokens=spent.tokens, cost_usd=spent.cost_usd, unpriced_tokens=spent.unpriced_tokens
    )
    joined = ChildJoined(
        child_run_id=child.run_id, node=child.node, outcome="failed", tree=joining.tree, usage=usage, wall_us=wall_us
    )
    if run.state is not State.DONE or run.proposal is None:
        failure = child_failure(run)
        blocked = waiting_for(work.run.plan, child.node) if work.run.plan is not None else ()
        named = NodeChanged(node=child.node, failure=failure, blocked=blocked)
        joining.drafts += [
            work.draft(EventType.CHILD_JOINED, joined.model_copy(update={"failure": failure})),
            work.draft(EventType.NODE_FAILED, named),
        ]
        return
    patch, change = run.proposal.patch, run.proposal.diff
    merge = _merge(work, context, joining.tree, run)
    joined = joined.model_copy(
        update={
            "outcome": "conflict" if merge.conflicts else "merged",
            "tree": merge.tree,
            "touched_files": patch.touched_files,
            "conflicts": merge.conflicts,
            "symbols": _symbols(patch.diff),
            "change": change,
        }
    )
    joining.drafts.append(work.draft(EventType.CHILD_JOINED, joined, (change,)))
    if not merge.conflicts:
        joining.tree = merge.tree
        joining.drafts.append(work.draft(EventType.NODE_SUCCEEDED, _result_of(work, run)))


def _merge(work: Work, context: ExecutionContext, ours: str, run: Run) -> Merge:
    assert run.base is not None
    assert run.proposal is not None
    fetch_base(work.runtime, run.base, context.objects)
    return _merge_change(work, context.objects, ours, run.base.tree, run.proposal.diff)


def _merge_change(work: Work, objects: ObjectStore, ours: str, base: str, change: ArtifactRef) -> Merge:
    return merge_trees(objects, base, ours, objects.apply(base, work.artifacts.get(change)))


def _result_of(work: Work, run: Run) -> NodeChanged:
    """What the child's node came to, as the child recorded it."""
    found = [event for event in work.store.events(run.run_id) if _is_result(event, run.task.node_id or "")]
    data = found[-1].data if found else None
    if isinstance(data, NodeChanged):
        return data
    note = run.proposal.patch.rationale if run.proposal else ""
    return NodeChanged(node=run.task.node_id or "", note=note)


def _is_result(event: Event, node: str) -> bool:
    return event.type is EventType.NODE_SUCCEEDED and isinstance(event.data, NodeChanged) and event.data.node == node


def _symbols(diff: str) -> tuple[str, ...]:
    """The names of functions and classes in and around the changed lines."""
    lines = (line for line in diff.splitlines() if line[:1] in "+-@ ")
    return tuple(dict.fromkeys(name for line in lines for name in _SYMBOL.findall(line)))[:MOST_SYMBOLS]


def put_tree(work: Work, context: ExecutionContext, tree: str) -> list[EventDraft]:
    """Make the workspace hold a tree of the object store; the events that record it."""
    lay_tree(work, context, tree)
    return work.snapshot_events(work.snapshot())


def restore_kept(work: Work, context: ExecutionContext) -> None:
    """At the beginning of an iteration: bring back the changes of the parts that stay."""
    kept = merged_changes(work.run.children, work.run.plan)
    if not kept or any(isinstance(event.data, SnapshotTaken) for event in work.history()):
        return
    base = tree = work.run.accepted_tree or work.base.tree
    lost: list[str] = []
    for child in kept:
        if child.joined is not None and child.joined.change is not None:
            merge = _merge_change(work, context.objects, tree, child.tree, child.joined.change)
            tree = merge.tree
            lost += [child.node] if merge.conflicts else []
    if lost and work.run.plan is not None:
        reason = "their changes do not fit without the parts that are done again"
        work.record(EventType.PLAN_REVISED, without(work.run.plan, lost, reason))
        restore_kept(work, context)  # fewer are kept now
    elif tree != base:
        work.append(put_tree(work, context, tree))


# Inside a child -------------------------------------------------------------------------------------


def initialise_child(work: Work, project_of: Run) -> Outcome:
    """INIT of a child: its parent has judged the base; only a workspace is made."""
    if (done := work.recorded(BaselineRecorded)) is not None:
        return Succeeded(f"part {work.run.task.node_id}, {len(done.targets)} failing test(s)")
    work.record_sandbox()
    project, baseline = recall_baseline(work.artifacts, project_of)
    work.make_workspace(project)
    assert project_of.baseline is not None
    report = project_of.baseline.report
    work.conclude(EventType.BASELINE_RECORDED, project_of.baseline, () if report is None else (report,))
    return Succeeded(f"part {work.run.task.node_id}, {len(baseline.targets)} failing test(s)")
