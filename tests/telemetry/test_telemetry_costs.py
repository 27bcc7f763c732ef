"""The cost of a run is that of its tree: every part counts once, also while it is at work."""

from __future__ import annotations

from codepilot.core.children import Child
from codepilot.core.events import ChildJoined, Usage
from codepilot.core.run import Run, Spent
from codepilot.core.task import Budget, Goal, TaskSpec
from codepilot.telemetry import costs


def made(run_id: str, tokens: int, cost: float, children: tuple[Child, ...] = ()) -> Run:
    task = TaskSpec(task_id="t-1", goal=Goal(natural="x"), repo="/r", budget=Budget(cost_usd=2.0))
    return Run(run_id=run_id, task=task, spent=Spent(tokens=tokens, cost_usd=cost), children=children)


def test_a_joined_part_is_counted_once_and_one_at_work_too() -> None:
    joined = ChildJoined(child_run_id="r-1", node="a", outcome="merged", tree="t", usage=Usage(tokens=40, cost_usd=0.4))
    children = (
        Child(run_id="r-1", node="a", tree="t", budget=Budget(), joined=joined),
        Child(run_id="r-2", node="b", tree="t", budget=Budget()),
    )
    found = costs(made("r-0", 100, 1.0, children), [made("r-1", 40, 0.4), made("r-2", 7, 0.1)])
    assert [(one.node, one.tokens, round(one.cost_usd, 6)) for one in found.runs] == [
        ("", 60, 0.6),
        ("a", 40, 0.4),
        ("b", 7, 0.1),
    ]
    assert (found.tokens, found.cost_usd, found.limit_cost_usd) == (107, 1.1, 2.0)
    assert found.known_cost_usd == 1.1


def test_a_part_of_unknown_price_makes_the_cost_unknown() -> None:
    part = made("r-1", 5, 0.0).model_copy(update={"spent": Spent(tokens=5, unpriced_tokens=5)})
    assert costs(made("r-0", 0, 0.0), [part]).known_cost_usd is None
