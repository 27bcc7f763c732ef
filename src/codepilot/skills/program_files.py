"""The file functions of builds, with the answers that models trained on tool calls expect. Standard library only.

Each answers with an object: `success` and the facts, or `error` and the reason.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from codepilot.skills.errors import PolicyError
from codepilot.skills.places import ROOT, PathError, inside, relative, walk, writable

OUTSIDE = "Path must be within workspace"


class Answer(dict[str, Any]):
    """An answer that is shown as JSON."""

    def __repr__(self) -> str:
        return json.dumps(self, ensure_ascii=False)


def _wrong(path: object) -> str:
    """The reason why a path cannot be used; empty if it can."""
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        return "Path must be a name"
    if path.startswith(("/", "~")) or ".." in path.replace("\\", "/").split("/"):
        return OUTSIDE
    try:
        inside(path)
    except PathError:
        return OUTSIDE
    return ""


def create_file(path: str, content: str) -> dict[str, Any]:
    """Write a file with this content, and its directories; a file that exists is replaced."""
    if problem := _wrong(path):
        return Answer(error=problem)
    try:
        data = content.encode("utf-8")
    except (UnicodeEncodeError, AttributeError):
        return Answer(error="Content must be valid UTF-8")
    try:
        place = writable(path, "create_file")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    except PolicyError:
        raise
    except (OSError, PathError) as problem_found:
        return Answer(error=f"Cannot write {path}: {problem_found}")
    return Answer(success=True, path=path, bytes_written=len(data))


def read_file(path: str) -> dict[str, Any]:
    """The text of a file, as `content`."""
    if problem := _wrong(path):
        return Answer(error=problem)
    place = inside(path)
    if not place.is_file():
        return Answer(error=f"File not found: {path}")
    data = place.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return Answer(error="Cannot read binary file")
    if "\0" in text:
        return Answer(error="Cannot read binary file")
    return Answer(success=True, path=path, content=text, size_bytes=len(data))


def list_files() -> dict[str, Any]:
    """All files of the program, each with its path, size and time."""
    found = []
    for file in sorted(walk(ROOT)):
        status = file.stat()
        at = datetime.fromtimestamp(status.st_mtime, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found.append({"path": relative(file), "size": status.st_size, "modified": at})
    return Answer(success=True, files=found, total_files=len(found))


def delete_file(path: str) -> dict[str, Any]:
    """Delete a file."""
    if problem := _wrong(path):
        return Answer(error=problem)
    place = writable(path, "delete_file")
    if not place.is_file():
        return Answer(error=f"File not found: {path}")
    place.unlink()
    return Answer(success=True, path=path)
