"""Gates, verdict, deterministic review checks, the proof on a clean copy, and the bundle.

The platform judges here, with pure rules and with tests that run in the sandbox. No agent decides.
"""

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
from codepilot.verify.bundle_proof import verify_bundle
from codepilot.verify.configuration import configures_runner, flagged
from codepilot.verify.gates import GateJudge, LintBench
from codepilot.verify.proof import REGRESSION_TEST, RegressionCheck, Worth, judged_tree, prove, tree_checks, worth
from codepilot.verify.review_checks import review
from codepilot.verify.security_scan import Finding, Scan, scan_generated
from codepilot.verify.suite_runs import Baseline, run_baseline, run_gate

__all__ = [
    "REGRESSION_TEST",
    "Baseline",
    "BundleContents",
    "Finding",
    "GateJudge",
    "LintBench",
    "Notice",
    "Provenance",
    "RegressionCheck",
    "Scan",
    "Versions",
    "Worth",
    "check_bundle",
    "configures_runner",
    "flagged",
    "judged_tree",
    "notice",
    "prove",
    "read_payload",
    "review",
    "run_baseline",
    "run_gate",
    "sandbox_used",
    "scan_generated",
    "tree_checks",
    "verify_bundle",
    "worth",
    "write_bundle",
    "write_directory",
    "write_record",
]
