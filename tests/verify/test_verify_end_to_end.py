"""Gate, proof and bundle on a small real project, whose tests run in the sandbox."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from verify_kit import ADD, BASE, CALC, MENDED, MUL, TESTS, Files, Lab, LabMaker, Measured

from codepilot.core.artifacts import RegressionTest
from codepilot.core.events import ProofRecorded
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import Budget, Goal, TaskSpec
from codepilot.executor import Executor
from codepilot.project import Project, SuiteRun, run_tests
from codepilot.verify import (
    REGRESSION_TEST,
    Baseline,
    BundleContents,
    Provenance,
    RegressionCheck,
    Versions,
    prove,
    sandbox_used,
    suite_runs,
    verify_bundle,
    write_bundle,
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Baseline]:
    """The baseline of `BASE`, which is the same in every lab."""
    maker = LabMaker(tmp_path_factory.mktemp("known"))
    yield maker(BASE).baseline()
    maker.close()


# The baseline ---------------------------------------------------------------------------------------


def test_without_a_name_the_first_failure_is_taken(known: Baseline) -> None:
    assert known.targets == (ADD,)
    assert (known.suite_kind, known.summary.passed, known.summary.failed) == ("full", 3, (ADD,))


def test_what_cannot_be_worked_on_is_refused_with_advice(make_lab: LabMaker) -> None:
    lab = make_lab(BASE)
    passing = lab.refused(MUL)
    assert passing.kind is FailureKind.TEST_ALREADY_PASSES
    missing = lab.refused("tests/test_calc.py::test_ad")
    assert missing.kind is FailureKind.TEST_NOT_FOUND
    assert ADD in missing.failure.advice


def test_a_green_suite_has_nothing_to_repair(make_lab: LabMaker) -> None:
    assert make_lab({**BASE, "calc.py": MENDED}).refused().kind is FailureKind.TEST_ALREADY_PASSES


def test_why_a_suite_cannot_start_is_reported_once(make_lab: LabMaker) -> None:
    problem = make_lab({**BASE, "pytest.ini": "[pytest]\naddopts = --no-such-option\n"}).refused()
    assert problem.kind is FailureKind.SUITE_CANNOT_START and "--no-such-option" in problem.failure.message
    assert problem.failure.message.count("cannot start") == 1


COUNTER = """from pathlib import Path


def nth():
    place = Path(__file__).with_name("count")
    n = int(place.read_text()) + 1 if place.exists() else 1
    place.write_text(str(n))
    return n
"""


def test_a_test_that_fails_every_other_time_is_flaky(make_lab: LabMaker) -> None:
    odd = "from counter import nth\n\n\ndef test_odd():\n    assert nth() % 2\n"
    problem = make_lab({**BASE, "counter.py": COUNTER, "tests/test_odd.py": odd}).refused("tests/test_odd.py")
    assert problem.kind is FailureKind.FLAKY_TEST
    assert "two different results" in problem.failure.message


# The gate -------------------------------------------------------------------------------------------


def test_a_regression_a_lost_test_and_a_skipped_one_are_all_seen(make_lab: LabMaker, known: Baseline) -> None:
    lab = make_lab(BASE)
    bent = TESTS.replace("def test_mul_by_zero", "import pytest\n\n\n@pytest.mark.skip\ndef test_mul_by_zero")
    bent = bent.replace("def test_power()", "def check_power()")
    edits = {"calc.py": MENDED.replace("a * b", "a * b + 1"), "tests/test_calc.py": bent}
    result = lab.gate(known, {**BASE, **edits})
    assert not result.passed
    assert result.regressions == (MUL, "tests/test_calc.py::test_mul_by_zero", "tests/test_calc.py::test_power")
    assert result.signature
    assert ADD not in result.failed_tests_after


def test_a_change_that_does_not_help_is_red_at_once(make_lab: LabMaker, known: Baseline) -> None:
    still = make_lab(BASE).gate(known, {**BASE, "calc.py": CALC.replace("a - b", "a + b + 1")})
    assert (still.passed, still.failed_tests_after, still.suite) == (False, (ADD,), "none")
    assert still.errors[0].error_type == "AssertionError"


@pytest.mark.variants
def test_a_test_that_wavers_on_both_trees_is_listed_and_not_blamed(make_lab: LabMaker) -> None:
    wavering = "from counter import nth\n\n\ndef test_second():\n    assert nth() != 2\n"
    lab = make_lab({**BASE, "counter.py": COUNTER, "tests/test_wavering.py": wavering})
    baseline = lab.baseline(ADD)
    after = {**BASE, "calc.py": MENDED, "counter.py": COUNTER, "tests/test_wavering.py": wavering, "count": "1"}
    result = lab.gate(baseline, after)
    assert result.passed
    assert result.summary.flaky == ("tests/test_wavering.py::test_second",)


@pytest.mark.variants
def test_a_test_that_hangs_is_repaired_and_the_suite_called_partial(make_lab: LabMaker) -> None:
    slow = (
        "import time\n\n\ndef countdown(n):\n    while n != 0:\n        time.sleep(0.1)\n        n -= 2\n    return n\n"
    )
    test = "from slow import countdown\n\n\ndef test_countdown():\n    assert countdown(3) <= 0\n"
    files = {**BASE, "slow.py": slow, "tests/test_slow.py": test}
    lab = make_lab(files, command_sec=3.0)
    baseline = lab.baseline("tests/test_slow.py::test_countdown")
    assert baseline.suite_kind != "full"
    lab.command_sec = 60.0
    mended = lab.gate(baseline, {**files, "slow.py": slow.replace("!= 0", "> 0")})
    assert mended.passed
    assert mended.suite != "full"


@pytest.mark.variants
def test_a_suite_that_is_spared_is_not_run_and_never_called_whole(make_lab: LabMaker, known: Baseline) -> None:
    lab = make_lab(BASE)
    mended = lab.gate(known, {**BASE, "calc.py": MENDED}, narrowed=True)
    assert (mended.passed, mended.suite) == (True, "partial")
    assert mended.summary.passed == 1, "the named test alone"
    still = lab.gate(known, {**BASE, "calc.py": MENDED}, narrowed=False)
    assert (still.passed, still.suite) == (True, "full")


HANGING = "import time\n\n\ndef test_hang():\n    while True:\n        time.sleep(1)\n"
ENDLESS = {**BASE, "calc.py": MENDED, "tests/test_hang.py": HANGING}
HANG = "tests/test_hang.py::test_hang"


@pytest.mark.variants
@pytest.mark.parametrize("named", [(HANG,), ()])
def test_a_hanging_test_is_the_failure_to_repair_and_is_waited_for_once(
    make_lab: LabMaker, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    limits: list[float] = []

    def recorded(executor: Executor, workspace: str, project: Project, tests: Sequence[str], limit: float) -> SuiteRun:
        limits.append(limit)
        return run_tests(executor, workspace, project, tests, limit)

    monkeypatch.setattr(suite_runs, "run_tests", recorded)
    monkeypatch.setattr(suite_runs, "HUNG_SEC", 2.0)
    baseline = make_lab(ENDLESS, command_sec=6.0).baseline(*named)
    assert baseline.targets == (HANG,)
    assert baseline.summary.errors == (HANG,)
    assert limits == ([6.0, 2.0, 2.0] if named else [6.0, 2.0])


@pytest.mark.variants
def test_a_suite_that_is_only_slow_is_refused_naming_where_it_stood(make_lab: LabMaker) -> None:
    slow = "import time, pytest\n\n\n@pytest.mark.parametrize('n', range(60))\ndef test_n(n):\n    time.sleep(0.2)\n"
    problem = make_lab({**BASE, "calc.py": MENDED, "tests/test_slow.py": slow}, command_sec=5.0).refused()
    assert problem.kind is FailureKind.SUITE_TIMEOUT
    assert "running tests/test_slow.py::test_n[" in problem.failure.message


# The proof ------------------------------------------------------------------------------------------


def test_a_change_that_cheats_through_conftest_passes_no_proof(make_lab: LabMaker, known: Baseline) -> None:
    lab = make_lab(BASE)
    cheat = {**BASE, "tests/conftest.py": "import calc\n\ncalc.add = lambda a, b: a + b\n"}
    assert lab.gate(known, cheat).passed
    proof = lab.prove(known, cheat)
    assert (proof.ok, proof.verdict) == (False, None)
    assert "named_tests_pass" in proof.reason
    weakened = {**BASE, "tests/test_calc.py": TESTS.replace("add(1, 2) == 3", "add(1, 2) == -1")}
    assert not lab.prove(known, weakened).ok


def test_a_patch_that_is_not_the_validated_one_passes_no_proof(make_lab: LabMaker, known: Baseline) -> None:
    lab = make_lab(BASE)
    tree = lab.tree({**BASE, "calc.py": MENDED})
    patch = lab.objects.diff(lab.base_tree, tree).patch

    def proved(patch: bytes, tree: str) -> ProofRecorded:
        return prove(
            lab.executor, lab.objects, lab.base_tree, patch, lab.project, known,
            workspace="r-1", create=lab.request, command_sec=60.0, tree=tree,
        )  # fmt: skip

    assert "tree_is_the_validated_one" in proved(patch, lab.base_tree).reason
    assert "applies_to_base" in proved(patch.replace(b"return a - b", b"return a / b"), tree).reason


@pytest.mark.variants
def test_a_test_of_the_changed_code_that_still_fails_counts_and_an_unrelated_one_does_not(make_lab: LabMaker) -> None:
    both = TESTS.replace("add(1, 2) == 3", "add(0, 0) == 1") + "\n\ndef test_sum():\n    assert add(1, 2) == 3\n"
    files = {**BASE, "tests/test_calc.py": both + "\n\ndef test_web():\n    raise ConnectionError\n"}
    lab = make_lab(files)
    baseline = lab.baseline(ADD)
    half = {**files, "calc.py": CALC.replace("a - b", "1")}
    whole = {**files, "calc.py": CALC.replace("a - b", "a + b or 1")}
    sum_fails = lab.prove(baseline, half, Measured(still_failing=("tests/test_calc.py::test_sum",)))
    assert (sum_fails.verdict, "test_sum first" in sum_fails.reason) == ("plausible", True)
    mended = lab.prove(baseline, whole, Measured())
    assert mended.verdict == "confirmed", mended.reason
    assert mended.after.failed == ("tests/test_calc.py::test_web",)


def _bundled(
    lab: Lab,
    known: Baseline,
    proof: ProofRecorded,
    commit_tree: str,
    after: Files,
    tmp_path: Path,
    test: RegressionTest | None = None,
) -> Callable[[str], ProofRecorded]:
    """The change as a bundle, and how that is proved again."""
    patched = lab.tree(after)
    contents = BundleContents(
        patch=lab.objects.diff(lab.base_tree, patched).patch,
        base_diff=lab.objects.diff(commit_tree, lab.base_tree).patch,
        report={"schema_version": 1},
        transcript=b"",
        timeline={},
        provenance=Provenance(
            run_id="r-1",
            task=TaskSpec(
                task_id="t-1", goal=Goal(natural="mend"), repo=str(lab.root), budget=Budget(command_sec=60.0)
            ),
            base_commit="a" * 40,
            base_dirty=True,
            base_tree=lab.base_tree,
            patched_tree=patched,
            targets=known.targets,
            signature=known.signature,
            suite=proof.suite,
            verdict=proof.verdict,
            confidence=proof.confidence,
            versions=Versions(codepilot="0", python="3", git="2"),
            commands=(known.suite.cmd,),
            sandbox=sandbox_used(lab.executor.level),
            created_at="2025-01-01T00:00:00Z",
            regression_test=test,
        ),
    )
    bundle = write_bundle(tmp_path / "bundles" / "r-1", contents)

    def verified(tree: str) -> ProofRecorded:
        return verify_bundle(
            bundle.path,
            lab.executor,
            lab.objects,
            lab.project,
            commit_tree=tree,
            workspace="v-1",
            create=lab.request,
            expected=bundle.sha256,
            measure=lambda workspace, failing: Measured(),
        )

    return verified


def test_an_honest_change_is_proved_bundled_and_proved_again(
    make_lab: LabMaker, known: Baseline, tmp_path: Path
) -> None:
    lab = make_lab(BASE)
    commit_tree = lab.tree({path: text for path, text in BASE.items() if path != "tests/test_calc.py"})
    after = {**BASE, "calc.py": MENDED}
    proof = lab.prove(known, after)
    assert (proof.ok, proof.verdict, proof.suite) == (True, "plausible", "full")
    assert proof.after.passed == 4
    verified = _bundled(lab, known, proof, commit_tree, after, tmp_path)
    again = verified(commit_tree)
    assert (again.ok, again.verdict) == (True, "confirmed"), again
    assert all(check.ok for check in again.checks)
    assert not (tmp_path / "workspaces" / "v-1-proof").exists()
    with pytest.raises(CodePilotError, match="base cannot be rebuilt"):
        verified(lab.base_tree)


@pytest.mark.variants
def test_a_regression_test_that_fails_again_is_named_and_costs_the_proof_nothing(
    make_lab: LabMaker, known: Baseline, tmp_path: Path
) -> None:
    lab = make_lab(BASE)
    after = _with_regression_test("add(2, 2) == 5")
    recorded = ProofRecorded(ok=True, verdict="confirmed", confidence=0.9, suite="full")
    again = _bundled(lab, known, recorded, lab.base_tree, after, tmp_path, BACK)(lab.base_tree)
    assert (again.ok, again.verdict) == (True, "confirmed"), again
    assert [check.name for check in again.checks if not check.ok] == [REGRESSION_TEST]
    assert "does not pass after the change" in again.reason
    assert not (tmp_path / "workspaces" / "v-1-proof").exists()


@pytest.mark.variants
@pytest.mark.parametrize(
    ("claim", "ok", "evidence"),
    [
        ("add(2, 2) == 4", True, "fails before and passes after"),
        ("add(2, 0) == 2", False, "does not fail on the base"),
    ],
)
def test_a_regression_test_fails_on_the_base_and_passes_on_the_change(
    make_lab: LabMaker, claim: str, ok: bool, evidence: str
) -> None:
    lab = make_lab(BASE)
    check = RegressionCheck(lab.executor, lab.objects, lab.project, lab.request, "r-1-proof", lab.command_sec)
    judged = check.judge(BACK, lab.base_tree, lab.tree(_with_regression_test(claim)))
    assert (judged.name, judged.ok) == (REGRESSION_TEST, ok)
    assert evidence in judged.evidence


BACK = RegressionTest(test="tests/test_calc.py::test_back", path="tests/test_calc.py")


def _with_regression_test(claim: str) -> Files:
    """The mended project with a test that makes this claim."""
    return {**BASE, "calc.py": MENDED, "tests/test_calc.py": f"{TESTS}\n\ndef test_back():\n    assert {claim}\n"}
