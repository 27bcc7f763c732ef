"""Partial replanning: only the affected part of a plan is done again, what succeeded outside it stays. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from codepilot.core.children import Child, merged_changes
from codepilot.core.events import PlanRevised, State
from codepilot.core.plan import NodeStatus, Plan, ancestors, reopened, waiting_for, with_status
from codepilot.core.run import Run

_WORD = re.compile(r"[A-Za-z_]\w*")


def revision(run: Run, reason: str) -> PlanRevised | None:
    """The plan of the next iteration; None if no part of it was worked on by a child run.

    Parts that did not succeed are done again. If all did, the gates or the review blame some of them.
    """
    plan = run.plan
    if plan is None or not merged_changes(run.children, plan):
        return None
    blame = () if any(node.status is not NodeStatus.SUCCEEDED for node in plan.nodes) else blamed(run)
    again = affected(plan, blame)
    return _revised(
        plan, reopened(with_status(plan, NodeStatus.PENDING, *again) if again else plan, run.changed_by), reason
    )


def without(plan: Plan, lost: Iterable[str], reason: str) -> PlanRevised:
    """The plan in which these nodes, and those that depend on them, are done again."""
    return _revised(plan, with_status(plan, NodeStatus.PENDING, *affected(plan, lost)), reason)


def replanned(run: Run, made: Plan, reason: str) -> PlanRevised | None:
    """A new plan added to the succeeded parts that are not to blame; None if the new plan replaces everything.

    The parts that stay keep their place and result, whatever the new plan says about them.
    """
    plan, kept = run.plan, staying_parts(run)
    if plan is None or not kept:
        return None
    stay = tuple(node for node in plan.nodes if node.id in kept)
    fresh = tuple(node.model_copy(update={"status": NodeStatus.PENDING}) for node in made.nodes if node.id not in kept)
    if not fresh:
        return revision(run, reason)
    return _revised(plan, made.model_copy(update={"nodes": (*stay, *fresh)}), reason, fresh=[one.id for one in fresh])


def staying_parts(run: Run) -> tuple[str, ...]:
    """The nodes that stay when the run plans again: merged, not to blame, and built on nothing that is lost."""
    if run.plan is None:
        return ()
    merged = [child.node for child in merged_changes(run.children, run.plan)]
    left = set(merged) - set(affected(run.plan, blamed(run)))
    return tuple(node for node in merged if node in left and ancestors(run.plan, node) <= left)


def affected(plan: Plan, nodes: Iterable[str]) -> tuple[str, ...]:
    """These nodes and those that depend on them, in the order of the plan."""
    found = {*nodes}
    found |= {after for node in tuple(found) for after in waiting_for(plan, node)}
    return tuple(node.id for node in plan.nodes if node.id in found)


def blamed(run: Run) -> tuple[str, ...]:
    """The nodes whose changes the last failure points at; all of them if it points at none.

    The reflection may name them. Otherwise each error belongs to the node whose file is mentioned last in its
    traceback, or whose functions it mentions.
    """
    owners = merged_changes(run.children, run.plan)
    if run.state is State.REFLECT and run.reflection is not None:
        named = [child.node for child in owners if child.node in run.reflection.nodes]
        if named:
            return tuple(named)
    found = {node for text in _evidence(run) for node in _owners_of(text, owners)}
    return tuple(child.node for child in owners if child.node in found or not found)


def _evidence(run: Run) -> list[str]:
    texts: list[str] = []
    if run.test_result is not None and not run.test_result.passed:
        texts += [f"{one.test}\n{one.traceback}\n{one.message}" for one in run.test_result.errors]
        texts += [gate.evidence for gate in run.test_result.gates if gate.ok is False and gate.name != "fail_to_pass"]
    elif run.review is not None and run.review.verdict != "APPROVE":
        texts += run.review.reasons
    return [text for text in texts if text.strip()]


def _owners_of(text: str, owners: Sequence[Child]) -> list[str]:
    """The nodes that one error belongs to."""
    last = [(max((text.rfind(path) for path in _files(child)), default=-1), child.node) for child in owners]
    if (deepest := max(last, default=(-1, ""))) and deepest[0] >= 0:
        return [deepest[1]]
    words = set(_WORD.findall(text))
    for names in (_symbols, _stems):
        hits = {child.node: len(words & names(child)) for child in owners}
        if most := max(hits.values(), default=0):
            return [node for node, count in hits.items() if count == most]
    return []


def _files(child: Child) -> tuple[str, ...]:
    return child.joined.touched_files if child.joined else ()


def _symbols(child: Child) -> set[str]:
    return set(child.joined.symbols) if child.joined else set()


def _stems(child: Child) -> set[str]:
    return {PurePosixPath(path).stem for path in _files(child)}


def _revised(old: Plan, new: Plan, reason: str, fresh: Sequence[str] = ()) -> PlanRevised:
    before = {node.id: node for node in old.nodes}
    now = {node.id: node for node in new.nodes}
    open_now = [node for node, at in now.items() if at.status is NodeStatus.PENDING]
    return PlanRevised(
        plan=new,
        reason=reason,
        reopened=tuple(node for node in open_now if node in before and node not in fresh),
        added=tuple(fresh),
        dropped=tuple(node for node in before if node not in now),
        kept=tuple(node for node, at in now.items() if at.status is NodeStatus.SUCCEEDED),
    )
