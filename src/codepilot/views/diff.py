"""A unified diff as rows for a page, highlighted by Pygments."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape as quoted
from itertools import zip_longest
from typing import Any, Literal

from markupsafe import Markup, escape

from codepilot.skills.patch_formats import git_paths, unquoted
from codepilot.views.text import visible
from codepilot.workspace.trees import shown

MAX_ROWS = 6_000
"""Rows of a page. The rest of a longer diff is counted, not shown."""
MAX_ROWS_OF_FILE = 20_000
"""Rows of the page of one file."""
MAX_HIGHLIGHTED = 300_000
"""Characters of a page that are highlighted; the others are shown plainly."""
LONGEST_LINE = 2_000
HIGHLIGHT_SEC = 5.0
"""Processor time that a page's highlighting takes at most; a text can be made on which a lexer works for hours."""
LONGEST_SPACE = 400
"""White space without anything in between; lexers of some languages read a longer one again and again."""

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@ ?(.*)")

RowKind = Literal["same", "add", "del", "hunk", "note"]


@dataclass(frozen=True)
class HunkHead:
    """What a review names: `FILE:NUMBER`, counted from 1, or `FILE` if it is taken or left as a whole."""

    key: str
    title: str


@dataclass(frozen=True)
class Row:
    kind: RowKind
    old: int | None
    new: int | None
    html: Markup
    head: HunkHead | None = None
    """Of a row that begins a hunk: what a review names."""


@dataclass
class FileDiff:
    """One changed file. `note` says what happened to the file as a whole."""

    path: str
    key: str = ""
    """The path as a review names it: `path` shows characters that nobody sees."""
    note: str = ""
    added: int = 0
    removed: int = 0
    rows: list[Row] = field(default_factory=list)
    hidden: int = 0
    """Rows that are not shown because the diff is too long."""
    hunks: list[HunkHead] = field(default_factory=list)

    @property
    def pairs(self) -> Iterator[tuple[Row | None, Row]]:
        """The rows side by side: before and after. A heading or note stands alone, with nothing before it."""
        removed: list[Row] = []
        added: list[Row] = []
        for row in self.rows:
            if row.kind == "del":
                removed.append(row)
                continue
            if row.kind == "add":
                added.append(row)
                continue
            yield from _beside(removed, added)
            removed, added = [], []
            yield (row if row.kind == "same" else None, row)
        yield from _beside(removed, added)


def _beside(removed: Sequence[Row], added: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    nothing = Row("same", None, None, Markup(""))
    return zip_longest(removed, added, fillvalue=nothing)


@dataclass
class _Hunk:
    title: str
    old: int
    new: int
    lines: list[str] = field(default_factory=list)


@dataclass
class _File:
    path: str = ""
    notes: list[str] = field(default_factory=list)
    hunks: list[_Hunk] = field(default_factory=list)


def file_diffs(diff: str, only: str | None = None, rows: int = MAX_ROWS) -> list[FileDiff]:
    """The files of a diff in its order, or one of them, which may be longer, with as many rows as a page holds."""
    shown, characters, until = [], MAX_HIGHLIGHTED, time.thread_time() + HIGHLIGHT_SEC
    rows = rows if only is None else MAX_ROWS_OF_FILE
    for file in _files(diff):
        if only not in (None, file.path):
            continue
        made = _rendered(file, rows, characters, until)
        rows -= len(made.rows)
        characters -= sum(len(line) for hunk in file.hunks for line in hunk.lines)
        shown.append(made)
    return shown


def directories(files: Sequence[FileDiff]) -> list[tuple[str, list[tuple[int, str, FileDiff]]]]:
    """The files by directory, each with its place in `files` and its name there."""
    found: dict[str, list[tuple[int, str, FileDiff]]] = {}
    for place, file in enumerate(files):
        directory, _, name = file.path.rpartition("/")
        found.setdefault(directory, []).append((place, name, file))
    return sorted(found.items())


# Reading --------------------------------------------------------------------------------------------


def _files(diff: str) -> list[_File]:
    """The diff's files. Lines of a hunk are counted, so that no content is taken for a header."""
    files: list[_File] = []
    lines = iter(diff.split("\n"))
    for line in lines:
        if line.startswith("diff --git "):
            files.append(_File(_path_of(line)))
        elif (match := _HUNK.fullmatch(line)) is not None and files:
            hunk = _Hunk(match[5], int(match[1]), int(match[3]))
            hunk.lines.extend(_hunk_lines(lines, _count(match[2]), _count(match[4])))
            files[-1].hunks.append(hunk)
        elif files:
            _header(files[-1], line)
    return files


def _count(text: str | None) -> int:
    return 1 if text is None else int(text)


def _hunk_lines(lines: Iterator[str], old: int, new: int) -> Iterator[str]:
    while old > 0 or new > 0:
        line = next(lines, None)
        if line is None:
            return
        yield line
        old -= line[:1] not in ("+", "\\")
        new -= line[:1] not in ("-", "\\")


def _path_of(line: str) -> str:
    """The new path of a `diff --git` line, as a review names it."""
    names = line.removeprefix("diff --git ")
    paths = git_paths(names)
    if paths.new is not None and (paths.old == paths.new or '"' in names):
        return shown(paths.new)
    return names.rpartition(" b/")[2] or names


_NOTES = (
    ("new file mode", "new file"),
    ("deleted file mode", "deleted"),
    ("rename from ", "renamed from "),
    ("copy from ", "copied from "),
    ("old mode ", "mode changed from "),
    ("Binary files", "binary file"),
    ("GIT binary patch", "binary file"),
)


_WHOLE = frozenset({"new file", "deleted", "binary file"})
"""Notes of a file that is taken or left as a whole."""


def _header(file: _File, line: str) -> None:
    for start, note in _NOTES:
        if line.startswith(start):
            rest = shown(unquoted(line.removeprefix(start).strip()))
            file.notes.append(note + rest if note.endswith("from ") else note)
    if line.startswith("\\ "):
        file.notes.append("no newline at the end of the file")


# Rendering ------------------------------------------------------------------------------------------


def _rendered(file: _File, room: int, characters: int, until: float) -> FileDiff:
    made = FileDiff(visible(file.path), file.path, ", ".join(map(visible, dict.fromkeys(file.notes))))
    if not file.hunks or _WHOLE & set(file.notes):
        made.hunks.append(HunkHead(file.path, "the whole file"))
    else:
        made.hunks.extend(HunkHead(f"{file.path}:{number}", _title(hunk)) for number, hunk in enumerate(file.hunks, 1))
    for number, hunk in enumerate(file.hunks):
        made.added += sum(line.startswith("+") for line in hunk.lines)
        made.removed += sum(line.startswith("-") for line in hunk.lines)
        fits = max(0, room - len(made.rows) - 1)
        if fits < len(hunk.lines):
            made.hidden += len(hunk.lines) - fits
            hunk = replace(hunk, lines=hunk.lines[:fits])
        if not hunk.lines:
            continue
        characters -= sum(map(len, hunk.lines))
        head = made.hunks[number] if number < len(made.hunks) else None
        made.rows.extend(_rows(hunk, file.path if characters >= 0 else "", head, until))
    return made


def _title(hunk: _Hunk) -> str:
    """Where a hunk is in the file after the change, or before it if it only removes."""
    kept = sum(line[:1] not in ("-", "\\") for line in hunk.lines)
    first, count = (hunk.new, kept) if kept else (hunk.old, len(hunk.lines))
    return f"lines {first} to {first + count - 1}" if hunk.lines else hunk.title


def _rows(hunk: _Hunk, path: str, head: HunkHead | None, until: float) -> Iterator[Row]:
    windows = all(line.endswith("\r") for line in hunk.lines if line[:1] != "\\")
    lines = [line.removesuffix("\r") if windows else line for line in hunk.lines]
    before = iter(_highlighted([line[1:] for line in lines if line[:1] not in ("+", "\\")], path, until))
    after = iter(_highlighted([line[1:] for line in lines if line[:1] not in ("-", "\\")], path, until))
    yield Row("hunk", None, None, escape(visible(hunk.title)), head)
    old, new = hunk.old, hunk.new
    for line in lines:
        match line[:1]:
            case "+":
                yield Row("add", None, new, next(after))
                new += 1
            case "-":
                yield Row("del", old, None, next(before))
                old += 1
            case "\\":
                yield Row("note", None, None, escape(visible(line[2:])))
            case _:
                next(before)
                yield Row("same", old, new, next(after))
                old, new = old + 1, new + 1


def _highlighted(lines: Sequence[str], path: str, until: float) -> list[Markup]:
    """Each line as HTML; without colours if the language is unknown, the text is unusual, or the time is up."""
    lexer = lexer_for(path)
    clean = [visible(line) for line in lines]
    if lexer is None or any(len(line) > LONGEST_LINE for line in clean) or _is_mostly_space("\n".join(clean)):
        return [escape(line) for line in clean]
    opened = _opened_before(clean) if path.endswith((".py", ".pyi")) else ""
    made, line = [], ""
    for token, text in lexer.get_tokens("\n".join([opened, *clean] if opened else clean)):
        if time.thread_time() > until:
            return [escape(line) for line in clean]
        style = _style(token)
        for number, part in enumerate(text.split("\n")):
            if number:
                made.append(Markup(line))  # its parts are escaped
                line = ""
            if part:
                line += f'<span class="{style}">{quoted(part)}</span>' if style else quoted(part)
    made.append(Markup(line))
    made = made[1:] if opened else made
    if len(made) < len(clean):
        return [escape(line) for line in clean]
    return made


def _is_mostly_space(text: str) -> bool:
    return any(len(space) > LONGEST_SPACE for space in _SPACES.findall(text))


_SPACES = re.compile(r"\s+")


def _opened_before(lines: Sequence[str]) -> str:
    """The quotes of a Python text that begins above these lines and ends in them, or nothing."""
    for quotes in ('"""', "'''"):
        holders = [number for number, line in enumerate(lines) if line.count(quotes) % 2]
        if len(holders) % 2:
            above = next((line.rstrip() for line in reversed(lines[: holders[0]]) if line.strip()), "")
            first = lines[holders[0]].strip()
            begins = above.endswith((":", "(", "=", ",")) if first == quotes else _BEGINS.match(first)
            return "" if begins else quotes
    return ""


_BEGINS = re.compile(r"""(?:[\w.]+\s*(?::[^=]*)?=\s*|return\s+|[\w.]+\()?[rbfuRBFU]{0,2}(?:\"{3}|'{3})\S""")


_LEXERS = {
    "python": ("py", "pyi"),
    "java": ("java",),
    "javascript": ("js", "mjs", "cjs", "jsx"),
    "typescript": ("ts", "mts", "cts", "tsx"),
    "kotlin": ("kt", "kts"),
    "go": ("go",),
    "rust": ("rs",),
    "c": ("c", "h"),
    "cpp": ("cc", "cpp", "hpp"),
    "ruby": ("rb",),
    "bash": ("sh",),
    "json": ("json",),
    "toml": ("toml",),
    "yaml": ("yaml", "yml"),
    "ini": ("ini", "cfg"),
    "xml": ("xml",),
    "html": ("html",),
    "css": ("css",),
    "sql": ("sql",),
}
_LANGUAGE = {ending: name for name, endings in _LEXERS.items() for ending in endings}


def lexer_for(path: str) -> Any:
    """The lexer of a file by its name's ending, or None."""
    language = _LANGUAGE.get(path.rpartition(".")[2].lower())
    return None if language is None else _lexer(language)


@cache
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(language, stripnl=False, stripall=False, ensurenl=False)


_STYLES = (
    ("Token.Comment", "hc"),
    ("Token.Keyword", "hk"),
    ("Token.Operator.Word", "hk"),
    ("Token.Literal.String", "hs"),
    ("Token.Literal.Number", "hn"),
    ("Token.Name.Function", "hf"),
    ("Token.Name.Class", "hf"),
    ("Token.Name.Tag", "hf"),
    ("Token.Name.Decorator", "hd"),
    ("Token.Name.Attribute", "hd"),
    ("Token.Name.Builtin", "hb"),
    ("Token.Name.Exception", "hb"),
)


@cache
def _style(token: Any) -> str:
    name = str(token)
    return next((style for start, style in _STYLES if name.startswith(start)), "")
