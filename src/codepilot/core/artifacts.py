"""The results that steps pass on: maps, patches, test results, reviews, reflections."""

from enum import StrEnum
from typing import Literal

from pydantic import AliasChoices, Field

from codepilot.core.contract import Contract, JsonObject
from codepilot.core.suspect import SuspectTest


class ArtifactType(StrEnum):
    PATCH = "patch"
    LOG = "log"
    REPORT = "report"
    PLAN = "plan"
    MAP = "map"
    TRANSCRIPT = "transcript"
    TIMELINE = "timeline"
    SNAPSHOT = "snapshot"


class ArtifactRef(Contract):
    """Stored bytes, named by their hash."""

    type: ArtifactType
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int

    @property
    def uri(self) -> str:
        return f"hash://{self.type}/{self.sha256}"


class RepoMap(Contract):
    """How a project is built and tested, and where its parts are."""

    build_system: str
    build_cmd: tuple[str, ...] = ()
    test_cmd: tuple[str, ...]
    lint_cmd: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    key_files: tuple[str, ...] = ()
    test_files: tuple[str, ...] = ()
    quirks: tuple[str, ...] = ()
    """What is peculiar about the repository and true for other tasks too, for example `use pnpm here`."""


ContextKind = Literal["code", "test", "doc", "schema", "config", "memory"]


class ContextChoice(Contract):
    """One piece of context that was considered, without its text: its place, its score and its fate."""

    id: str
    source: Literal["repo", "memory", "cache"] = "repo"
    """`cache` is a piece of the repository that an earlier step of the run was shown too."""
    kind: ContextKind
    label: str
    """Why the piece was considered: `failing test`, `stack frame`, `neighbour`, …"""
    path: str
    start: int = Field(ge=1)
    end: int = Field(ge=1)
    """First and last line, both included."""
    relevance_score: float = Field(ge=0.0, le=1.0)
    tokens: int = Field(ge=0)
    fate: Literal["chosen", "condensed", "discarded"]
    reason: str


class ContextItem(ContextChoice):
    """One piece of context with the text that the agent sees."""

    text: str


class RegressionTest(Contract):
    """The test attached to a repair, which fails on the base and passes after the change; or why there is none."""

    test: str = ""
    """The test's id in the project's runner; empty if there is none."""
    path: str = ""
    reason: str = ""

    @property
    def written(self) -> bool:
        return bool(self.test)


class PatchCandidate(Contract):
    """A proposed change: a unified diff against the base, and why it should work."""

    diff: str
    touched_files: tuple[str, ...]
    rationale: str
    confidence: float = Field(default=0.0, ge=0.0, le=1.0)
    alternatives: tuple[str, ...] = ()
    searched: bool = False
    """True if the model-free engine found it."""
    suspect: SuspectTest | None = None
    """Instead of a change: why a named test may be wrong. The run ends with this evidence."""


class TestStatus(StrEnum):
    __test__ = False

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


class TestError(Contract):
    __test__ = False

    test: str
    error_type: str
    message: str
    traceback: str = ""


class TestSummary(Contract):
    """Counts and names, as `--json` prints them before and after."""

    __test__ = False

    passed: int = 0
    failed: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    skipped: int = 0
    flaky: tuple[str, ...] = ()


GateName = Literal["fail_to_pass", "pass_to_pass", "base_tests", "own_tests", "security", "compiles", "lint", "command"]


class Gate(Contract):
    """One judged gate, with the evidence from before and after the change."""

    name: GateName
    before: str = ""
    after: str = ""
    ok: bool | None = None
    """None if there was nothing to judge."""
    evidence: str = ""


class TestResult(Contract):
    """The result of the platform's test run. Agents never judge."""

    __test__ = False

    passed: bool
    cmd: tuple[str, ...]
    exit_code: int | None
    failed_tests_before: tuple[str, ...] = ()
    failed_tests_after: tuple[str, ...] = ()
    regressions: tuple[str, ...] = ()
    duration_sec: float = 0.0
    log_tail: str = ""
    errors: tuple[TestError, ...] = ()
    summary: TestSummary = TestSummary()
    suite: Literal["full", "partial", "none"] = "none"
    signature: str = ""
    new_warnings: tuple[str, ...] = ()
    """Compiler warnings that the change introduced."""
    gates: tuple[Gate, ...] = ()
    """Every judged gate of the task."""
    coverage: float | None = None
    """The percentage of the product's lines that the tests of a build run; None if it was not measured."""


class PolicyCheck(Contract):
    """One deterministic check and its evidence."""

    name: str
    ok: bool
    evidence: str = ""


class Concern(Contract):
    """One reason to doubt that a change is general: it may answer its tests instead of the task."""

    rule: str
    path: str
    line: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.why}"


class Review(Contract):
    """Approval or a request for changes. Deterministic checks cannot be overruled by an agent."""

    verdict: Literal["APPROVE", "REQUEST_CHANGES"]
    patch_loc: int = Field(validation_alias=AliasChoices("patch_loc", "patchLOC"), serialization_alias="patchLOC")
    policy_checks: tuple[PolicyCheck, ...] = ()
    reasons: tuple[str, ...] = ()
    notes: str = ""


class Answer(Contract):
    """The answer to a question about a repository, with the places that it rests on."""

    answer: str = Field(min_length=1)
    sources: tuple[str, ...] = ()
    """Files with line numbers, for example `src/shop/basket.py:12`."""


class Reflection(Contract):
    """Why the last attempt failed, and what to try."""

    root_cause: str
    fix_hypothesis: str
    confidence: Literal["high", "medium", "low"] = "low"
    nodes: tuple[str, ...] = ()
    """The parts of the plan that must be done again; empty if they are unknown."""
    quirks: tuple[str, ...] = ()
    """What is peculiar about the repository and true for other tasks too, for example `tests need TZ=UTC`."""
    similar_failures: tuple[JsonObject, ...] = ()
