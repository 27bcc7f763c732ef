"""The closed set of failures: who can fix each one, whether a retry helps, and what to do next."""

from dataclasses import dataclass
from enum import StrEnum

from pydantic import JsonValue

from codepilot.core.contract import Contract, JsonObject


class FailureKind(StrEnum):
    """Every way a run, a step or a call can fail."""

    INVALID_SPEC = "invalid_spec"
    REPO_UNREACHABLE = "repo_unreachable"
    REF_NOT_FOUND = "ref_not_found"
    NO_TEST_RUNNER = "no_test_runner"
    TEST_NOT_FOUND = "test_not_found"
    TEST_ALREADY_PASSES = "test_already_passes"
    SUITE_CANNOT_START = "suite_cannot_start"
    FLAKY_TEST = "flaky_test"
    ENVIRONMENT_MISSING = "environment_missing"
    SANDBOX_UNAVAILABLE = "sandbox_unavailable"
    PATCH_CONFLICT = "patch_conflict"
    COMPILE_ERROR = "compile_error"
    TESTS_FAILED = "tests_failed"
    GATE_FAILED = "gate_failed"
    SUITE_TIMEOUT = "suite_timeout"
    TOOL_MISSING = "tool_missing"
    PATH_NOT_FOUND = "path_not_found"
    POLICY_VIOLATION = "policy_violation"
    TOOL_TIMEOUT = "tool_timeout"
    TOOL_PERMISSION_DENIED = "tool_permission_denied"
    TOOL_INVALID_ARGS = "tool_invalid_args"
    TOOL_FAILED = "tool_failed"
    EXECUTOR_LOST = "executor_lost"
    WORKER_LOST = "worker_lost"
    CRASH_LOOP = "crash_loop"
    BUDGET_EXCEEDED = "budget_exceeded"
    CONTEXT_EXCEEDED = "context_exceeded"
    STUCK = "stuck"
    REPEATED_FAILURE = "repeated_failure"
    REVIEW_REFUSED = "review_refused"
    PROOF_FAILED = "proof_failed"
    TEST_SUSPECT = "test_suspect"
    AGENT_MISSING = "agent_missing"
    AGENT_CRASHED = "agent_crashed"
    ATTEMPT_FAILED = "attempt_failed"
    MODEL_AUTH = "model_auth"
    MODEL_QUOTA = "model_quota"
    MODEL_UNREACHABLE = "model_unreachable"
    MODEL_OVERLOADED = "model_overloaded"
    MODEL_REFUSED = "model_refused"
    MODEL_BAD_REPLY = "model_bad_reply"
    MODEL_TIMEOUT = "model_timeout"
    STORE_UNAVAILABLE = "store_unavailable"
    ARTIFACT_STORE_UNAVAILABLE = "artifact_store_unavailable"
    DISK_FULL = "disk_full"
    NOTIFY_FAILED = "notify_failed"
    LOCK_HELD = "lock_held"
    CHECKPOINT_FAILED = "checkpoint_failed"
    INTERACTIVE_MODE_FAILURE = "interactive_mode_failure"
    DENIED = "denied"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


class Origin(StrEnum):
    """The cause of a failure. The exit code of the command line follows from it."""

    INPUT = "input"
    WORK = "work"
    PERSON = "person"
    PLATFORM = "platform"


@dataclass(frozen=True)
class Handling:
    """How a kind of failure is handled."""

    origin: Origin
    next_action: str
    retryable: bool = False
    agent_fixable: bool = False


_K = FailureKind
_INPUT, _WORK, _PERSON, _PLATFORM = Origin.INPUT, Origin.WORK, Origin.PERSON, Origin.PLATFORM

HANDLING: dict[FailureKind, Handling] = {
    _K.INVALID_SPEC: Handling(_INPUT, "Correct the task and submit it again."),
    _K.REPO_UNREACHABLE: Handling(_INPUT, "Check the path or URL of the repository, and its credentials."),
    _K.REF_NOT_FOUND: Handling(_INPUT, "Name a commit, branch or tag that exists (see `git log --all`)."),
    _K.NO_TEST_RUNNER: Handling(_INPUT, "Add a pytest or unittest suite, or name a test with --test."),
    _K.TEST_NOT_FOUND: Handling(_INPUT, "Name a test as the project's own runner prints it."),
    _K.TEST_ALREADY_PASSES: Handling(_INPUT, "Name a test that fails, or leave --test out to look for failures."),
    _K.SUITE_CANNOT_START: Handling(_INPUT, "Make the suite start by itself, then try again."),
    _K.FLAKY_TEST: Handling(_INPUT, "Make the test deterministic first, or name another one."),
    _K.ENVIRONMENT_MISSING: Handling(_INPUT, "Run `codepilot prepare`, or pass --python."),
    _K.SANDBOX_UNAVAILABLE: Handling(_PLATFORM, "Run `codepilot doctor`; it says what to install."),
    _K.PATCH_CONFLICT: Handling(_WORK, "Read the file again and rebuild the patch.", agent_fixable=True),
    _K.COMPILE_ERROR: Handling(_WORK, "Read the compiler's message and correct the patch.", agent_fixable=True),
    _K.TESTS_FAILED: Handling(_WORK, "Read the failing tests and correct the patch.", agent_fixable=True),
    _K.GATE_FAILED: Handling(_WORK, "Read the gate's evidence and correct the patch.", agent_fixable=True),
    _K.SUITE_TIMEOUT: Handling(_WORK, "Run fewer tests, or raise --budget command_sec."),
    _K.TOOL_MISSING: Handling(_WORK, "Install the tool the project needs, or map the repository again."),
    _K.PATH_NOT_FOUND: Handling(_WORK, "List the files and use a path that exists.", agent_fixable=True),
    _K.POLICY_VIOLATION: Handling(_WORK, "Do it another way, or relax the policy in codepilot.toml."),
    _K.TOOL_TIMEOUT: Handling(_WORK, "Ask for less at once, or raise the timeout.", retryable=True, agent_fixable=True),
    _K.TOOL_PERMISSION_DENIED: Handling(_WORK, "Use a skill that the task's capability allows.", agent_fixable=True),
    _K.TOOL_INVALID_ARGS: Handling(
        _WORK, "Call it again with the arguments its documentation names.", agent_fixable=True
    ),
    _K.TOOL_FAILED: Handling(_WORK, "Read its output and try another way.", retryable=True, agent_fixable=True),
    _K.EXECUTOR_LOST: Handling(_PLATFORM, "Run `codepilot resume`; the run continues where it was.", retryable=True),
    _K.WORKER_LOST: Handling(_PLATFORM, "Run `codepilot resume`; the run continues where it was.", retryable=True),
    _K.CRASH_LOOP: Handling(_PLATFORM, "Read the run's log; the worker dies at the same place each time."),
    _K.BUDGET_EXCEEDED: Handling(_WORK, "Run `codepilot resume` to grant another budget."),
    _K.CONTEXT_EXCEEDED: Handling(
        _WORK,
        "Start the model's server with a larger context and run `codepilot resume`, or begin again with another --model"
        " or with --agent propose, which asks short questions.",
    ),
    _K.STUCK: Handling(_WORK, "Give a hint with --prompt, name another test, or choose another agent or model."),
    _K.REPEATED_FAILURE: Handling(_WORK, "Read the diagnosis; give a hint with --prompt or choose another agent."),
    _K.REVIEW_REFUSED: Handling(_WORK, "Read the review's reasons and correct the patch.", agent_fixable=True),
    _K.PROOF_FAILED: Handling(_WORK, "The change did not hold on a clean copy; see the report.", agent_fixable=True),
    _K.TEST_SUSPECT: Handling(_WORK, "Correct the test, or say with --prompt why it is right."),
    _K.AGENT_MISSING: Handling(_PERSON, "Install the agent's program; `codepilot doctor` shows which ones are found."),
    _K.AGENT_CRASHED: Handling(
        _PLATFORM, "Run `codepilot resume`; the agent goes on with its session.", retryable=True
    ),
    _K.ATTEMPT_FAILED: Handling(_WORK, "Read the attempt's log next to the tasks file, then run the batch again."),
    _K.MODEL_AUTH: Handling(_PERSON, "Set a valid key in the environment, then `codepilot resume`."),
    _K.MODEL_QUOTA: Handling(_PERSON, "Wait for the quota's reset or raise it, then `codepilot resume`."),
    _K.MODEL_UNREACHABLE: Handling(
        _PLATFORM, "Check the network and the address of the model, then `codepilot resume`.", retryable=True
    ),
    _K.MODEL_OVERLOADED: Handling(_PLATFORM, "Try again later with `codepilot resume`.", retryable=True),
    _K.MODEL_REFUSED: Handling(_WORK, "Rephrase the task or choose another model."),
    _K.MODEL_BAD_REPLY: Handling(_WORK, "Choose another model, or resume to try again.", retryable=True),
    _K.MODEL_TIMEOUT: Handling(_PLATFORM, "Try again later with `codepilot resume`.", retryable=True),
    _K.STORE_UNAVAILABLE: Handling(_PLATFORM, "Check the database, then `codepilot resume`.", retryable=True),
    _K.ARTIFACT_STORE_UNAVAILABLE: Handling(
        _PLATFORM, "Check the artifact store, then `codepilot resume`.", retryable=True
    ),
    _K.DISK_FULL: Handling(_PLATFORM, "Free disk space (`codepilot gc` helps), then `codepilot resume`."),
    _K.NOTIFY_FAILED: Handling(_PLATFORM, "Check [notify] url in your own configuration, and its receiver."),
    _K.LOCK_HELD: Handling(_PERSON, "Wait: the run goes on when the other one gives it back, or `codepilot cancel`."),
    _K.CHECKPOINT_FAILED: Handling(
        _PLATFORM, "Run `codepilot resume`; the run goes on from its last checkpoint.", retryable=True
    ),
    _K.INTERACTIVE_MODE_FAILURE: Handling(
        _PERSON,
        "Look at the state with `codepilot checkpoints`, then `codepilot resume`, `codepilot resume --execution-mode"
        " deterministic`, `codepilot rollback` or `codepilot cancel`.",
    ),
    _K.DENIED: Handling(_PERSON, "Approve the request, or let the agent find another way.", agent_fixable=True),
    _K.CANCELLED: Handling(_PERSON, "Start it again when you want it."),
    _K.INTERNAL: Handling(_PLATFORM, "This is a defect of CodePilot; report it with the run's log.", retryable=True),
}


class Failure(Contract):
    """One failure with its facts. `next_action` overrides the default of its kind."""

    kind: FailureKind
    message: str
    next_action: str = ""
    details: JsonObject = {}

    @property
    def handling(self) -> Handling:
        return HANDLING[self.kind]

    @property
    def advice(self) -> str:
        return self.next_action or self.handling.next_action


MAX_MESSAGE = 4_000
"""Characters of a failure's message: it may quote what a person or a program gave."""


class CodePilotError(Exception):
    """A failure as an exception. It is raised anywhere, recorded once by the engine and shown once by a door."""

    def __init__(self, kind: FailureKind, message: str, next_action: str = "", **details: object) -> None:
        message = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]}…"
        super().__init__(message)
        self.failure = Failure(
            kind=kind, message=message, next_action=next_action, details={k: _plain(v) for k, v in details.items()}
        )

    @staticmethod
    def of(failure: Failure) -> "CodePilotError":
        """Wrap an existing failure in an error."""
        error = CodePilotError(failure.kind, failure.message)
        error.failure = failure
        return error

    @property
    def kind(self) -> FailureKind:
        return self.failure.kind


def _plain(value: object) -> JsonValue:
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [str(item) for item in value]
    return str(value)
