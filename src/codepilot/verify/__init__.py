"""Gates, evidence, the review's deterministic checks, the proof on a clean copy, and the bundle.

The platform judges here, by rules that are pure and by tests that run in the sandbox; no agent has a say.
"""

from codepilot.verify.bundle import (
    BundleContents,
    BundleInfo,
    FileDigest,
    Provenance,
    SandboxUsed,
    Versions,
    check_bundle,
    read_payload,
    sandbox_used,
    write_bundle,
    write_directory,
)
from codepilot.verify.bundle_proof import rebuild_base, verify_bundle
from codepilot.verify.flags import flagged
from codepilot.verify.gates import GateJudge
from codepilot.verify.lint import LintBench
from codepilot.verify.proof import (
    ENVIRONMENTAL,
    REGRESSION_TEST,
    Create,
    Measure,
    RegressionCheck,
    Strength,
    Worth,
    judged_tree,
    prove,
    tree_checks,
    worth,
)
from codepilot.verify.record import Notice, notice, write_record
from codepilot.verify.review_checks import review
from codepilot.verify.runner_config import configures_runner
from codepilot.verify.security_scan import Finding, Scan, scan_generated
from codepilot.verify.suite_runs import Baseline, run_baseline, run_gate
from codepilot.verify.verdict import Comparison, Failing, baseline_verdict, compare, judge, passes, selects, settle

__all__ = [
    "ENVIRONMENTAL",
    "REGRESSION_TEST",
    "Baseline",
    "BundleContents",
    "BundleInfo",
    "Comparison",
    "Create",
    "Failing",
    "FileDigest",
    "Finding",
    "GateJudge",
    "LintBench",
    "Measure",
    "Notice",
    "Provenance",
    "RegressionCheck",
    "SandboxUsed",
    "Scan",
    "Strength",
    "Versions",
    "Worth",
    "baseline_verdict",
    "check_bundle",
    "compare",
    "configures_runner",
    "flagged",
    "judge",
    "judged_tree",
    "notice",
    "passes",
    "prove",
    "read_payload",
    "rebuild_base",
    "review",
    "run_baseline",
    "run_gate",
    "sandbox_used",
    "scan_generated",
    "selects",
    "settle",
    "tree_checks",
    "verify_bundle",
    "worth",
    "write_bundle",
    "write_directory",
    "write_record",
]
