"""Checks the change of a checkpoint: the tree itself, the plan's areas, the policy's paths, locks and secrets."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256

from codepilot.core.areas import outside
from codepilot.core.checkpoint import (
    FLAGGED,
    CheckpointViolation,
    Selection,
    select,
    severity_of,
    status_of,
    violation,
)
from codepilot.core.contract import canonical_json
from codepilot.core.events import State
from codepilot.core.permit import Action, permit
from codepilot.core.pipeline import pipeline_of
from codepilot.core.run import Run
from codepilot.engine.interactive.figures import VALIDATED, VALIDATION_SECONDS
from codepilot.executor import DiffResult, FileChange, Violation
from codepilot.verify import secrets_in
from codepilot.workspace import split_patch

PROTECTED = "protected_areas"
VALIDATIONS = 3
"""How many validations a process does at a time."""
_FIRST_GUESS_US = 300.0
_EXECUTABLE = "100755"

LockedBy = Callable[[Sequence[str]], Sequence[CheckpointViolation]]
"""The changed paths that another run has locked."""


@dataclass(frozen=True)
class Checked:
    """What a validation found, and how much of the change it looked at."""

    violations: tuple[CheckpointViolation, ...] = ()
    checked: int = 0
    cached: int = 0
    left_out: int = 0
    duration_us: int = 0
    skipped: bool = False

    def status(self) -> str:
        return status_of(self.violations, checked=not self.skipped)


def unlocked(paths: Sequence[str]) -> Sequence[CheckpointViolation]:
    """The answer where there are no locks."""
    return ()


@dataclass
class Validation:
    """The rules of one run. What a file was found to break is kept by its content and the version of the rules."""

    role: str = "implementer"
    locked: LockedBy = unlocked
    _known: dict[tuple[str, str, str], tuple[CheckpointViolation, ...]] = field(default_factory=dict)
    _version: str = ""
    _per_file_us: float = _FIRST_GUESS_US

    def check(self, run: Run, found: Sequence[Violation], total: DiffResult, *, whole: bool, salt: str) -> Checked:
        """Check the change since the base. Mid-run, a large one that would take too long is sampled."""
        started = time.perf_counter()
        self._renew(run)
        asked = {_key(change) for change in total.changes}
        known = {path for path, content, mode in asked if (path, content, mode) in self._known}
        budget = run.task.interactive.validation_budget_ms * 1_000
        chosen = select(
            [change.path for change in total.changes], known, self._per_file_us, budget, whole=whole, salt=salt
        )
        with VALIDATING.turn(run.task.priority):
            violations = (*self._tree(run, found), *self._files(run, total, chosen, known), *self._others(run, total))
        taken = time.perf_counter() - started
        fresh = len(chosen.paths) - len(known)
        if fresh > 0:
            self._per_file_us = 0.7 * self._per_file_us + 0.3 * taken * 1e6 / fresh
        VALIDATION_SECONDS.observe(taken)
        VALIDATED.inc(len(known), cache="hit")
        VALIDATED.inc(max(0, fresh), cache="miss")
        return Checked(
            tuple(dict.fromkeys(violations)), len(chosen.paths), len(known), chosen.left_out, int(taken * 1e6)
        )

    def skip(self, run: Run, found: Sequence[Violation]) -> Checked:
        """Look only at what the walk of the tree found: checks are switched off until the end."""
        return Checked(tuple(self._tree(run, found)), skipped=True)

    def _renew(self, run: Run) -> None:
        """Forget what was found under another plan, policy or decision of a person."""
        parts = (run.plan, run.task.policy, *(one.decided for one in run.approvals if one.decided is not None))
        text = "\0".join(canonical_json(part) for part in parts if part is not None)
        version = sha256(text.encode()).hexdigest()
        if version != self._version:
            self._version = version
            self._known.clear()

    def _tree(self, run: Run, found: Sequence[Violation]) -> Iterator[CheckpointViolation]:
        """What the walk found: links that leave the tree, repositories, hard links, devices."""
        for one in found:
            if _effect(run, Action("path", one.path, one.rule, one.detail)) != "allow":
                yield violation(one.rule, one.path, one.detail)

    def _files(self, run: Run, total: DiffResult, chosen: Selection, known: set[str]) -> Iterator[CheckpointViolation]:
        wanted = set(chosen.paths)
        parts = parts_of(total) if wanted - known else {}
        for change in total.changes:
            if change.path not in wanted:
                continue
            key = _key(change)
            if key not in self._known:
                self._known[key] = tuple(self._one(run, change, parts.get(change.path, b"")))
            yield from self._known[key]

    def _one(self, run: Run, change: FileChange, patch: bytes) -> Iterator[CheckpointViolation]:
        """Everything that one changed file breaks by itself."""
        task, path = run.task, change.path
        links, enforced = [path] if change.is_link else (), task.policy.enforce_allowed_areas
        areas = outside(run.plan, [path], links, enforce_allowed=enforced)
        if path in areas:
            yield violation(areas[path], path)
        decision = permit(
            task.policy,
            task.risk_profile.capability,
            task.risk_profile.interaction.mode,
            Action(
                "path",
                path,
                role=self.role,
                is_link=change.is_link,
                size_mb=change.size / 1e6,
                granted=_granted(run, path),
            ),
        )
        if decision.rule and decision.effect != "allow":
            yield violation(decision.rule, path, decision.reason)
        if change.new_mode == _EXECUTABLE and change.old_mode != _EXECUTABLE:
            yield violation(FLAGGED, path, "the file became executable")
        for number, kind in added_secrets(patch):
            yield violation("secret", path, f"line {number} looks like {kind}")

    def _others(self, run: Run, total: DiffResult) -> Iterator[CheckpointViolation]:
        """What depends on more than one file's content: a plan that is demanded, and locks."""
        planned = State.PLAN in pipeline_of(run.task.kind).states
        if run.task.policy.enforce_plan and planned and run.plan is None and total.changes:
            yield violation("enforce_plan", total.changes[0].path)
        yield from self.locked([change.path for change in total.changes])


def severity(run: Run, found: Sequence[CheckpointViolation]) -> str | None:
    return severity_of(found, run.task.interactive.violation_severity)


def _effect(run: Run, action: Action) -> str:
    profile = run.task.risk_profile
    return permit(run.task.policy, profile.capability, profile.interaction.mode, action).effect


def _granted(run: Run, path: str) -> bool:
    """True if a person has allowed a change of this path."""
    return any(
        one.decided is not None and one.decided.decision != "denied"
        for one in run.approvals
        if (one.request.operation, one.request.details) == ("path", path)
    )


def _key(change: FileChange) -> tuple[str, str, str]:
    return change.path, f"{change.change} {change.after}", f"{change.old_mode} {change.new_mode}"


# Patches ---------------------------------------------------------------------------------------------

_HUNK = re.compile(rb"^@@ -\d+(?:,\d+)? \+(\d+)", re.MULTILINE)


def parts_of(diff: DiffResult) -> dict[str, bytes]:
    """The part of the patch about each path. A patch that cannot be divided is about every path."""
    parts = split_patch(diff.patch, [(change.old_mode, change.new_mode) for change in diff.changes])
    paths = [change.path for change in diff.changes]
    return dict.fromkeys(paths, diff.patch) if parts is None else dict(zip(paths, parts, strict=True))


def added_secrets(part: bytes) -> Iterator[tuple[int, str]]:
    """The number of each added line that holds what looks like a secret, and its kind. A moved secret is not new."""
    head = _HUNK.search(part)
    if head is None:
        return
    lines = part[head.start() :].split(b"\n")
    removed = b"\n".join(line[1:] for line in lines if line.startswith(b"-"))
    number = 0
    for line in lines:
        if line.startswith(b"@@ ") and (hunk := _HUNK.match(line)):
            number = int(hunk[1])
            continue
        if line.startswith(b"+"):
            for kind, value in secrets_in(line[1:].decode("utf-8", "replace")):
                if value.encode() not in removed:
                    yield number, kind
        if line[:1] in (b"+", b" "):
            number += 1


# Turns -----------------------------------------------------------------------------------------------


class Turns:
    """Lets a few run at a time, the most urgent first. An agent whose checkpoint waits here stays frozen."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._waiting: list[tuple[int, int]] = []
        self._number = 0
        self._changed = threading.Condition()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @contextmanager
    def turn(self, priority: int) -> Iterator[None]:
        with self._changed:
            self._number += 1
            mine = (-priority, self._number)
            self._waiting.append(mine)
            self._changed.wait_for(lambda: self._free > 0 and min(self._waiting) == mine)
            self._waiting.remove(mine)
            self._free -= 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._free += 1
                self._changed.notify_all()


VALIDATING = Turns(VALIDATIONS)
"""The validations of this process."""
