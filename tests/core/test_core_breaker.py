"""A call that fails in the same way again and again halts its part of the plan, or the run, with what was repeated."""

from __future__ import annotations

import pytest
from run_kit import Log, failed

from codepilot.core.breaker import REMEMBERED, SAME_CALL_LIMIT, FailedCall, count_failed, halted, tripped
from codepilot.core.decide import Failed, Succeeded, decide
from codepilot.core.events import EventType, NodeChanged, SkillCall, State, TurnFinished
from codepilot.core.failures import Failure, FailureKind
from codepilot.core.plan import NodeStatus, Plan, PlanNode, ready_nodes, waiting_for

RAISED = SkillCall(skill="read_file", status="error", arguments='{"path": "nope.py"}', exit="FileNotFoundError")
NONZERO = SkillCall(skill="run_command", status="success", arguments='{"cmd": ["make"]}', exit="2")
MISSING = NONZERO.model_copy(update={"exit": "127"})


def turn(*calls: SkillCall, tree: str = "t") -> TurnFinished:
    return TurnFinished(turn=1, observation={}, tree=tree, calls=calls)


def after(*turns: tuple[TurnFinished, str]) -> tuple[FailedCall, ...]:
    calls: tuple[FailedCall, ...] = ()
    for finished, step in turns:
        calls = count_failed(calls, finished, step)
    return calls


def test_a_call_that_raises_counts_across_steps_and_trees() -> None:
    turns = [(turn(RAISED, tree=f"t{number}"), f"s{number}") for number in range(SAME_CALL_LIMIT)]
    assert tripped(after(*turns[:-1])) is None
    failure = tripped(after(*turns))
    assert failure is not None
    assert failure.kind is FailureKind.REPEATED_FAILURE
    assert failure.details == {
        "skill": "read_file",
        "arguments": '{"path": "nope.py"}',
        "exit": "FileNotFoundError",
        "times": SAME_CALL_LIMIT,
    }
    assert "read_file" in failure.message
    assert "nope.py" in failure.message


def test_other_arguments_and_other_exits_are_other_failures() -> None:
    calls = [RAISED.model_copy(update={"arguments": str(number)}) for number in range(4)]
    calls += [RAISED.model_copy(update={"exit": f"Error{number}"}) for number in range(4)]
    assert tripped(after(*((turn(call), "s") for call in calls * (SAME_CALL_LIMIT - 1)))) is None


def test_a_program_that_says_no_has_answered_until_it_is_asked_again_of_the_same_files() -> None:
    reproduced = [(turn(NONZERO), f"s{number}") for number in range(20)]
    edited = [(turn(NONZERO, tree=f"t{number}"), "s") for number in range(20)]
    assert tripped(after(*reproduced, *edited)) is None
    assert tripped(after(*[(turn(NONZERO), "s")] * SAME_CALL_LIMIT)) is not None


def test_a_program_that_is_not_there_is_missing_in_every_step() -> None:
    failure = tripped(after(*((turn(MISSING), f"s{number}") for number in range(SAME_CALL_LIMIT))))
    assert failure is not None
    assert "exit code 127" in failure.message


def test_success_and_violations_do_not_count_and_one_action_counts_once() -> None:
    fine = SkillCall(skill="read_file", status="success")
    forbidden = SkillCall(skill="run_command", status="policy_violation", exit="PolicyError", violation="[r] x")
    assert after((turn(fine, forbidden), "s")) == ()
    assert [call.times for call in after((turn(*[RAISED] * 50), "s"))] == [1]


def test_what_is_remembered_is_bounded_and_the_latest_stays() -> None:
    turns = [(turn(RAISED.model_copy(update={"arguments": str(number)})), "s") for number in range(REMEMBERED * 2)]
    calls = after(*turns)
    assert len(calls) == REMEMBERED
    assert calls[-1].arguments == str(REMEMBERED * 2 - 1)


def test_only_what_a_turn_itself_repeated_stops_the_step() -> None:
    calls = after(*[(turn(RAISED), "s")] * SAME_CALL_LIMIT)
    assert tripped(calls, turn(RAISED), "s") is not None
    assert tripped(calls, turn(MISSING), "s") is None


def test_a_failed_step_is_not_tried_again_once_a_call_has_been_repeated_too_often() -> None:
    for times in (SAME_CALL_LIMIT - 1, SAME_CALL_LIMIT):
        log = Log()
        log.reach(State.IMPLEMENT)
        for _ in range(times):
            log.record(EventType.TURN_FINISHED, turn(RAISED))
        log.ends(failed(FailureKind.TOOL_FAILED))
        if times < SAME_CALL_LIMIT:
            assert (log.now.state, log.now.attempt) == (State.IMPLEMENT, 2)
        else:
            assert log.now.state is State.FAILED
            assert log.now.failure is not None
            assert log.now.failure.details["skill"] == "read_file"


def test_a_step_that_succeeded_all_the_same_goes_on() -> None:
    log = Log()
    log.reach(State.IMPLEMENT)
    for _ in range(SAME_CALL_LIMIT):
        log.record(EventType.TURN_FINISHED, turn(RAISED))
    log.ends(Succeeded())
    assert log.now.state is State.TEST


BRANCHES = (
    PlanNode(id="b", depends_on=("a",)),
    PlanNode(id="a", title="look it up"),
    PlanNode(id="c", depends_on=("x", "b")),
    PlanNode(id="x"),
)


def with_plan(*nodes: PlanNode) -> Log:
    log = Log()
    log.reach(State.PLAN)
    log.record(EventType.PLAN_CREATED, Plan(nodes=nodes))
    log.reach(State.IMPLEMENT)
    return log


def halt(log: Log) -> Failure:
    """Node a repeats a call too often, and x is walked without it."""
    for _ in range(SAME_CALL_LIMIT):
        log.record(EventType.TURN_FINISHED, turn(RAISED))
    broken = tripped(log.now.failed_calls)
    failed_node = NodeChanged(node="a", failure=broken, blocked=("b", "c"))
    log.record(EventType.NODE_FAILED, failed_node)
    log.record(EventType.NODE_SUCCEEDED, NodeChanged(node="x"))
    assert log.now.plan is not None
    reported = halted(log.now.plan, [failed_node])
    assert reported is not None
    return reported


def test_what_waits_for_a_halted_node_is_blocked_and_the_others_stay_ready() -> None:
    log = with_plan(*BRANCHES)
    log.record(EventType.NODE_FAILED, NodeChanged(node="a", blocked=("b", "c")))
    assert log.now.plan is not None
    statuses = {node.id: node.status for node in log.now.plan.nodes}
    assert statuses == {
        "a": NodeStatus.FAILED,
        "b": NodeStatus.BLOCKED,
        "c": NodeStatus.BLOCKED,
        "x": NodeStatus.PENDING,
    }
    assert [node.id for node in ready_nodes(log.now.plan)] == ["x"]


def test_what_waits_for_a_node_is_found_through_others() -> None:
    plan = Plan(nodes=BRANCHES)
    assert waiting_for(plan, "a") == ("b", "c")
    assert waiting_for(plan, "x") == ("c",)
    assert waiting_for(plan, "c") == ()


def test_one_error_tells_of_all_that_was_halted() -> None:
    reported = halt(with_plan(*BRANCHES))
    assert reported.kind is FailureKind.REPEATED_FAILURE
    for part in ("a (look it up): The same call failed 5 times", "nope.py", "Not begun without that: b, c."):
        assert part in reported.message
    assert (reported.details["halted"], reported.details["blocked"]) == (["a"], ["b", "c"])
    assert reported.details["skill"] == "read_file"


def test_a_part_of_a_plan_that_was_halted_is_thought_over_once() -> None:
    log = with_plan(*BRANCHES)
    log.ends(Failed(halt(log)))
    assert log.now.state is State.REFLECT
    log.ends(Succeeded())
    assert (log.now.state, log.now.spent.iterations) == (State.IMPLEMENT, 2)
    log.ends(failed(FailureKind.EXECUTOR_LOST))
    assert (log.now.state, log.now.attempt) == (State.IMPLEMENT, 2), "what was thought over is not held against it"
    reported = halt(log)
    log.ends(Failed(reported))
    assert (log.now.state, log.now.failure) == (State.FAILED, reported)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (FailureKind.MODEL_QUOTA, State.BLOCKED),
        (FailureKind.MODEL_AUTH, State.BLOCKED),
        (FailureKind.EXECUTOR_LOST, State.IMPLEMENT),
        (FailureKind.TOOL_FAILED, State.REFLECT),
    ],
)
def test_trouble_of_others_while_the_rest_is_walked_does_not_end_the_run(kind: FailureKind, state: State) -> None:
    log = with_plan(*BRANCHES)
    halt(log)
    log.ends(failed(kind))
    assert log.now.state is state


def test_a_plan_of_one_node_ends_with_it() -> None:
    log = with_plan(PlanNode(id="a"))
    for _ in range(SAME_CALL_LIMIT):
        log.record(EventType.TURN_FINISHED, turn(RAISED))
    broken = tripped(log.now.failed_calls)
    assert broken is not None
    log.add(decide(log.now, Failed(broken), log.clock))
    assert (log.now.state, log.now.failure) == (State.FAILED, broken)
