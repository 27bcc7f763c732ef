"""Reads and changes files of the workspace. Standard library only: this source is shipped as it is.

Paths are relative to the workspace.
"""

from __future__ import annotations

import fnmatch
import os
import re

from codepilot.core.text import decoded
from codepilot.skills.places import ROOT, PathError, inside, read_bytes, relative, walk, writable

MAX_PLACES = 10
MAX_COMPARED = 20_000
MAX_SHOWN = 200
LEAST_ALIKE = 0.6
"""The least similarity of lines that are shown as the nearest, from 0 to 1."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from codepilot.skills.patching import Changes


def read_file(path: str) -> str:
    """The whole text of a file, line endings as they are."""
    return decoded(read_bytes(path))[0]


def write_file(path: str, content: str) -> None:
    """Replace a file's text, or make a new file with its directories. An existing file keeps its encoding."""
    place = writable(path)
    data = _encoded(path, content)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise PathError(f"{path} cannot be made: a part of it is a file.") from None
    place.write_bytes(data)


def create_file(path: str, content: str) -> None:
    """Make a new file. Refuses to replace one that exists."""
    if writable(path, "create_file").exists():
        raise PathError(f"{path} exists already; use edit_file, apply_patch or write_file.")
    write_file(path, content)


def edit_file(path: str, old: str, new: str) -> str:
    """Replace a text that stands exactly once in a file: the usual way to change one. Says where, or why not."""
    text = decoded(read_bytes(path))[0]
    if not old or old == new:
        raise PathError(f"{path} was not changed: `old` is {'empty' if not old else 'the same as `new`'}.")
    places = _line_numbers(text, old)
    if not places:
        raise PathError(f"{path} was not changed: it contains `old` 0 times.{_nearest(text, old)}")
    if len(places) > 1:
        more = ", …" if len(places) > MAX_PLACES else ""
        lines = ", ".join(map(str, places[:MAX_PLACES])) + more
        count = text.count(old) if len(places) > MAX_PLACES else len(places)
        raise PathError(
            f"{path} was not changed: it contains `old` {count} times, from lines {lines}. Give more of the lines"
            " around the one you mean."
        )
    writable(path, "edit_file").write_bytes(_encoded(path, text.replace(old, new, 1)))
    return f"edited {path}, line {places[0]}"


def _line_numbers(text: str, wanted: str) -> list[int]:
    """The lines at which a text starts, overlapping ones too, up to one more than are shown."""
    found: list[int] = []
    at = text.find(wanted)
    while at >= 0 and len(found) <= MAX_PLACES:
        found.append(text.count("\n", 0, at) + 1)
        at = text.find(wanted, at + 1)
    return found


def _nearest(text: str, old: str) -> str:
    """The lines that come closest to a text, and what differs where only line endings or blanks do."""
    if "\r\n" in text and old in text.replace("\r\n", "\n"):
        return " Its lines end in \\r\\n."
    lines = [" ".join(line.split()) for line in text.splitlines()]
    wanted = [" ".join(line.split()) for line in old.strip().splitlines()]
    for number in range(len(lines) - len(wanted) + 1) if wanted else ():
        if lines[number : number + len(wanted)] == wanted:
            return (
                f" Line {number + 1} differs only in blanks; copy them as they are.{_shown(text, number, len(wanted))}"
            )
    if not any(wanted) or len(lines) * len(wanted) > MAX_COMPARED:
        return ""
    from difflib import SequenceMatcher  # read when needed: no other skill waits for it

    matcher = SequenceMatcher(None, "", "\n".join(wanted), autojunk=False)
    best, score = 0, LEAST_ALIKE
    for first in range(len(lines)):
        matcher.set_seq1("\n".join(lines[first : first + len(wanted)]))
        if matcher.quick_ratio() > score and matcher.ratio() > score:
            best, score = first, matcher.ratio()
    return f" The nearest lines are:{_shown(text, best, len(wanted))}" if score > LEAST_ALIKE else ""


def _shown(text: str, first: int, count: int) -> str:
    """Some lines with their numbers."""
    rows = text.splitlines()[first : first + min(count, MAX_PLACES)]
    return "".join(f"\n{first + number}: {row[:MAX_SHOWN]}" for number, row in enumerate(rows, 1))


def list_files(path: str = ".", pattern: str = "**/*") -> list[str]:
    """The files below a directory that match a pattern (`*.py`, `src/**/*.py`), sorted, without caches and `.git`."""
    wanted = _glob(pattern)
    base = inside(path)
    if not base.is_dir():
        raise PathError(_no_directory(path))
    return sorted(relative(file) for file in walk(base) if wanted.match(file.relative_to(base).as_posix()))


def apply_patch(diff: str) -> str:
    """Apply a unified diff to the workspace, all of it or none. Says what changed, or which hunk failed and why."""
    from codepilot.skills.patching import patch_tree  # read when needed: no other skill waits for it

    def current(path: str) -> str | None:
        return decoded(read_bytes(path))[0] if inside(path).is_file() else None

    changes = patch_tree(diff, current)
    _write_all(changes)
    done = [f"{'deleted' if text is None else 'patched'} {path}" for path, text in changes.files.items()]
    return "\n".join(done + changes.notes)


def _write_all(changes: Changes) -> None:
    """Every file as the patch leaves it; what was written is put back when a later one cannot be."""
    plan = []
    for path, text in changes.files.items():
        place = writable(path, "apply_patch")
        plan.append((path, place, None if text is None else _encoded(path, text)))
    modes = {new: inside(old).stat().st_mode & 0o777 for new, old in changes.moved.items() if inside(old).exists()}
    before: list[tuple[str, bytes | None]] = []
    try:
        for path, place, data in plan:
            before.append((path, place.read_bytes() if place.is_file() else None))
            _put(path, data)
        for path, mode in {**modes, **changes.modes}.items():
            inside(path).chmod(mode)
    except OSError:
        for path, data in reversed(before):
            _put(path, data)
        raise


def _put(path: str, data: bytes | None) -> None:
    if data is None:
        if os.path.lexists(ROOT / path):
            (ROOT / path).unlink()
        return
    place = inside(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)


def _encoded(path: str, content: str) -> bytes:
    """The text as the file's own encoding writes it."""
    place = inside(path)
    if place.is_dir():
        raise PathError(f"{path or 'The empty path'} is a directory; name a file.")
    encoding = decoded(read_bytes(path))[1] if place.exists() else "utf-8"
    try:
        return content.encode(encoding)
    except UnicodeEncodeError as error:
        raise PathError(f"{path} is {encoding} and cannot hold {content[error.start]!r} (at {error.start}).") from None


def _no_directory(path: str) -> str:
    if any(sign in path for sign in "*?["):
        return f"{path} is not a directory. For a pattern: list_files(pattern={path!r})."
    return f"{path} is a file; use read_file." if inside(path).exists() else f"There is no directory {path}."


def _glob(pattern: str) -> re.Pattern[str]:
    """`**/` stands for any directories, none included; a pattern without a slash is for the name at any depth."""
    pattern = pattern if "/" in pattern else "**/" + pattern
    parts = re.findall(r"\*\*/|\*\*|\*|\?|\[!?[^]/]+\]|\{[^{}]*\}|[^*?[{]+|.", pattern, re.DOTALL)
    return re.compile("".join(map(_part, parts)) + r"\Z", re.DOTALL)


def _part(part: str) -> str:
    """One part of a pattern as a regular expression."""
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if part in meanings:
        return meanings[part]
    if part[0] == "{" and part[-1] == "}":
        return f"(?:{'|'.join(map(re.escape, part[1:-1].split(',')))})"
    if part[0] == "[" and len(part) > 2:
        return f"(?!/){fnmatch.translate(part)[4:-3]}"
    return re.escape(part)
