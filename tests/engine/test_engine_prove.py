"""Changes that somebody else made, judged by the same gates, review and proof."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest
from engine_kit import CHEAP, CODE, TESTS, commit

from codepilot.core.events import State
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.run import Run
from codepilot.core.task import TaskKind
from codepilot.engine import Request, Runtime, Worker, make_task, submit
from codepilot.telemetry import junit_xml, sarif_json

MENDED = CODE.replace("width + height", "width * height", 1)
WITH_SIDE = TESTS + "\n    def test_side(self):\n        self.assertEqual(area(5, 1), 5)\n"
RED_BEFORE = TESTS.replace("12)", "12)", 1)


def judged(runtime: Runtime, checkout: Path, **asked: object) -> Run:
    task = make_task(Request(repo=str(checkout), kind=TaskKind.PROVE, **asked), CHEAP)  # type: ignore[arg-type]
    run = submit(runtime, task)
    return Worker(runtime).drive(run.run_id)


def changed(checkout: Path, code: str = MENDED, tests: str = TESTS) -> None:
    (checkout / "shapes.py").write_text(code, encoding="utf-8")
    (checkout / "test_shapes.py").write_text(tests, encoding="utf-8")


def test_a_fix_with_its_test_on_a_branch_is_confirmed(runtime: Runtime, checkout: Path) -> None:
    subprocess.run(["git", "checkout", "-q", "-b", "fix"], cwd=checkout, check=True)
    changed(checkout, tests=WITH_SIDE)
    commit(checkout, "Mend area")
    subprocess.run(["git", "checkout", "-q", "-"], cwd=checkout, check=True)
    run = judged(runtime, checkout, changed="fix")
    assert (run.state, run.failure) == (State.DONE, None)
    assert run.baseline is not None and {one.split(".")[-1] for one in run.baseline.targets} == {
        "test_area",
        "test_side",
    }
    assert run.test_result is not None
    gates = {gate.name: gate.ok for gate in run.test_result.gates}
    assert gates == {"fail_to_pass": True, "pass_to_pass": True, "base_tests": True}
    suite = fromstring(junit_xml(run))[0]
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ([] if run.verdict == "confirmed" else ["tests_are_strong"])
    assert len(json.loads(sarif_json(run))["runs"][0]["results"]) == 2 * len(failed)


def test_a_change_without_any_test_that_it_mends_is_plausible(runtime: Runtime, checkout: Path) -> None:
    changed(checkout)
    commit(checkout, "Mend area")
    (checkout / "shapes.py").write_text(MENDED + "\n\ndef square(side):\n    return side * side\n", encoding="utf-8")
    run = judged(runtime, checkout)
    assert (run.state, run.verdict) == (State.DONE, "plausible")
    assert run.baseline is not None and run.baseline.targets == ()


def test_where_there_are_no_tests_the_commands_alone_judge(runtime: Runtime, checkout: Path) -> None:
    (checkout / "test_shapes.py").unlink()
    commit(checkout, "Leave the tests out")
    (checkout / "shapes.py").write_text(MENDED, encoding="utf-8")
    holds = "python3 -c 'import shapes; assert shapes.area(3, 4) == 12'"
    run = judged(runtime, checkout, accept=(holds,))
    assert (run.state, run.verdict, run.failure) == (State.DONE, "plausible", None)
    assert run.proof is not None and run.proof.reason == "no suite was run"
    assert {check.name: check.ok for check in run.proof.checks}["commands_succeed"]
    refused = judged(runtime, checkout, accept=(holds.replace("12", "7"),))
    assert refused.verdict is None and refused.failure is not None and "AssertionError" in refused.failure.message
    untold = judged(runtime, checkout)
    assert untold.failure is not None and untold.failure.kind is FailureKind.NO_TEST_RUNNER


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        (TESTS.replace("perimeter(3, 4), 14", "perimeter(3, 4), 15"), "test_perimeter"),
        (TESTS.replace("        self.assertEqual(area(2, 2), 4)\n", ""), "no longer has"),
        (
            TESTS.replace("    def test_perimeter", "    @unittest.skip('later')\n    def test_perimeter"),
            "is skipped now",
        ),
    ],
    ids=["weakened", "assertion deleted", "disabled"],
)
def test_a_fix_that_bends_an_existing_test_is_refused(runtime: Runtime, checkout: Path, tests: str, why: str) -> None:
    code = MENDED.replace("2 * (width + height)", "2 * (width + height) + 1") if "15" in tests else MENDED
    changed(checkout, code, tests)
    run = judged(runtime, checkout)
    assert run.state is State.FAILED and run.failure is not None
    assert why in run.failure.message
    assert json.loads(sarif_json(run))["runs"][0]["results"]


def test_a_fix_that_breaks_another_test_is_refused_by_name(runtime: Runtime, checkout: Path) -> None:
    changed(checkout, MENDED.replace("2 * (width + height)", "width + height"))
    diff = subprocess.run(["git", "diff"], cwd=checkout, check=True, capture_output=True).stdout
    subprocess.run(["git", "checkout", "-q", "."], cwd=checkout, check=True)
    run = judged(runtime, checkout, diff=diff)
    assert run.state is State.FAILED and run.failure is not None
    assert (run.failure.kind, "test_perimeter" in run.failure.message) == (FailureKind.TESTS_FAILED, True)


def test_a_file_of_tests_that_is_renamed_is_refused_for_that(runtime: Runtime, checkout: Path) -> None:
    changed(checkout)
    (checkout / "test_shapes.py").rename(checkout / "test_forms.py")
    run = judged(runtime, checkout)
    assert run.failure is not None and "not collected any more: test_shapes" in run.failure.message


def test_tests_alone_and_a_diff_that_does_not_apply_are_refused_with_the_reason(
    runtime: Runtime, checkout: Path
) -> None:
    changed(checkout, CODE, WITH_SIDE)
    run = judged(runtime, checkout)
    assert run.failure is not None and "nothing to judge" in run.failure.message
    with pytest.raises(CodePilotError, match=r"shapes\.py"):
        judged(runtime, checkout, diff=b"--- a/shapes.py\n+++ b/shapes.py\n@@ -1 +1 @@\n-no such line\n+x\n")


@pytest.mark.parametrize(
    ("diff", "why", "advice"),
    [
        (b"hello\n", "This is no diff", "git diff --binary"),
        (b"--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n", "does not apply to commit", "--onto"),
        (
            b"diff --git a/a b/a\nnew file mode 100644\nindex 0000000..1\nBinary files /dev/null and b/a differ\n",
            "leaves out the content of a binary file",
            "git diff --binary",
        ),
    ],
)
def test_a_diff_that_cannot_be_used_is_bad_input(
    runtime: Runtime, checkout: Path, diff: bytes, why: str, advice: str
) -> None:
    with pytest.raises(CodePilotError, match=why) as caught:
        judged(runtime, checkout, diff=diff)
    assert caught.value.kind is FailureKind.INVALID_SPEC
    assert advice in caught.value.failure.next_action


def test_a_first_commit_has_nothing_to_be_judged_on(runtime: Runtime, checkout: Path) -> None:
    first = subprocess.run(
        ["git", "rev-list", "--max-parents=0", "HEAD"], cwd=checkout, check=True, capture_output=True, text=True
    )
    with pytest.raises(CodePilotError, match="no parent") as caught:
        judged(runtime, checkout, changed=first.stdout.strip(), single=True)
    assert "--onto" in caught.value.failure.next_action


@pytest.mark.variants
def test_tests_whose_names_change_from_run_to_run_are_left_out(runtime: Runtime, checkout: Path) -> None:
    changing = "import time\n\n\ndef wide(self):\n    self.assertEqual(area(6, 1), 6)\n\n\n"
    changing += "setattr(AreaTest, f'test_at_{time.time_ns()}', wide)\n"
    name = next(line for line in TESTS.splitlines() if line.startswith("class ")).split()[1].split("(")[0]
    changed(checkout, tests=WITH_SIDE + "\n\n" + changing.replace("AreaTest", name))
    run = judged(runtime, checkout)
    assert run.failure is None, run.failure
    assert run.baseline is not None and {one.split(".")[-1] for one in run.baseline.targets} == {
        "test_area",
        "test_side",
    }


@pytest.mark.variants
def test_a_version_file_that_the_build_wrote_is_there_without_configuration(runtime: Runtime, checkout: Path) -> None:
    hook = '[tool.hatch.build.hooks.vcs]\nversion-file = "shapes_version.py"\n'
    (checkout / "pyproject.toml").write_text(hook, encoding="utf-8")
    (checkout / ".gitignore").write_text("shapes_version.py\n", encoding="utf-8")
    (checkout / "shapes_version.py").write_text("VERSION = '1'\n", encoding="utf-8")
    (checkout / "shapes.py").write_text(f"import shapes_version\n\n{CODE}", encoding="utf-8")
    commit(checkout, "Take the version from the tags")
    changed(checkout, f"import shapes_version\n\n{MENDED}")
    run = judged(runtime, checkout)
    assert (run.state, run.failure) == (State.DONE, None)
    assert run.proposal is not None and "shapes_version" not in run.proposal.patch.touched_files
