"""Checkpoints of interactive work: when one is due, what is checked, and what follows from a broken rule. Pure.

Times are microseconds. Everything that an agent may have done between two checkpoints is found by comparing trees;
nothing here trusts what was reported meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from codepilot.core.artifacts import ArtifactRef
from codepilot.core.contract import Contract, JsonObject
from codepilot.core.failures import CodePilotError, Failure
from codepilot.core.interactive import (
    SEVERITIES,
    ExecutionMode,
    InteractiveSettings,
    Revert,
    Strategy,
    ViolationSeverity,
)

Trigger = Literal["time", "changes", "turn", "request", "final", "rollback"]
Status = Literal["valid", "invalid", "skipped"]
ChangeKind = Literal["added", "modified", "deleted", "mode"]

FAILURES_TO_BLOCK = 3
"""Failed checkpoints in a row that block the run."""
SAMPLING_ABOVE = 100
"""The number of changed files above which a check may take a sample."""
SAMPLE_SIZE = 20
"""How many files a sample takes besides the high-risk ones."""
HIGH_RISK = ("schema", "contract", "migration")
"""Words in the paths of files that a sample always takes."""
ESCAPES = frozenset(
    {"symlink_leaves_tree", "nested_git", "special_file", "setuid", "hard_link", "quota", "file_too_large", "too_deep"}
)
"""Rules whose violation is always critical: the entry leaves the tree, corrupts it or exhausts it."""
MOST_LISTED = 500
"""How many paths, and how many violations, an event lists; the rest is counted."""
FLAGGED = "new_executable"
"""The rule of a file that became executable: a warning, never a reason to refuse."""

_SUGGESTIONS = {
    "plan.allowed_areas": "Move the change to a path that the plan allows, or ask for the plan to be changed.",
    "plan.forbidden_areas": "Put the file back as it was; the plan forbids to change it.",
    "protected_areas": "Put the file back, or explain in your reply why it must change: a person decides.",
    "path_rules": "Put the file back; your role may not change this path.",
    "enforce_plan": "Wait for a plan before you change files.",
    "max_file_mb": "Make the file smaller, or generate it when it is needed.",
    "secret": "Remove the secret and read it from the environment.",
    "symlink_leaves_tree": "Remove the link; links may only lead to paths inside the tree.",
    "nested_git": "Remove the repository; the tree may not contain another one.",
    "hard_link": "Replace the hard link by a copy of the file.",
    "special_file": "Remove it; only files, directories and links may be added.",
    "setuid": "Clear the set-user-ID and set-group-ID bits.",
    "quota": "Delete generated files, or keep them in a temporary directory outside the tree.",
    "file_too_large": "Delete the file, or keep it in a temporary directory outside the tree.",
    "lock": "Wait until the other run has released the contract, or leave this file alone.",
    FLAGGED: "Leave the file without the executable bit unless it must be run.",
}


class NoSuchCheckpoint(CodePilotError):
    """A run has no checkpoint of that name."""


class NoSession(CodePilotError):
    """A run has no interactive agent that could take a request."""


class CheckpointViolation(Contract):
    """A rule that the tree of a checkpoint breaks."""

    file: str
    constraint: str
    message: str
    suggestion: str = ""


class CheckpointRecorded(Contract):
    """A checkpoint: the exact tree at one moment, what changed since the previous one, and whether it is valid."""

    checkpoint_id: str
    previous: str | None = None
    trigger: Trigger
    tree: str
    snapshot: str
    files_changed: tuple[str, ...] = ()
    """The first paths that differ from the previous checkpoint; `changes` has all of them."""
    files_left_out: int = 0
    """How many paths more differ."""
    files_changed_total: int = 0
    """How many paths differ from the base."""
    diff: ArtifactRef | None = None
    """The change since the previous checkpoint as a patch."""
    diff_total: ArtifactRef | None = None
    """The change since the base as a patch."""
    changes: ArtifactRef | None = None
    """The file changes that it took, with times: one line of JSON each."""
    status: Status = "valid"
    violations: tuple[CheckpointViolation, ...] = ()
    violations_left_out: int = 0
    """How many violations more were found."""
    severity: ViolationSeverity | None = None
    action_taken: Literal["none", "reverted", "discarded"] = "none"
    strategy: Strategy = "direct"
    checked: int = 0
    """How many changed files were checked."""
    cached: int = 0
    """How many of them had been checked before with the same content and plan."""
    left_out: int = 0
    """How many changed files a sample left out."""
    frozen_us: int = 0
    """How long the agent stood still. Frozen time is free."""
    duration_us: int = 0
    validation_us: int = 0
    request_id: str = ""

    @property
    def files_changed_count(self) -> int:
        return len(self.files_changed) + self.files_left_out

    @property
    def blocks_landing(self) -> bool:
        return self.status == "invalid" and self.severity in ("error", "critical")


class CheckpointFailed(Contract):
    """A checkpoint could not be made. The agent's files are as they were."""

    trigger: Trigger
    failure: Failure
    in_a_row: int
    """How many have failed since the last one that was recorded."""
    request_id: str = ""


class ViolationAcknowledged(Contract):
    """What the agent answered to the report of a violation."""

    checkpoint_id: str
    delivered: bool
    acknowledged: bool
    response: str = ""
    waited_ms: float = 0.0


class Promoted(Contract):
    """A valid checkpoint of a shadow became the run's tree."""

    checkpoint_id: str
    tree: str
    duration_us: int = 0


class RolledBack(Contract):
    """Files were put back to an earlier checkpoint. The tree before that is the checkpoint `before`."""

    checkpoint_id: str | None
    """The checkpoint whose files were put back; None for the beginning of the step."""
    before: str | None
    snapshot: str
    """The tree after it, which a resumed step restores."""
    tree: str
    files: tuple[str, ...] = ()
    """The first paths that were put back; empty means everything."""
    files_left_out: int = 0
    smart: bool = False
    by: str = "user"
    reason: Literal["request", "violation"] = "request"
    request_id: str = ""
    failure: Failure | None = None
    """Why nothing was put back."""


class SessionRequested(Contract):
    """A person asks something of the agent's session. The worker that has the run carries it out."""

    request_id: str
    kind: Literal["message", "rollback", "checkpoint"]
    by: str = "user"
    text: str = ""
    when: Literal["now", "turn"] = "now"
    """`turn` delivers a message after the agent's current turn."""
    checkpoint_id: str | None = None
    files: tuple[str, ...] = ()
    smart: bool = False


class MessageSent(Contract):
    """A message reached the agent, or could not be delivered."""

    type: str
    content: str
    severity: ViolationSeverity = "info"
    data: JsonObject = {}
    by: str = "user"
    delivered: bool = True
    acknowledged: bool = False
    response: str = ""
    request_id: str = ""


class ModeChanged(Contract):
    """The run goes on in another mode or with another strategy."""

    execution_mode: ExecutionMode
    strategy: Strategy | None = None
    reason: str
    by: str = "codepilot"
    failure: Failure | None = None


class UserEditsFound(Contract):
    """A person changed files in the run's worktree while the agent worked; the agent has them now."""

    files: tuple[str, ...]
    files_left_out: int = 0
    conflicts: tuple[str, ...] = ()
    """Those that the agent had changed too: the person's version stays, the agent's is in the checkpoint before."""
    tree: str
    diff: ArtifactRef | None = None


# When a checkpoint is due ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Pace:
    """The rhythm of checkpoints."""

    interval_us: int
    shortest_us: int
    changes: int

    @classmethod
    def of(cls, settings: InteractiveSettings) -> Pace:
        return cls(
            settings.checkpoint_interval_ms * 1_000,
            settings.min_checkpoint_interval_ms * 1_000,
            settings.max_uncommitted_changes,
        )


def due(
    pace: Pace, since_us: int, changed: int, *, requested: bool = False, turn_ended: bool = False, final: bool = False
) -> Trigger | None:
    """Why a checkpoint is due `since_us` after the previous one with `changed` files changed; None if it is not.

    A request and the end of the work always make one. The other triggers wait until the shortest interval is over.
    """
    if final:
        return "final"
    if requested:
        return "request"
    if since_us < pace.shortest_us:
        return None
    if turn_ended:
        return "turn"
    if changed >= pace.changes:
        return "changes"
    return "time" if changed and since_us >= pace.interval_us else None


# What is checked -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """The changed paths that a check takes."""

    paths: tuple[str, ...]
    left_out: int = 0


def select(
    paths: Sequence[str], known: Collection[str], per_file_us: float, budget_us: int, *, whole: bool, salt: str = ""
) -> Selection:
    """Choose what to check: everything, or a sample where more than 100 unknown files would exceed the budget.

    `known` paths have a cached result and cost nothing. A `whole` check, of the end or of a promotion, leaves nothing
    out. `salt` makes the sample unpredictable.
    """
    unknown = [path for path in paths if path not in known]
    if whole or len(paths) <= SAMPLING_ABOVE or len(unknown) * per_file_us <= budget_us:
        return Selection(tuple(paths))
    risky = {path for path in unknown if is_high_risk(path)}
    rest = sorted((path for path in unknown if path not in risky), key=lambda path: _shuffled(salt, path))
    taken = {*known, *risky, *rest[:SAMPLE_SIZE]}
    chosen = tuple(path for path in paths if path in taken)
    return Selection(chosen, len(paths) - len(chosen))


def is_high_risk(path: str) -> bool:
    """True if a path speaks of a schema, a contract or a migration."""
    return any(word in path.lower() for word in HIGH_RISK)


def _shuffled(salt: str, path: str) -> bytes:
    return hashlib.sha256(f"{salt}\0{path}".encode("utf-8", "surrogateescape")).digest()


# Violations ------------------------------------------------------------------------------------------


def violation(rule: str, path: str, detail: str = "") -> CheckpointViolation:
    """A broken rule as the agent reads it."""
    message = f"{path!r} breaks {rule}" + (f": {detail}" if detail else "")
    return CheckpointViolation(file=path, constraint=rule, message=message, suggestion=suggestion(rule))


def suggestion(rule: str) -> str:
    """What an agent can do about a broken rule."""
    exact = _SUGGESTIONS.get(rule)
    if exact is not None:
        return exact
    prefix = next((known for known in _SUGGESTIONS if rule.startswith(known)), None)
    return _SUGGESTIONS[prefix] if prefix else "Put the file back as it was, or make the change elsewhere."


def severity_of(found: Iterable[CheckpointViolation], configured: ViolationSeverity) -> ViolationSeverity | None:
    """The severity of a checkpoint's violations: the configured one, and critical where something left the tree."""
    rules = [one.constraint for one in found]
    if not rules:
        return None
    if any(rule in ESCAPES for rule in rules):
        return "critical"
    if all(rule == FLAGGED for rule in rules):
        return min("warning", configured, key=SEVERITIES.index)
    return configured


def status_of(found: Iterable[CheckpointViolation], *, checked: bool = True) -> Status:
    """Whether a checkpoint is valid. A file that became executable is only flagged."""
    if any(one.constraint != FLAGGED for one in found):
        return "invalid"
    return "valid" if checked else "skipped"


def notifies_agent(severity: ViolationSeverity | None) -> bool:
    """True if the agent gets a message; `info` is only recorded."""
    return severity not in (None, "info")


# Reverting -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChangedFile:
    """One changed path with the names of its content before and after."""

    path: str
    kind: ChangeKind
    before: str = ""
    after: str = ""


def to_revert(mode: Revert, found: Iterable[CheckpointViolation], changes: Sequence[ChangedFile]) -> tuple[str, ...]:
    """The paths to put back after a violation; `smart` also takes the other half of a move into a forbidden place."""
    if mode == "none":
        return ()
    broken = dict.fromkeys(one.file for one in found if one.constraint != FLAGGED)
    if mode == "files":
        return tuple(broken)
    gone: Mapping[str, list[str]] = _by_content(change for change in changes if change.kind == "deleted")
    for change in changes:
        if change.kind == "added" and change.path in broken and change.after:
            broken.update(dict.fromkeys(gone.get(change.after, ())))
    return tuple(broken)


def _by_content(deleted: Iterable[ChangedFile]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for change in deleted:
        found.setdefault(change.before, []).append(change.path)
    return found


def reverts_everything(mode: Revert, strategy: Strategy, *, still_broken: bool) -> bool:
    """True if the whole tree goes back to the last valid checkpoint: a shadow's does, and where less was not enough."""
    return strategy == "shadow" or (mode == "smart" and still_broken)


# Breaker ---------------------------------------------------------------------------------------------


def after_failures(in_a_row: int) -> Literal["go_on", "block"]:
    """What follows from checkpoints that failed one after the other."""
    return "block" if in_a_row >= FAILURES_TO_BLOCK else "go_on"


# The chain -------------------------------------------------------------------------------------------


class CheckpointMark(Contract):
    """A recorded checkpoint by its id, with what a rollback needs."""

    checkpoint_id: str
    snapshot: str
    tree: str


class CheckpointChain(Contract):
    """The checkpoints of a run as a fold over its events."""

    last: CheckpointMark | None = None
    last_valid: CheckpointMark | None = None
    count: int = 0
    invalid: int = 0
    failures: int = 0
    """Failed checkpoints since the last recorded one."""
    failed_total: int = 0
    rollbacks: int = 0
    promoted: str | None = None
    """The tree that was promoted last."""
    blocked_by: str = ""
    """The checkpoint whose violations block landing; empty if none does."""

    def recorded(self, one: CheckpointRecorded) -> CheckpointChain:
        mark = CheckpointMark(checkpoint_id=one.checkpoint_id, snapshot=one.snapshot, tree=one.tree)
        valid = one.status == "valid" and not one.left_out
        settles = one.trigger != "rollback" and valid
        return self.model_copy(
            update={
                "last": mark,
                "last_valid": mark if valid else self.last_valid,
                "count": self.count + 1,
                "invalid": self.invalid + (one.status == "invalid"),
                "failures": 0,
                "blocked_by": one.checkpoint_id if one.blocks_landing else "" if settles else self.blocked_by,
            }
        )

    def failed(self, one: CheckpointFailed) -> CheckpointChain:
        return self.model_copy(update={"failures": one.in_a_row, "failed_total": self.failed_total + 1})

    def accepted(self) -> CheckpointChain:
        """The whole change was checked and obeys every rule: nothing of before blocks landing."""
        return self.model_copy(update={"blocked_by": ""}) if self.blocked_by else self

    def reopened(self) -> CheckpointChain:
        """A person lets the run go on: failures are counted anew."""
        return self.model_copy(update={"failures": 0}) if self.failures else self

    def rolled_back(self) -> CheckpointChain:
        return self.model_copy(update={"rollbacks": self.rollbacks + 1})
