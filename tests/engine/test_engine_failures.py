"""Every class of failure in the work itself, provoked for real: what the agent is shown, and where the run goes next.

Forbidden actions are in `test_engine_policy`, what fails around a run in `test_engine_surroundings`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from engine_kit import APPROVE, DONE, MAP, PLAN, RIGHT, code, drive, replaced, result, states, until

from codepilot.core.breaker import SAME_CALL_LIMIT
from codepilot.core.events import (
    ContextCondensed,
    DependencyDegraded,
    EventType,
    ModelAsked,
    NodeChanged,
    State,
    StepQueued,
)
from codepilot.core.failures import FailureKind
from codepilot.core.plan import NodeStatus
from codepilot.engine import Runtime

THOUGHT = result(root_cause="it does not multiply", fix_hypothesis="multiply")
NAMED = "test_shapes.ShapesTest.test_area"
STALE = (
    "--- a/shapes.py\n+++ b/shapes.py\n@@ -1,2 +1,2 @@\n def area(width, height):\n"
    "-    return width / height\n+    return width * height\n"
)
MISTAKES = {
    "patch_conflict": (f"apply_patch({STALE!r})", ("PatchError", "return width + height")),
    "compile_error": (
        "write_file('other.py', 'def area(:')\nprint(run_command(['python', '-m', 'py_compile', 'other.py']))\n"
        "import os\nos.remove('other.py')",
        ("SyntaxError", "exit code 1"),
    ),
    "hallucinated_path": ("read_file('src/geometry/shapes.py')", ("src/geometry/shapes.py", "shapes.py")),
    "missing_dependency": ("import a_module_that_nobody_has", ("ModuleNotFoundError",)),
    "tool_missing": ("print(run_command(['./gradlew', 'test']))", ("exit code 127",)),
    "out_of_memory": ("much = bytearray(3 << 30)\nmuch[:] = b'x' * len(much)", ("emory",)),
    "timeout": ("import time\ntime.sleep(100)", ("timeout",)),
}


@pytest.mark.variants
def test_what_goes_wrong_within_an_action_is_shown_to_the_agent_who_mends_it(runtime: Runtime, checkout: Path) -> None:
    actions = [code(action) for action, _ in MISTAKES.values()]
    model = until(MAP, PLAN, *actions, RIGHT, DONE)
    run, events = drive(runtime, checkout, model, budget={"command_sec": 4})
    for number, (name, (_, shown)) in enumerate(MISTAKES.items()):
        reported = model.requests[3 + number][-1].content
        for part in shown:
            assert part in reported, (name, part, reported)
    assert run.test_result is not None
    assert run.test_result.passed
    assert states(events)[:6] == [State.INIT, State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.TEST, State.REVIEW]
    assert run.spent.iterations == 1


def test_an_agent_may_find_the_named_test_wrong(runtime: Runtime, checkout: Path) -> None:
    suspect = {"test": NAMED, "reason": "the documentation says that it adds", "repairs": []}
    run, _ = drive(runtime, checkout, until(MAP, PLAN, result(rationale="none", suspect=suspect)), tests=(NAMED,))
    assert run.state is State.FAILED
    assert run.failure is not None
    assert run.failure.kind is FailureKind.TEST_SUSPECT
    assert run.failure.message == f"This test may be wrong: {NAMED}: the documentation says that it adds."
    assert run.proposal is None


def test_two_red_cycles_bring_the_whole_history_to_the_planner(runtime: Runtime, checkout: Path) -> None:
    first, second = replaced("width + height", "width - height"), replaced("width + height", "width // height")
    model = until(MAP, PLAN, first, DONE, THOUGHT, second, DONE, THOUGHT)
    run, events = drive(runtime, checkout, model)
    cycle = [State.IMPLEMENT, State.TEST, State.REFLECT]
    assert states(events)[:10] == [State.INIT, State.MAP_REPO, State.PLAN, *cycle, *cycle, State.PLAN]
    again = model.requests[5][1].content
    for part in (
        "width - height",
        "test_area",
        "AssertionError: -1 != 12",
        "the end of the log:",
        "it does not multiply",
    ):
        assert part in again, "a change that did not hold goes back to the implementer with its log"
    planned = model.requests[8][1].content
    assert "You find the cause" in model.requests[8][0].content
    for part in ("+    return width - height", "+    return width // height", "test_area", "it does not multiply"):
        assert part in planned
    for tail in ("-1 != 12", "0 != 12"):
        assert tail in planned, "each cycle's log is there"
    assert planned.count("the end of the log:") == 2
    assert run.spent.iterations == 2


@pytest.mark.variants
def test_code_that_does_not_load_is_red_and_reflected_on(runtime: Runtime, checkout: Path) -> None:
    broken = code("write_file('shapes.py', 'def area(:\\n')")
    model = until(MAP, PLAN, broken, DONE, THOUGHT)
    _, events = drive(runtime, checkout, model)
    assert states(events)[3:7] == [State.IMPLEMENT, State.TEST, State.REFLECT, State.IMPLEMENT]
    assert "SyntaxError" in model.requests[4][1].content


@pytest.mark.variants
def test_a_suite_that_takes_too_long_is_narrowed_to_what_can_be_run(runtime: Runtime, checkout: Path) -> None:
    slow = (
        "import time, unittest\nclass SlowTest(unittest.TestCase):\n    def test_it(self):\n        time.sleep(100)\n"
    )
    (checkout / "test_zzz.py").write_text(slow, encoding="utf-8")
    model = until(MAP, PLAN, RIGHT, DONE, APPROVE)
    run, events = drive(runtime, checkout, model, tests=(NAMED,), budget={"command_sec": 4})
    assert run.baseline is not None
    assert (run.baseline.suite, run.baseline.targets) == ("partial", (NAMED,))
    assert run.test_result is not None
    assert run.test_result.passed
    assert run.test_result.summary.passed == 2, "the named test and the one that had ended by then"
    queued = [event.data.narrowed for event in events if isinstance(event.data, StepQueued)]
    assert queued == [False] + [True] * (len(queued) - 1), "decided once, after the baseline"
    (output,) = [event for event in events if isinstance(event.data, DependencyDegraded)]
    assert output.data.failure.kind is FailureKind.SUITE_TIMEOUT  # type: ignore[attr-defined]
    assert "4 s" in output.data.failure.message  # type: ignore[attr-defined]
    assert states(events) == [
        State.INIT, State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.TEST, State.REVIEW, State.FINALIZE,
    ]  # fmt: skip
    assert (run.state, run.verdict) == (State.DONE, "plausible")
    assert run.proof is not None
    assert (run.test_result.suite, run.proof.suite) == ("partial", "partial")


PACED_TESTS = "import time, unittest\nfrom pace import PACE\nclass PacedTest(unittest.TestCase):\n" + "".join(
    f"    def test_{number}(self):\n        time.sleep(PACE)\n" for number in range(10)
)


@pytest.mark.variants
def test_a_suite_that_a_change_brings_over_its_time_is_narrowed_from_there_on(runtime: Runtime, checkout: Path) -> None:
    """It took most of its time before: the change broke no test, there is only no time for all of them any more."""
    (checkout / "pace.py").write_text("PACE = 0.2\n", encoding="utf-8")
    (checkout / "test_zzz.py").write_text(PACED_TESTS, encoding="utf-8")
    slower = code("write_file('pace.py', 'PACE = 0.5\\n')")
    model = until(MAP, PLAN, RIGHT, slower, DONE, APPROVE)
    run, events = drive(runtime, checkout, model, tests=(NAMED,), budget={"command_sec": 4})
    assert run.baseline is not None
    assert (run.baseline.suite, run.baseline.targets) == ("full", (NAMED,))
    assert states(events)[4:] == [State.TEST, State.REVIEW, State.FINALIZE]
    queued = [event.data.narrowed for event in events if isinstance(event.data, StepQueued)]
    assert queued == [False] * 5 + [True] * 2, "decided once, when it was seen"
    (output,) = [event.data for event in events if isinstance(event.data, DependencyDegraded)]
    assert (output.dependency, output.failure.kind) == ("suite", FailureKind.SUITE_TIMEOUT)
    assert "with the change" in output.failure.message
    assert (run.state, run.verdict) == (State.DONE, "plausible"), "nobody can say that nothing broke"
    assert run.test_result is not None
    assert run.proof is not None
    assert (run.test_result.suite, run.proof.suite) == ("partial", "partial")


@pytest.mark.variants
def test_a_change_that_lets_another_test_hang_is_red_and_reflected_on(runtime: Runtime, checkout: Path) -> None:
    hangs = replaced("    return 2 *", "    while True: pass\n    return 2 *")
    model = until(MAP, PLAN, RIGHT, hangs, DONE, THOUGHT)
    run, events = drive(runtime, checkout, model, tests=(NAMED,), budget={"command_sec": 4})
    assert states(events)[3:7] == [State.IMPLEMENT, State.TEST, State.REFLECT, State.IMPLEMENT]
    assert run.test_result is not None
    assert run.test_result.regressions == ("test_shapes.ShapesTest.test_perimeter",)
    assert "the run was stopped before this test had ended" in model.requests[5][1].content
    assert not run.narrowed, "the change is to blame, not the suite"


def test_a_tool_of_the_map_that_is_missing_has_the_repository_mapped_again(runtime: Runtime, checkout: Path) -> None:
    wrong = result(build_system="gradle", test_cmd=["./gradlew", "test"])
    build = code("print(run_command(['./gradlew', 'test']))")
    model = until(wrong, PLAN, build, MAP)
    run, events = drive(runtime, checkout, model)
    road = [State.MAP_REPO, State.PLAN, State.IMPLEMENT, State.MAP_REPO, State.PLAN]
    assert states(events)[1:6] == road
    assert run.failures[0].kind is FailureKind.TOOL_MISSING
    assert "./gradlew, which the map of the repository names, is not installed" in model.requests[3][1].content
    assert run.repo_map is not None
    assert run.repo_map.build_system == "python"
    refs = [ref for event in events for ref in event.artifacts if ref.type in ("map", "plan")]
    kept = {ref.type: json.loads(runtime.artifacts.get(ref)) for ref in refs}
    assert kept["map"] == run.repo_map.model_dump(mode="json")
    assert run.plan is not None
    assert [node["id"] for node in kept["plan"]["nodes"]] == [node.id for node in run.plan.nodes]


@pytest.mark.variants
def test_a_conversation_that_grows_too_long_goes_on_without_its_oldest_turns(runtime: Runtime, checkout: Path) -> None:
    talk = ["hm " * 4000 + "\n" + code(f"print('{number}' * 7900)") for number in range(8)]
    model = until(MAP, PLAN, *talk, RIGHT, DONE, APPROVE, context_tokens=20_000)
    run, events = drive(runtime, checkout, model)
    assert run.state is State.DONE, run.failure
    condensed = [event.data for event in events if isinstance(event.data, ContextCondensed)]
    assert any(one.left_out for one in condensed)
    asked = [event.data.estimate.tokens for event in events if isinstance(event.data, ModelAsked)]
    assert max(asked) <= 20_000


@pytest.mark.variants
def test_the_same_call_that_fails_in_step_after_step_ends_the_run(runtime: Runtime, checkout: Path) -> None:
    """Not in a row, not within one step: only the run as a whole can see that it leads nowhere."""
    wrong = replaced("width + height", "width - height")
    look = code("try:\n    read_file('geometry.py')\nexcept Exception as error:\n    print(type(error))")
    life = [look, code("print(list_files())"), look, wrong, DONE, THOUGHT]
    model = until(MAP, PLAN, *life, *life, PLAN, *life)
    run, events = drive(runtime, checkout, model)
    assert run.failure is not None
    assert (run.state, run.failure.kind) == (State.FAILED, FailureKind.REPEATED_FAILURE)
    assert run.failure.details["skill"] == "read_file"
    assert run.failure.details["times"] == SAME_CALL_LIMIT
    assert "geometry.py" in run.failure.message
    assert run.spent.iterations == 3
    assert events[-1].type is EventType.RUN_FINISHED


TWO_BRANCHES = result(
    nodes=[
        {"id": "look", "title": "look it up"},
        {"id": "note", "title": "write it down", "depends_on": ["look"]},
        {"id": "mend", "title": "mend area"},
    ]
)


@pytest.mark.variants
@pytest.mark.parametrize("learned", [True, False])
def test_a_call_that_only_fails_halts_its_part_of_the_plan_and_the_rest_is_walked(
    runtime: Runtime, checkout: Path, learned: bool
) -> None:
    look = "try:\n    read_file('geometry.py')\nexcept Exception as error:\n    print({number}, type(error))"
    looks = [code(look.format(number=number)) for number in range(SAME_CALL_LIMIT)]
    again = [DONE, DONE, RIGHT, DONE, APPROVE] if learned else [looks[0], RIGHT, DONE]
    model = until(MAP, TWO_BRANCHES, *looks, RIGHT, DONE, THOUGHT, *again)
    run, events = drive(runtime, checkout, model, budget={"turns_per_step": 30, "parallel": 1})

    nodes = [(event.type, event.data) for event in events if isinstance(event.data, NodeChanged)]
    first = [(kind, node.node) for kind, node in nodes][:4]
    assert first == [
        (EventType.NODE_STARTED, "look"),
        (EventType.NODE_FAILED, "look"),
        (EventType.NODE_STARTED, "mend"),
        (EventType.NODE_SUCCEEDED, "mend"),
    ]
    assert nodes[1][1].blocked == ("note",)
    reported = run.failures[0]
    assert reported.kind is FailureKind.REPEATED_FAILURE
    assert "halted at look (look it up): The same call failed 5 times" in reported.message
    assert "Not begun without that: note (write it down)." in reported.message
    assert states(events)[3:6] == [State.IMPLEMENT, State.REFLECT, State.IMPLEMENT]
    assert "halted at look" in model.requests[2 + SAME_CALL_LIMIT + 2][1].content, "the reflector is informed"
    if learned:
        assert run.state is State.DONE
        return
    assert run.failure is not None
    assert (run.state, run.failure.kind) == (State.FAILED, FailureKind.REPEATED_FAILURE)
    assert run.failure.details["halted"] == ["look"]
    assert run.plan is not None
    assert {node.id: node.status for node in run.plan.nodes} == {
        "look": NodeStatus.FAILED,
        "note": NodeStatus.BLOCKED,
        "mend": NodeStatus.SUCCEEDED,
    }


@pytest.mark.variants
@pytest.mark.parametrize("changing", [True, False])
def test_a_command_that_says_no_may_be_asked_again_after_a_change(
    runtime: Runtime, checkout: Path, changing: bool
) -> None:
    ask = "print(run_command(['python', '-m', 'unittest', '-q']).exit_code)"
    between = "write_file('notes.txt', 'NUMBER')" if changing else "print(NUMBER)"
    actions = [code(f"{between.replace('NUMBER', str(number))}\n{ask}") for number in range(SAME_CALL_LIMIT)]
    run, _ = drive(runtime, checkout, until(MAP, PLAN, *actions))
    assert run.failure is not None
    ended = FailureKind.MODEL_REFUSED if changing else FailureKind.REPEATED_FAILURE
    assert (run.failure.kind, run.spent.turns) == (ended, 2 + SAME_CALL_LIMIT)
