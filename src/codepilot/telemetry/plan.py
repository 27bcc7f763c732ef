"""The parts of a run's plan with what became of each, for every view. Pure."""

from collections.abc import Sequence

from codepilot.core.children import Child
from codepilot.core.contract import Contract
from codepilot.core.plan import NodeStatus, Plan


class PlanPart(Contract):
    """One node of the plan as it stands."""

    id: str
    title: str
    status: NodeStatus
    depends_on: tuple[str, ...] = ()
    depth: int = 0
    """How many parts it waits for one after the other."""
    child_run_id: str | None = None
    """The child run that worked on it last, if there was one."""
    touched_files: tuple[str, ...] = ()
    """The files that this run changed."""
    conflicts: int = 0
    """How often it was done again because its change conflicted with another part's."""


def plan_parts(plan: Plan | None, children: Sequence[Child] = ()) -> tuple[PlanPart, ...]:
    """The parts in the order of the plan."""
    if plan is None:
        return ()
    of_node: dict[str, list[Child]] = {}
    for child in children:
        of_node.setdefault(child.node, []).append(child)
    depths = depths_of(plan)
    parts = []
    for node in plan.nodes:
        runs = of_node.get(node.id, [])
        last = runs[-1] if runs else None
        parts.append(
            PlanPart(
                id=node.id,
                title=node.title or node.tool or node.role or node.id,
                status=node.status,
                depends_on=node.depends_on,
                depth=depths[node.id],
                child_run_id=last.run_id if last else None,
                touched_files=last.joined.touched_files if last and last.joined else (),
                conflicts=sum(1 for one in runs if one.joined and one.joined.outcome == "conflict"),
            )
        )
    return tuple(parts)


def depths_of(plan: Plan) -> dict[str, int]:
    """For each node the length of the longest way to it."""
    found: dict[str, int] = {}
    left = list(plan.nodes)
    while left:
        for node in [one for one in left if set(one.depends_on) <= found.keys()]:
            found[node.id] = max((found[before] + 1 for before in node.depends_on), default=0)
            left.remove(node)
    return found
