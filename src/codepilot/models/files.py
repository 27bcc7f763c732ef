"""Models that are read from files: a script of replies, and a recorded run."""

from __future__ import annotations

import json
from pathlib import Path

from codepilot.core.events import Event, TaskSpecRecorded
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.models.protocol import Reply
from codepilot.models.replay import ReplayModel, exchanges
from codepilot.models.scripted import ScriptedModel

TRANSCRIPT = "transcript.jsonl"


def scripted(path: Path) -> ScriptedModel:
    """Replies from a JSON array: strings, or objects like `Reply`."""
    try:
        entries = json.loads(_text(path))
        if not isinstance(entries, list):
            raise ValueError("it is not an array")
        replies = [entry if isinstance(entry, str) else Reply.model_validate(entry) for entry in entries]
    except ValueError as error:
        raise _unusable(path, "a JSON array of replies", error) from error
    return ScriptedModel(replies, name=f"scripted:{path}")


def replayed(path: Path) -> ReplayModel:
    """The model's side of a run's events, one JSON object a line; a bundle's are its transcript."""
    path = path / TRANSCRIPT if path.is_dir() else path
    try:
        events = [Event.model_validate_json(line) for line in _text(path).splitlines() if line.strip()]
    except (ValueError, KeyError) as error:
        raise _unusable(path, "a recording with one event a line", error) from error
    found = exchanges(events)
    if not found:
        raise _unusable(path, "a recording of a model", ValueError("no model was asked in it"))
    spare = any(isinstance(event.data, TaskSpecRecorded) and event.data.task.fallback_model for event in events)
    return ReplayModel(found, name=f"replay:{path}", spare=spare)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise _unusable(path, "a file that can be read", error) from error


def _unusable(path: Path, what: str, error: Exception) -> CodePilotError:
    return CodePilotError(
        FailureKind.INVALID_SPEC,
        f"{path} is not {what}: {str(error)[:200]}.",
        next_action="Name another file.",
    )
