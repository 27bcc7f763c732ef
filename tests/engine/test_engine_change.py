"""Tasks of kind change, and tasks that are written down."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_kit import APPROVE, CHEAP, DONE, MAP, PLAN, Runtime, code, result, until

from codepilot.agents import CodeActAgent
from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import TaskKind
from codepilot.core.task_document import EXAMPLES
from codepilot.engine import Request, Worker, make_task, submit
from codepilot.engine.documents import read_task

SQUARE = code(
    "write_file('shapes.py', read_file('shapes.py') + '\\n\\ndef square(side):\\n    return area(side, side)\\n')\n"
    "write_file('test_square.py', 'import unittest\\nfrom shapes import square\\n\\n\\n"
    "class SquareTest(unittest.TestCase):\\n    def test_square(self):\\n        self.assertEqual(square(2), 4)\\n')\n"
    "print('done')"
)


def changed(runtime: Runtime, checkout: Path, *accept: str, edits: tuple[str, ...] = (SQUARE,)) -> Run:
    asked = Request(repo=str(checkout), kind=TaskKind.CHANGE, prompt="Add square", accept=accept)
    model = until(MAP, PLAN, *edits, DONE, APPROVE)
    run = submit(runtime, make_task(asked, CHEAP))
    return Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(run.run_id)


def test_a_change_is_made_under_its_criteria_and_what_failed_before_is_not_held_against_it(
    runtime: Runtime, checkout: Path
) -> None:
    run = changed(runtime, checkout, "grep -q 'def square' shapes.py")
    assert (run.state, run.failure) == (State.DONE, None)
    assert run.test_result is not None
    gates = {gate.name: (gate.ok, gate.before, gate.after) for gate in run.test_result.gates}
    assert gates["command"] == (True, "exit code 1", "exit code 0")


ONLY_CODE = code(
    "write_file('shapes.py', read_file('shapes.py') + '\\n\\ndef square(side):\\n    return side * side\\n')"
)
BESIDE = code("import os\nos.makedirs('out')\nwrite_file('out/done.txt', 'yes')")


def test_a_command_is_evidence_enough_for_a_change_without_a_test(runtime: Runtime, checkout: Path) -> None:
    wanted = "python -c 'import shapes; assert shapes.square(3) == 9'"
    run = changed(runtime, checkout, wanted, edits=(ONLY_CODE,))
    assert (run.state, run.failure) == (State.DONE, None) and run.proof is not None
    check = next(one for one in run.proof.checks if one.name == "commands_succeed")
    assert (check.ok, check.evidence) == (True, wanted)


@pytest.mark.variants
def test_a_command_that_needs_what_is_not_in_the_change_refutes_it(runtime: Runtime, checkout: Path) -> None:
    (checkout / ".gitignore").write_text("out/\n")
    run = changed(runtime, checkout, "grep -q yes out/done.txt", edits=(ONLY_CODE, BESIDE))
    assert run.test_result is not None and run.test_result.passed, "in the agent's workspace it is there"
    assert run.proof is not None and not run.proof.ok and "commands_succeed" in run.proof.reason


@pytest.mark.variants
def test_a_criterion_that_does_not_hold_is_no_change(runtime: Runtime, checkout: Path) -> None:
    run = changed(runtime, checkout, "grep -q 'def cube' shapes.py")
    assert run.state is State.FAILED


ALTER = code(
    "write_file('shapes.py', read_file('shapes.py').replace('2 * (width + height)', 'width + height'))\n"
    "write_file('test_shapes.py', read_file('test_shapes.py').replace('4), 14)', '4), 7)'))\nprint('done')"
)


@pytest.mark.parametrize("asked", [True, False])
def test_a_change_alters_the_tests_that_it_is_asked_to_alter_and_is_judged_by_the_rest(
    runtime: Runtime, checkout: Path, asked: bool
) -> None:
    alters = ("test_shapes.ShapesTest.test_perimeter",) if asked else ()
    request = Request(repo=str(checkout), kind=TaskKind.CHANGE, prompt="Half the perimeter", alters=alters)
    model = until(MAP, PLAN, ALTER, DONE, APPROVE)
    run = submit(runtime, make_task(request, CHEAP))
    run = Worker(runtime, agent_for=lambda task: CodeActAgent(model)).drive(run.run_id)
    checks = {check.name: check for check in run.review.policy_checks} if run.review else {}
    if asked:
        assert (run.state, run.failure) == (State.DONE, None)
        assert "test_perimeter" in checks["tests_untouched_or_added"].evidence
    else:
        assert run.state is State.FAILED


def test_examples_of_tasks_become_tasks(checkout: Path) -> None:
    for kind, text in EXAMPLES.items():
        text = (
            text.replace('"repo": ".",', "")
            .replace("./", f"{checkout.parent}/new-")
            .replace('"ref": "main"', '"ref": "HEAD"')
        )
        if "anthropic:" not in text:  # its model needs a key
            assert read_task(text, CHEAP, str(checkout)).kind is kind


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"goal": "x", "bugdet": {}}', r"no field bugdet; did you mean budget\?$"),
        ('{"goal": "x", "budget": 3}', r"budget: Input should be an object\.$"),
        ('{"goal": "x", "tests": 3}', r"tests: Input should be a list\.$"),
        ('{"goal": "make something cool", "kind": "build"}', "does not say what"),
        ('{"goal": "x", "budget": {"wall_sec": -1}}', "wall_sec"),
        ('{"goal": "x", "sandbox_level": "none"}', "sandbox"),
        ('{"goal": "x", "approved_hosts": ["a.example"]}', "hosts"),
        ('{"goal": "x", "kind": "scafold"}', "kind"),
        ('{"goal": "x", "accept": [" "]}', "criterion is empty"),
        ('{"goal": "Count the words of a text", "kind": "build", "agent": "repair"}', "cannot build a program"),
        ('{"goal": "Where is it?", "kind": "question", "agent": "repair"}', "cannot answer a question"),
        ('{"goal": "x", "kind": "change", "accept": ["true"], "agent": "repair"}', "no failing test describes"),
        (f'{{"goal": "{result()}"', "line 1"),
    ],
)
def test_a_task_that_cannot_be_used_is_refused_by_its_field(checkout: Path, text: str, named: str) -> None:
    with pytest.raises(CodePilotError, match=named) as refused:
        read_task(text, CHEAP, str(checkout))
    assert refused.value.kind is FailureKind.INVALID_SPEC


def test_a_change_without_words_or_with_an_empty_criterion_is_refused(checkout: Path) -> None:
    for prompt, accept, why in ((" ", ("true",), "is empty"), ("x", ("",), "is empty")):
        with pytest.raises(CodePilotError, match=why):
            make_task(Request(repo=str(checkout), kind=TaskKind.CHANGE, prompt=prompt, accept=accept), CHEAP)
