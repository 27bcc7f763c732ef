"""The model-free engine in the service of other agents: as a function they call, and as the one that tries first."""

from __future__ import annotations

import ast
from typing import Any

from codepilot.agents.protocol import Desk
from codepilot.agents.seat import Seat
from codepilot.core.events import EventType, RepairsSought
from codepilot.core.failures import CodePilotError, FailureKind, Origin
from codepilot.repair import Candidate, SearchRequest, search
from codepilot.skills import PatchError, patch_tree
from codepilot.verify import configures_runner, is_test

MOST_SEC = 60.0
MOST = 20


def repairs(
    seat: Seat, tests: tuple[str, ...] | None, diffs: tuple[str, ...] | None = None
) -> list[dict[str, Any]] | ValueError:
    """Candidates as an action gets them, best first; what the search cannot do is an error it reads."""
    desk = seat.desk
    targets = tests or (desk.run.baseline.targets if desk.run.baseline else desk.baseline.red)
    try:
        proposed = tuple(_changed(desk, diff) for diff in diffs or ())
    except PatchError as error:
        return ValueError(str(error))
    try:
        result = search(
            SearchRequest(
                executor=desk.executor,
                workspace=desk.workspace,
                project=desk.project,
                targets=targets,
                baseline=desk.baseline,
                ages=desk.ages,
                seconds=max(1.0, min(MOST_SEC, desk.seconds_left() / 2)),
                on_progress=lambda progress: desk.raise_if_stopped(),
                proposed=proposed,
            )
        )
    except CodePilotError as error:
        if error.failure.handling.origin is Origin.PLATFORM:
            raise
        seat.record(
            EventType.REPAIRS_SOUGHT,
            RepairsSought(by="agent", tests=targets, tried=0, found=0, reason=error.failure.message),
        )
        return ValueError(error.failure.message)
    offered = result.candidates[:MOST]
    sought = RepairsSought(
        by="agent",
        tests=targets,
        tried=result.tried,
        found=len(result.candidates),
        confidence=offered[0].confidence if offered else 0.0,
        reason=result.reason,
    )
    seat.record(EventType.REPAIRS_SOUGHT, sought)
    return [told(candidate) for candidate in offered]


def _changed(desk: Desk, diff: str) -> tuple[str, bytes]:
    """The one file that the diff changes, and what it would hold then."""

    def read(path: str) -> str | None:
        try:
            return desk.executor.read_file(desk.workspace, path).decode("utf-8")
        except UnicodeDecodeError as error:
            raise PatchError(f"{path} is not UTF-8: {error}") from error
        except CodePilotError as error:
            if error.failure.handling.origin is Origin.PLATFORM:
                raise
            if error.kind is FailureKind.PATH_NOT_FOUND:
                return None
            raise PatchError(error.failure.message) from error

    files = patch_tree(diff, read).files
    path, text = next(iter(files.items()), ("", None))
    if len(files) != 1 or text is None or read(path) is None:
        raise PatchError("a proposal changes one file that exists")
    if is_test(path) or configures_runner(path):
        raise PatchError(f"{path} judges the repair: a proposal may not change it")
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise PatchError(f"{path} would not be Python any more: {error}") from error
    return path, text.encode()


def told(candidate: Candidate) -> dict[str, Any]:
    """A candidate as plain data."""
    return {
        "path": candidate.path,
        "diff": candidate.diff,
        "rationale": candidate.rationale,
        "confidence": candidate.confidence,
    }
