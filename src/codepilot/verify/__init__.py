"""Gates, verdict, deterministic review checks, the proof on a clean copy, and the bundle.

The platform judges here, with pure rules and with tests that run in the sandbox. No agent decides.
"""

from codepilot.verify.baseline import run_baseline, run_change_baseline, run_suite_baseline
from codepilot.verify.bundle import (
    BundleContents,
    Notice,
    Provenance,
    Versions,
    check_bundle,
    notice,
    read_payload,
    sandbox_used,
    write_bundle,
    write_directory,
    write_record,
)
from codepilot.verify.bundle_proof import rebuild_program, verify_bundle
from codepilot.verify.confidence import Grade, grade
from codepilot.verify.configuration import configures_runner, flagged
from codepilot.verify.gates import GateJudge, LintBench, with_gates
from codepilot.verify.generated_scan import scan_program
from codepilot.verify.generated_sign import Sign
from codepilot.verify.lacking import Missing
from codepilot.verify.program import ProgramBench, empty_baseline, prove_program, tests_gate
from codepilot.verify.proof import REGRESSION_TEST, RegressionCheck, judged_tree, prove, tree_checks
from codepilot.verify.proposed_change import BaseTests, brings_tests, change_between, tree_with_tests
from codepilot.verify.review_checks import review, secrets_in
from codepilot.verify.security_scan import Finding, Scan, scan_generated
from codepilot.verify.suite_runs import NOTHING_RUN, Baseline, run_gate
from codepilot.verify.verdict import selects

__all__ = [
    "NOTHING_RUN",
    "REGRESSION_TEST",
    "BaseTests",
    "Baseline",
    "BundleContents",
    "Finding",
    "GateJudge",
    "Grade",
    "LintBench",
    "Missing",
    "Notice",
    "ProgramBench",
    "Provenance",
    "RegressionCheck",
    "Scan",
    "Sign",
    "Versions",
    "brings_tests",
    "change_between",
    "check_bundle",
    "configures_runner",
    "empty_baseline",
    "flagged",
    "grade",
    "judged_tree",
    "notice",
    "prove",
    "prove_program",
    "read_payload",
    "rebuild_program",
    "review",
    "run_baseline",
    "run_change_baseline",
    "run_gate",
    "run_suite_baseline",
    "sandbox_used",
    "scan_generated",
    "scan_program",
    "secrets_in",
    "selects",
    "tests_gate",
    "tree_checks",
    "tree_with_tests",
    "verify_bundle",
    "with_gates",
    "write_bundle",
    "write_directory",
    "write_record",
]
