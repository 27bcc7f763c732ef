"""A confirmed repair brings a test that fails before it and passes after; that test never costs the repair."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_kit import CHEAP, TESTS, configured

import ready
from codepilot.agents import RepairAgent
from codepilot.agents.protocol import StepContext
from codepilot.core.artifacts import PatchCandidate, RegressionTest
from codepilot.core.contract import JsonObject
from codepilot.core.events import Event, EventType, PatchProposed, State
from codepilot.core.plan import Plan, PlanNode
from codepilot.core.policy import Policy, tightened
from codepilot.core.run import Run
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from codepilot.executor import RunCommand
from codepilot.repair import DistinguishingInputs, DistinguishingRequest, Written, write_test

HERE = Path(__file__).parent
NAME = "test_shapes.ShapesTest.test_area_regression"


def repaired(
    runtime: Runtime, checkout: Path, agent: RepairAgent | None = None, policy: Policy | None = None
) -> tuple[Run, list[Event]]:
    task = make_task(Request(repo=str(checkout)), CHEAP)
    run = submit(runtime, task.model_copy(update={"policy": policy or task.policy}))
    ended = Worker(runtime, agent_for=lambda task: agent or RepairAgent()).drive(run.run_id)
    runtime.store.check(run.run_id)
    assert (ended.state, ended.failure) == (State.DONE, None), ended.failure
    return ended, runtime.store.events(run.run_id)


def reported(run: Run) -> RegressionTest | None:
    assert run.proof is not None
    return run.proof.regression_test


def diff(run: Run) -> str:
    assert run.proposal is not None
    return run.proposal.patch.diff


def test_the_test_is_attached_to_the_proved_repair_and_handed_over_with_it(runtime: Runtime, checkout: Path) -> None:
    run, events = repaired(runtime, checkout, policy=Policy())
    assert reported(run) == RegressionTest(test=NAME, path="test_shapes.py")
    assert run.verdict == "confirmed"
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py", "test_shapes.py")
    added = [line for line in diff(run).splitlines() if line.startswith("+")]
    assert [line for line in added if "def test" in line] == ["+    def test_area_regression(self):"]
    assert not [line for line in diff(run).splitlines() if line.startswith("-    ") and "width" not in line]
    (judged,) = [event.data for event in events if event.type is EventType.TESTS_JUDGED]
    assert judged.summary.passed == 2, "the gates saw the repair alone"
    proposed = [event.data.patch.touched_files for event in events if isinstance(event.data, PatchProposed)]
    assert proposed == [("shapes.py",), ("shapes.py", "test_shapes.py")]
    assert run.proof is not None
    checks = {check.name: (check.ok, check.evidence) for check in run.proof.checks}
    assert checks["regression_test_tells_them_apart"] == (True, f"{NAME} fails before and passes after")
    bundle = Path(str(run.bundle))
    for name in ("report.json", "provenance.json"):
        document = json.loads((bundle / name).read_text(encoding="utf-8"))
        assert document["regression_test"]["test"] == NAME, name
    assert b"test_area_regression" in (bundle / "patch.diff").read_bytes()


def test_a_file_of_pytest_functions_keeps_its_line_ends_and_its_names(checkout: Path, tmp_path: Path) -> None:
    text = (
        "import shapes\n\n\ndef test_area():\n    assert shapes.area(3, 4) == 12\n    assert shapes.area(2, 2) == 4\n"
    )
    text += "\n\ndef test_area_regression():\n    assert shapes.perimeter(3, 4) == 14\n"
    before = text.replace("\n", "\r\n").encode()
    (checkout / "test_shapes.py").write_bytes(before)
    (checkout / "codepilot.toml").write_text('[project.env]\nPYTEST_DISABLE_PLUGIN_AUTOLOAD = "1"\n', encoding="utf-8")
    environ = {"CODEPILOT_HOME": str(tmp_path / "home"), "CODEPILOT_PROJECT_RUNNER": "pytest"}
    with Runtime.open(configured(environ)) as runtime:
        run, _ = repaired(runtime, checkout)
    assert reported(run) == RegressionTest(test="test_shapes.py::test_area_regression_2", path="test_shapes.py")
    assert "+def test_area_regression_2():\r\n+    assert shapes.area(" in diff(run)
    assert "\n-" not in diff(run).partition("+++ b/test_shapes.py")[2]


@pytest.mark.variants
def test_for_a_guess_no_test_is_written(runtime: Runtime, checkout: Path) -> None:
    weak = TESTS.replace("        self.assertEqual(area(2, 2), 4)\n", "").replace("(area(3, 4), 12)", "(area(0, 4), 0)")
    (checkout / "test_shapes.py").write_text(weak, encoding="utf-8")
    run, _ = repaired(runtime, checkout)
    test = reported(run)
    assert run.verdict == "plausible"
    assert test is not None
    assert (test.written, "only plausible" in test.reason) == (False, True), test.reason
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)


@pytest.mark.variants
def test_policy_turns_it_off_and_a_repository_may_do_that_too(runtime: Runtime, checkout: Path) -> None:
    (checkout / "codepilot.toml").write_text("[policy]\nregression_test = false\n", encoding="utf-8")
    run, _ = repaired(runtime, checkout)
    assert reported(run) is None
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    off, on = Policy(regression_test=False), Policy()
    assert [tightened(one, other).regression_test for one, other in ((off, on), (on, off), (on, on))] == [0, 0, 1]


@pytest.mark.variants
def test_a_method_is_repaired_without_one_and_the_reason_is_reported(runtime: Runtime, checkout: Path) -> None:
    shape = "class Shape:\n    def __init__(self, width, height):\n        self.width, self.height = width, height\n\n"
    shape += "    def area(self):\n        return self.width + self.height\n"
    (checkout / "shapes.py").write_text(shape, encoding="utf-8")
    tests = (
        TESTS.replace("import area, perimeter", "import Shape").replace("area(", "Shape(").replace("), ", ").area(), ")
    )
    tests = tests.replace("perimeter(3, 4).area()", "Shape(7, 2).area()").replace("Shape(self)", "area(self)")
    (checkout / "test_shapes.py").write_text(tests.replace("def test_Shape", "def test_area"), encoding="utf-8")
    run, _ = repaired(runtime, checkout)
    test = reported(run)
    assert test is not None
    assert (test.written, "method" in test.reason) == (False, True), test.reason
    report = json.loads((Path(str(run.bundle)) / "report.json").read_text(encoding="utf-8"))
    assert report["regression_test"]["reason"] == test.reason


@pytest.mark.variants
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("self.assertEqual(area", "self.assertNotEqual(area", "does not fail on the base"),
        ("self.assertEqual(area(", "self.assertIsNone(area(", "does not pass after the change"),
        ("self.assertEqual(", "if not area:\n            self.skipTest('')\n        self.assertEqual(", "the review"),
        ("self.assertEqual(", "perimeter.__code__ = area.__code__\n        self.assertEqual(", "together with"),
    ],
)
def test_a_test_that_does_not_hold_is_left_out_and_the_repair_goes_on(
    runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, why: str
) -> None:
    def clumsy(*given: Any) -> Written:
        written = write_test(*given)
        content = written.content.decode()
        start = content.index("def test_area_regression")
        spoiled = content[:start] + content[start:].replace(old, new, 1)
        assert spoiled != content
        return replace(written, content=spoiled.encode())

    monkeypatch.setattr("codepilot.engine.change.regression_test.write_test", clumsy)
    run, events = repaired(runtime, checkout)
    left_out(run, why)
    assert len([event for event in events if event.type is EventType.PATCH_PROPOSED]) == 1
    assert b"regression" not in (Path(str(run.bundle)) / "patch.diff").read_bytes()


def left_out(run: Run, why: str) -> None:
    test = reported(run)
    assert test is not None
    assert (test.written, why in test.reason) == (False, True), test.reason
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    assert "+    return width * height" in diff(run)
    assert (run.verdict, run.spent.iterations) == ("confirmed", 1)


@pytest.mark.variants
def test_a_test_in_a_place_that_may_not_change_is_left_out(
    runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misplaced(context: StepContext, path: str, content: bytes) -> None:
        command = ("ln", "-sf", "/etc/passwd", path)
        context.executor.run_command(RunCommand(workspace=context.workspace, argv=command))

    monkeypatch.setattr("codepilot.engine.change.regression_test.write_file", misplaced)
    run, _ = repaired(runtime, checkout)
    left_out(run, "test_shapes.py may not be changed (symlink_leaves_tree)")


@pytest.mark.variants
def test_a_defect_in_writing_the_test_does_not_cost_the_repair(
    runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: DistinguishingRequest) -> DistinguishingInputs:
        raise RuntimeError("a slip")

    monkeypatch.setattr("codepilot.engine.change.regression_test.find_distinguishing_inputs", broken)
    run, _ = repaired(runtime, checkout)
    left_out(run, "writing one failed: RuntimeError")


class Planning(RepairAgent):
    """Forbids the tests, which the model-free engine never does."""

    roles = frozenset({State.PLAN, State.IMPLEMENT})

    def perform(self, role: State, context: StepContext) -> Any:
        if role is State.PLAN:
            return Plan(nodes=(PlanNode(id="one", title="mend"),), forbidden_areas=("test_*.py",))
        return super().perform(role, context)


@pytest.mark.variants
def test_a_plan_that_forbids_the_tests_keeps_the_repair_from_bringing_one(runtime: Runtime, checkout: Path) -> None:
    run, _ = repaired(runtime, checkout, Planning())
    left_out(run, "test_shapes.py is no file that tests may be added to")


class Unsure(RepairAgent):
    """Finds a repair, and is not sure after all."""

    def carry_out(self, action: JsonObject, context: StepContext) -> PatchCandidate:
        return super().carry_out(action, context).model_copy(update={"confidence": 0.1})


@pytest.mark.variants
def test_a_repair_that_turns_out_to_be_a_guess_gets_no_test(runtime: Runtime, checkout: Path) -> None:
    run, _ = repaired(runtime, checkout, Unsure())
    test = reported(run)
    assert test is not None
    assert (test.written, "only plausible" in test.reason) == (False, True), test.reason
    assert run.proof is not None
    assert run.proposal is not None
    assert (run.verdict, run.proposal.patch.touched_files) == ("plausible", ("shapes.py",))
    assert "regression_test_tells_them_apart" not in {check.name for check in run.proof.checks}


@pytest.mark.variants
def test_a_worker_that_dies_anywhere_neither_loses_nor_doubles_it(
    runtime: Runtime, checkout: Path, tmp_path: Path
) -> None:
    graves = tmp_path / "graves"
    graves.mkdir()
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    command = [str(tmp_path / "home"), run.run_id, str(graves)]
    lives = 0
    while True:
        code, _, err = ready.run(command, os.environ, script=HERE / "dying_repair.py")
        lives += 1
        if code != -signal.SIGKILL:
            break
    assert code == 0, err
    ended = runtime.store.load(run.run_id)
    runtime.store.check(run.run_id)
    assert (ended.state, ended.failure, lives) == (State.DONE, None, 6)
    assert reported(ended) == RegressionTest(test=NAME, path="test_shapes.py")
    assert diff(ended).count("+    def test_area_regression(self):") == 1
    assert diff(ended).count("+    return width * height") == 1


@pytest.mark.variants
def test_a_doctest_gets_no_test_and_is_named_as_the_reason(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "pytest")
    (checkout / "test_shapes.py").unlink()
    (checkout / "pytest.ini").write_text("[pytest]\naddopts = --doctest-glob=*.rst\n", encoding="utf-8")
    text = ">>> from shapes import area\n>>> area(3, 4)\n12\n>>> area(7, 2)\n14\n>>> area(2, 2)\n4\n"
    (checkout / "use.rst").write_text(text, encoding="utf-8")
    with Runtime.open(configured({"CODEPILOT_HOME": str(tmp_path / "home")})) as runtime:
        run, _ = repaired(runtime, checkout)
    left_out(run, "the failing test is a doctest")
