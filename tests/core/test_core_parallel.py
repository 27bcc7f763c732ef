"""Independent parts of a plan: which begin side by side, what stays when one is done again, and who is to blame."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from codepilot.core.artifacts import TestError, TestResult
from codepilot.core.children import Child, merged_changes
from codepilot.core.events import ChildJoined, State, TaskSpecRecorded
from codepilot.core.parallel import begin_now, child_events, decide_children, part_of, shared_budget, starts
from codepilot.core.plan import NodeStatus, Plan, PlanNode, ancestors, waiting_for
from codepilot.core.replan import affected, blamed, replanned, revision, staying_parts, without
from codepilot.core.risk import Looked, risks
from codepilot.core.run import Run, Spent
from codepilot.core.task import Budget, Capability, Goal, RiskProfile, TaskSpec

IDS = "abcdefg"


@st.composite
def plans(draw: st.DrawFn, done: bool = False) -> Plan:
    """Any acyclic plan of agents' parts, in any state that an orderly walk can leave it in."""
    nodes: list[PlanNode] = []
    for name in IDS[: draw(st.integers(1, len(IDS)))]:
        before = [node.id for node in nodes]
        needed = tuple(draw(st.lists(st.sampled_from(before), unique=True, max_size=2))) if before else ()
        ready = all(node.status is NodeStatus.SUCCEEDED for node in nodes if node.id in needed)
        status = NodeStatus.SUCCEEDED if ready and (done or draw(st.booleans())) else NodeStatus.PENDING
        nodes.append(PlanNode(id=name, depends_on=needed, status=status))
    return Plan(nodes=tuple(nodes))


def run_of(plan: Plan, **changes: object) -> Run:
    task = TaskSpec(task_id="t-1", goal=Goal(natural="mend it"), repo="shop")
    return Run(run_id="r-1", task=task, state=State.IMPLEMENT, plan=plan).model_copy(update=changes)


def merged(node: str, number: int = 1, **more: object) -> Child:
    run_id = f"r-1-c{number}"
    joined = ChildJoined(child_run_id=run_id, node=node, outcome="merged", tree="t")
    joined = joined.model_copy(update={"touched_files": (f"src/{node}.py",), **more})
    return Child(run_id=run_id, node=node, tree="b", budget=Budget(), joined=joined)


def all_merged(plan: Plan) -> tuple[Child, ...]:
    done = [node.id for node in plan.nodes if node.status is NodeStatus.SUCCEEDED]
    return tuple(merged(node, number) for number, node in enumerate(done, start=1))


@given(plans(), st.integers(1, 4))
def test_parts_begin_together_only_if_none_needs_another(plan: Plan, limit: int) -> None:
    run = run_of(plan)
    run = run.model_copy(update={"task": run.task.model_copy(update={"budget": Budget(parallel=limit)})})
    begun = [node.id for node in begin_now(run)]
    assert len(begun) <= limit
    assert len(begun) != 1 or limit == 1
    done = {node.id for node in plan.nodes if node.status is NodeStatus.SUCCEEDED}
    for node in begun:
        assert ancestors(plan, node) <= done
        assert not set(waiting_for(plan, node)) & set(begun)


@given(plans(), st.integers(0, 900), st.floats(0, 4.5))
def test_children_cannot_spend_more_together_than_their_parent_has_left(plan: Plan, tokens: int, cost: float) -> None:
    run = run_of(plan, spent=Spent(tokens=tokens, cost_usd=cost))
    run = run.model_copy(update={"task": run.task.model_copy(update={"budget": Budget(tokens=1000, cost_usd=5.0)})})
    for count in (1, 2, 3):
        share = shared_budget(run, count)
        assert count * share.tokens <= max(count, 1000 - tokens)
        assert count * share.cost_usd <= 5.0 - cost + 1e-5
        assert share.parallel == 1


@given(plans())
def test_a_child_gets_its_node_and_what_that_builds_on(plan: Plan) -> None:
    for node in plan.nodes:
        part = part_of(plan, node.id)
        assert {one.id for one in part.nodes} == {node.id, *ancestors(plan, node.id)}


def test_a_child_begins_as_a_run_of_its_own_that_names_its_parent() -> None:
    from codepilot.core.events import BasePinned

    plan = Plan(nodes=(PlanNode(id="a"), PlanNode(id="b")))
    run = run_of(plan)
    begun = starts(run, begin_now(run), "tree")
    assert [(one.child_run_id, one.node) for one in begun] == [("r-1-c1", "a"), ("r-1-c2", "b")]
    child = Child(run_id="r-1-c1", node="a", tree="tree", budget=begun[0].budget)
    base = BasePinned(repo_id="shop", commit="c", commit_tree="t", tree="tree")
    first = child_events(run, child, base, {})
    assert isinstance(first[0].data, TaskSpecRecorded)
    task = first[0].data.task
    assert (task.parent_run_id, task.node_id, task.budget.parallel) == ("r-1", "a", 1)


@given(st.lists(st.sampled_from([State.IMPLEMENT, State.DONE, State.BLOCKED, State.FAILED]), min_size=1, max_size=3))
def test_a_parent_goes_on_when_a_child_ended_or_none_can(states: list[State]) -> None:
    children = tuple(
        Child(run_id=f"r-1-c{number}", node=IDS[number], tree="b", budget=Budget()) for number in range(len(states))
    )
    run = run_of(Plan(nodes=()), state=State.BLOCKED, awaits_children=True, children=children)
    found = dict(zip((child.run_id for child in children), states, strict=True))
    ended = any(state in (State.DONE, State.FAILED) for state in states)
    stalled = all(state is State.BLOCKED for state in states)
    assert bool(decide_children(run, found)) == (ended or stalled)
    assert not decide_children(run.model_copy(update={"awaits_children": False}), found)


@given(plans(done=True), st.data())
def test_only_the_affected_parts_are_done_again(plan: Plan, data: st.DataObject) -> None:
    lost = data.draw(st.lists(st.sampled_from([node.id for node in plan.nodes]), unique=True, min_size=1))
    revised = without(plan, lost, "red")
    again = set(affected(plan, lost))
    assert set(revised.reopened) == again
    assert set(revised.kept) == {node.id for node in plan.nodes} - again
    for before, after in pairwise([plan, revised.plan]):
        assert [node for node in after.nodes if node.id not in again] == [
            node for node in before.nodes if node.id not in again
        ], "a succeeded part outside is immutable"


@given(plans(done=True), st.data())
def test_a_new_plan_keeps_what_is_not_to_blame_and_stays_a_graph(plan: Plan, data: st.DataObject) -> None:
    culprit = data.draw(st.sampled_from([node.id for node in plan.nodes]))
    error = TestError(test="test_it", error_type="E", message="", traceback=f'File "src/{culprit}.py", line 1')
    result = TestResult(passed=False, cmd=(), exit_code=1, errors=(error,))
    run = run_of(plan, state=State.PLAN, children=all_merged(plan), test_result=result)
    made = data.draw(plans())
    assert blamed(run) == (culprit,)
    stay = staying_parts(run)
    assert culprit not in stay
    revised = replanned(run, made, "again")
    if not stay:
        assert revised is None
        return
    assert revised is not None
    kept = {node.id: node for node in plan.nodes if node.id in stay}
    now = {node.id: node for node in revised.plan.nodes}
    assert all(now[name] == node for name, node in kept.items())
    assert all(node.status is NodeStatus.PENDING for name, node in now.items() if name not in kept)


def red(*tracebacks: str) -> TestResult:
    errors = tuple(
        TestError(test=f"test_{number}", error_type="E", message="", traceback=text)
        for number, text in enumerate(tracebacks)
    )
    return TestResult(passed=False, cmd=(), exit_code=1, errors=errors)


DONE = Plan(nodes=tuple(PlanNode(id=name, status=NodeStatus.SUCCEEDED) for name in "abc"))
BOTH = 'File "tests/test_x.py", line 3\nFile "src/a.py", line 4\nFile "src/b.py", line 7'


def test_the_innermost_file_of_a_traceback_is_to_blame() -> None:
    run = run_of(DONE, children=all_merged(DONE), test_result=red(BOTH))
    assert blamed(run) == ("b",)
    revised = revision(run.model_copy(update={"state": State.REFLECT}), "a test fails")
    assert revised is not None
    assert (revised.reopened, revised.kept, revised.reason) == (("b",), ("a", "c"), "a test fails")


def test_without_a_file_the_functions_of_a_change_tell() -> None:
    children = (merged("a", symbols=("total",)), merged("b", 2, symbols=("parse",)), merged("c", 3))
    run = run_of(DONE, children=children, test_result=red("self.assertEqual(parse('1'), 1)"))
    assert blamed(run) == ("b",)


def test_an_error_that_points_nowhere_blames_every_part() -> None:
    assert blamed(run_of(DONE, children=all_merged(DONE), test_result=red("boom"))) == ("a", "b", "c")


def test_a_part_that_was_done_again_by_the_run_itself_is_no_childs_change_any_more() -> None:
    conflict = merged("b", 2, outcome="conflict")
    assert [child.node for child in merged_changes((merged("a"), conflict), DONE)] == ["a"]
    again = merged("a", 3)
    assert merged_changes((merged("a"), again), DONE) == (again,)


def test_risks_are_told_with_their_reasons() -> None:
    task = run_of(DONE).task
    assert risks(Looked(task, DONE, ("src/a.py",), 10)) == ()
    bold = task.model_copy(update={"risk_profile": RiskProfile(capability=Capability.FULL_SHELL)})
    found = risks(Looked(bold, Plan(nodes=(), allowed_areas=("deploy/",)), ("app/migrations/0001.py", "x.tf"), 200))
    assert [one.partition(":")[0] for one in found] == ["full_shell", "sensitive_paths", "large_patch"]
    assert "app/migrations/0001.py, x.tf, deploy" in found[1]
