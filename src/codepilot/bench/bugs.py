"""The parts of a bug of a set: those that the search sees, and those held out to judge it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from codepilot.core.contract import JsonObject
from codepilot.core.failures import CodePilotError, FailureKind


@dataclass(frozen=True)
class Origin:
    """A commit of a repository that fixed one file, and the tests that it brought."""

    repository: Path
    parent: str
    fix: str
    source: str
    test_files: tuple[str, ...]
    known_failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bug:
    """One bug. `files`, or the origin's parent with the fix's tests, is the checkout that the search works on;
    `held_out`, or the origin's fix, is what only the judge reads."""

    name: str
    kind: str
    tests: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    held_out: JsonObject = field(default_factory=dict)
    alone: bool = True
    """True if the named tests are all the tests there are."""
    origin: Origin | None = None
    command_sec: float = 15.0
    """How long one run of the tests may take: a bug may be an endless loop."""


@dataclass(frozen=True)
class Repair:
    """One repair that was offered, as the files it changes."""

    files: Mapping[str, str]
    diff: str


@dataclass(frozen=True)
class Judgement:
    """Judge an offer by what was held out: true if it is right, and the reason in one line."""

    correct: bool
    reason: str
    inputs: int = 0


def broken_data(path: Path, message: str, next_action: str) -> CodePilotError:
    """The set cannot be read: what is wrong with it, and what would be right."""
    return CodePilotError(FailureKind.INVALID_SPEC, f"{path}: {message}", next_action=next_action)


def missing_repository(repository: Path) -> CodePilotError:
    advice = "Make it there with `git clone --bare`; its history must hold both commits."
    return broken_data(repository, "the repository is missing.", advice)
