"""A confirmed repair brings a test that fails before it and passes after; that test never costs the repair."""

from __future__ import annotations

import base64
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from engine_kit import CHEAP, TESTS

import ready
from codepilot.agents import RepairAgent
from codepilot.agents.protocol import StepContext
from codepilot.core.artifacts import PatchCandidate, RegressionTest
from codepilot.core.contract import JsonObject
from codepilot.core.events import Event, EventType, ProofRecorded, State
from codepilot.core.policy import Policy, tightened
from codepilot.core.run import Run
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from codepilot.executor import RunCommand
from codepilot.verify import prove

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


def told(run: Run) -> RegressionTest | None:
    assert run.proposal is not None
    return run.proposal.patch.regression_test


def diff(run: Run) -> str:
    assert run.proposal is not None
    return run.proposal.patch.diff


def test_the_test_is_part_of_what_is_judged_proved_and_handed_over(runtime: Runtime, checkout: Path) -> None:
    run, events = repaired(runtime, checkout, policy=Policy())
    assert told(run) == RegressionTest(test=NAME, path="test_shapes.py")
    assert run.verdict == "confirmed"
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py", "test_shapes.py")
    added = [line for line in diff(run).splitlines() if line.startswith("+")]
    assert [line for line in added if "def test" in line] == ["+    def test_area_regression(self):"]
    assert not [line for line in diff(run).splitlines() if line.startswith("-    ") and "width" not in line]
    (judged,) = [event.data.result for event in events if event.type is EventType.TESTS_JUDGED]  # type: ignore[attr-defined]
    assert judged.summary.passed == 3
    assert run.proof is not None
    checks = {check.name: (check.ok, check.evidence) for check in run.proof.checks}
    assert checks["regression_test_tells_them_apart"] == (True, f"{NAME} fails before and passes after")
    bundle = Path(str(run.bundle))
    for name in ("report.json", "provenance.json"):
        document = json.loads((bundle / name).read_text(encoding="utf-8"))
        assert document["regression_test"]["test"] == NAME, name
    assert b"test_area_regression" in (bundle / "patch.diff").read_bytes()


def test_a_file_of_pytest_functions_keeps_its_line_ends_and_its_names(
    runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEPILOT_PROJECT_RUNNER", "pytest")
    text = (
        "import shapes\n\n\ndef test_area():\n    assert shapes.area(3, 4) == 12\n    assert shapes.area(2, 2) == 4\n"
    )
    text += "\n\ndef test_area_regression():\n    assert shapes.perimeter(3, 4) == 14\n"
    before = text.replace("\n", "\r\n").encode()
    (checkout / "test_shapes.py").write_bytes(before)
    (checkout / "codepilot.toml").write_text('[project.env]\nPYTEST_DISABLE_PLUGIN_AUTOLOAD = "1"\n', encoding="utf-8")
    run, _ = repaired(runtime, checkout)
    assert told(run) == RegressionTest(test="test_shapes.py::test_area_regression_2", path="test_shapes.py")
    assert "+def test_area_regression_2():\r\n+    assert shapes.area(" in diff(run)
    assert "\n-" not in diff(run).partition("+++ b/test_shapes.py")[2]


def test_for_a_guess_no_test_is_written(runtime: Runtime, checkout: Path) -> None:
    weak = TESTS.replace("        self.assertEqual(area(2, 2), 4)\n", "").replace("(area(3, 4), 12)", "(area(0, 4), 0)")
    (checkout / "test_shapes.py").write_text(weak, encoding="utf-8")
    run, _ = repaired(runtime, checkout)
    test = told(run)
    assert run.verdict == "plausible"
    assert test is not None
    assert (test.written, "only plausible" in test.reason) == (False, True), test.reason
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)


def test_policy_turns_it_off_and_a_repository_may_do_that_too(runtime: Runtime, checkout: Path) -> None:
    (checkout / "codepilot.toml").write_text("[policy]\nregression_test = false\n", encoding="utf-8")
    run, _ = repaired(runtime, checkout)
    assert told(run) is None
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    off, on = Policy(regression_test=False), Policy()
    assert [tightened(one, other).regression_test for one, other in ((off, on), (on, off), (on, on))] == [0, 0, 1]


def test_a_method_is_repaired_without_one_and_the_reason_is_told(runtime: Runtime, checkout: Path) -> None:
    shape = "class Shape:\n    def __init__(self, width, height):\n        self.width, self.height = width, height\n\n"
    shape += "    def area(self):\n        return self.width + self.height\n"
    (checkout / "shapes.py").write_text(shape, encoding="utf-8")
    tests = (
        TESTS.replace("import area, perimeter", "import Shape").replace("area(", "Shape(").replace("), ", ").area(), ")
    )
    tests = tests.replace("perimeter(3, 4).area()", "Shape(7, 2).area()").replace("Shape(self)", "area(self)")
    (checkout / "test_shapes.py").write_text(tests.replace("def test_Shape", "def test_area"), encoding="utf-8")
    run, _ = repaired(runtime, checkout)
    test = told(run)
    assert test is not None
    assert (test.written, "method" in test.reason) == (False, True), test.reason
    report = json.loads((Path(str(run.bundle)) / "report.json").read_text(encoding="utf-8"))
    assert report["regression_test"]["reason"] == test.reason


class Clumsy(RepairAgent):
    """Brings another test than the one that was tried."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__()
        self._old, self._new = old, new

    def carry_out(self, action: JsonObject, desk: StepContext) -> PatchCandidate:
        test = action["test"]
        assert isinstance(test, dict)
        content = base64.b64decode(str(test["content"])).decode()
        start = content.index("def test_area_regression")
        spoiled = content[:start] + content[start:].replace(self._old, self._new, 1)
        assert spoiled != content
        test["content"] = base64.b64encode(spoiled.encode()).decode()
        return super().carry_out(action, desk)


@pytest.mark.parametrize(
    ("old", "new", "why", "in_state"),
    [
        ("self.assertEqual(area", "self.assertNotEqual(area", "gates", State.TEST),
        ("self.assertEqual(area", "self.skipTest('later')\n        self.assertEqual(area", "review", State.REVIEW),
        ("self.assertEqual(area(", "self.assertTrue(area(1, 1) or (", "does not fail on the base", State.FINALIZE),
    ],
)
def test_a_test_that_does_not_hold_is_left_out_and_the_repair_goes_on(
    runtime: Runtime, checkout: Path, old: str, new: str, why: str, in_state: State
) -> None:
    run, events = repaired(runtime, checkout, Clumsy(old, new))
    test = told(run)
    assert test is not None
    assert (test.written, why in test.reason) == (False, True), test.reason
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    assert "+    return width * height" in diff(run)
    assert (run.verdict, run.spent.iterations) == ("confirmed", 1)
    proposed = [event for event in events if event.type is EventType.PATCH_PROPOSED]
    begun = [
        event.data.state for event in events if event.type is EventType.STEP_QUEUED and event.seq < proposed[-1].seq
    ]  # type: ignore[attr-defined]
    assert (len(proposed), begun[-1]) == (2, in_state)
    assert b"regression" not in (Path(str(run.bundle)) / "patch.diff").read_bytes()


class Misplaced(RepairAgent):
    """Has its test where nothing may be written."""

    def carry_out(self, action: JsonObject, desk: StepContext) -> PatchCandidate:
        made = super().carry_out(action, desk)
        command = ("ln", "-sf", "/etc/passwd", "test_shapes.py")
        desk.executor.run_command(RunCommand(workspace=desk.workspace, argv=command))
        return made


def test_a_test_in_a_place_that_may_not_change_is_left_out_and_the_repair_goes_on(
    runtime: Runtime, checkout: Path
) -> None:
    run, events = repaired(runtime, checkout, Misplaced())
    assert told(run) == RegressionTest(reason="test_shapes.py may not be changed (symlink_leaves_tree)")
    assert run.proposal is not None
    assert run.proposal.patch.touched_files == ("shapes.py",)
    assert (run.verdict, run.spent.iterations) == ("confirmed", 1)
    assert len([event for event in events if event.type is EventType.PATCH_PROPOSED]) == 1


class Unsure(RepairAgent):
    """Brings a test, and is not sure after all."""

    def carry_out(self, action: JsonObject, desk: StepContext) -> PatchCandidate:
        return super().carry_out(action, desk).model_copy(update={"confidence": 0.1})


def test_a_guess_is_handed_over_without_its_test_and_proved_once(
    runtime: Runtime, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs = []

    def counted(*args: Any, **options: Any) -> ProofRecorded:
        proofs.append(prove(*args, **options))
        return proofs[-1]

    monkeypatch.setattr("codepilot.engine.finalize.prove", counted)
    run, _ = repaired(runtime, checkout, Unsure())
    test = told(run)
    assert test is not None
    assert (test.written, "not sure" in test.reason) == (False, True), test.reason
    assert run.proof is not None
    assert run.proposal is not None
    assert (run.verdict, run.proposal.patch.touched_files) == ("plausible", ("shapes.py",))
    checks = {check.name: check.evidence for check in run.proof.checks}
    assert checks["tree_is_the_validated_one"] == run.proposal.tree
    assert "regression_test_tells_them_apart" not in checks
    assert len(proofs) == 1


def test_a_worker_that_dies_anywhere_neither_loses_nor_doubles_it(
    runtime: Runtime, checkout: Path, tmp_path: Path
) -> None:
    graves = tmp_path / "graves"
    graves.mkdir()
    run = submit(runtime, make_task(Request(repo=str(checkout)), CHEAP))
    command = [str(tmp_path / "home"), run.run_id, str(graves)]
    lives = 0
    while True:
        code, _, err = ready.run(command, os.environ, script=HERE / "one_repair.py")
        lives += 1
        if code != -signal.SIGKILL:
            break
    assert code == 0, err
    ended = runtime.store.load(run.run_id)
    runtime.store.check(run.run_id)
    assert (ended.state, ended.failure, lives) == (State.DONE, None, 6)
    assert told(ended) == RegressionTest(test=NAME, path="test_shapes.py")
    assert diff(ended).count("+    def test_area_regression(self):") == 1
    assert diff(ended).count("+    return width * height") == 1
