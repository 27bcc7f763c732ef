"""Reading patches as models write them: unified diffs, and the `*** Begin Patch` form. Pure, standard library only.

Counts and line numbers may be wrong or missing, context lines may lack their leading space, and prose or code
fences may surround the patch. A line that would be lost silently is an error instead. The source also runs inside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_HUNK = re.compile(r"^@@+(?: -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))?)?(?: ?@@+)?\s?(.*)$")
_NO_NEWLINE = "\\ No newline"
_MODES = {"100644": 0o644, "100755": 0o755}
_AFTER_HUNK = ("@@", "```", "diff --git ", "index ", "*** ", "new file mode", "deleted file mode", "old mode ")


class PatchError(Exception):
    """The patch cannot be applied; the message says which hunk, and what the file says there."""


@dataclass
class Hunk:
    """One change: lines tagged ' ', '-' or '+', in order."""

    number: int
    header: str
    start: int | None = None
    old_count: int | None = None
    new_count: int | None = None
    heading: str = ""
    lines: list[tuple[str, str]] = field(default_factory=list)
    doubtful: set[int] = field(default_factory=set)
    """Places of lines that may be context or may just stand after the hunk."""
    old_without_newline: bool = False
    new_without_newline: bool = False

    def side(self, tag: str) -> list[str]:
        return [text for kind, text in self.lines if kind in (" ", tag)]


@dataclass
class FilePatch:
    """The part of a patch about one file; `None` stands for /dev/null."""

    old: str | None
    new: str | None
    hunks: list[Hunk] = field(default_factory=list)
    renamed: bool = False
    copied: bool = False
    mode: int | None = None
    """The permissions that the patch states for the file."""


def parse_patch(text: str) -> list[FilePatch]:
    """The files a patch touches, in order."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        while self.lines and self.lines[-1] in ("", "\r"):
            self.lines.pop()
        self.at = 0
        self.taken = (0, 0)  # how many old and new lines the hunk being read has
        self.written = -1  # the last line found that is not blank
        self.files: list[FilePatch] = []
        self.git: FilePatch | None = None  # the file of `diff --git`, until a header names it

    def parse(self) -> list[FilePatch]:
        while self.at < len(self.lines):
            self._line(self.lines[self.at].rstrip("\r"))
        self._settle_git()
        if not self.files:
            raise PatchError("No file header was found. A patch needs `--- a/PATH` and `+++ b/PATH` before its hunks.")
        for patch in self.files:
            complete = patch.renamed or patch.copied or patch.mode is not None
            if not patch.hunks and not complete and None not in (patch.old, patch.new):
                raise PatchError(f"The patch names {patch.new} but has no hunk (`@@ … @@`) for it.")
        return self.files

    def _line(self, line: str) -> None:
        if line.startswith("GIT binary patch") or (line.startswith("Binary files ") and line.endswith(" differ")):
            raise PatchError("Binary patches cannot be applied; write the file instead.")
        if self._header_here():
            return self._header()
        if line.startswith("@@"):
            return self._hunk()
        if line.startswith("diff --git "):
            self._settle_git()
            self.git = git_paths(line[len("diff --git ") :])
        elif self.git is not None and self._git_line(self.git, line):
            pass
        elif line[:1] in ("+", "-") and self.files and self.files[-1].hunks:
            raise PatchError(f"Line {self.at + 1} of the patch lies outside any hunk: {line!r}.")
        self.at += 1
        return None

    def _git_line(self, git: FilePatch, line: str) -> bool:
        """Take in one of the lines that git writes between `diff --git` and the header."""
        words = line.split(" ")
        if words[:2] in (["new", "mode"], ["new", "file"], ["deleted", "file"]):
            mode = words[-1]
            if mode not in _MODES:
                raise PatchError(f"{git.new}: only plain files can be patched, not what has the mode {mode}.")
            git.mode = _MODES[mode] if words[0] == "new" else None
            git.old = None if words[:2] == ["new", "file"] else git.old
            git.new = None if words[0] == "deleted" else git.new
        elif words[:2] in (["rename", "from"], ["copy", "from"]):
            git.old = unquoted(line.split(" ", 2)[2])
        elif words[:2] in (["rename", "to"], ["copy", "to"]):
            git.new = unquoted(line.split(" ", 2)[2])
            git.renamed, git.copied = words[0] == "rename", words[0] == "copy"
        else:
            return False
        return True

    def _settle_git(self) -> None:
        """A file that git's own lines describe completely: empty, deleted, renamed, copied, or of another mode."""
        git, self.git = self.git, None
        if git is not None and (git.renamed or git.copied or git.mode is not None or None in (git.old, git.new)):
            self.files.append(git)

    def _header_here(self) -> bool:
        following = self.lines[self.at + 1] if self.at + 1 < len(self.lines) else ""
        return self.lines[self.at].startswith("--- ") and following.startswith("+++ ")

    def _header(self) -> None:
        old, new = (_header_path(self.lines[self.at + step]) for step in (0, 1))
        self.at += 2
        if old is None and new is None:
            raise PatchError("A file header names /dev/null on both sides.")
        if (old is None or old.startswith("a/")) and (new is None or new.startswith("b/")):
            old, new = old and old[2:], new and new[2:]
        git, self.git = self.git, None
        if git is None:
            self.files.append(FilePatch(old, new))
        elif git.renamed or git.copied:
            self.files.append(git)
        else:
            self.files.append(FilePatch(old, new, mode=git.mode))

    def _hunk(self) -> None:
        header = self.lines[self.at].rstrip("\r")
        if not self.files:
            raise PatchError(f"The hunk {header!r} has no file header (`--- a/PATH`, `+++ b/PATH`) before it.")
        match = _HUNK.match(header)
        start, old_count, _, new_count, heading = match.groups() if match else (None, None, None, None, "")
        patch = self.files[-1]
        hunk = Hunk(len(patch.hunks) + 1, header, heading=heading.strip())
        if start is not None:
            hunk.start = int(start)
            hunk.old_count = 1 if old_count is None else int(old_count)
            hunk.new_count = 1 if new_count is None else int(new_count)
        self.at += 1
        self.taken = (0, 0)
        while self.at < len(self.lines) and self._taken(hunk, self.lines[self.at]):
            self.at += 1
        if not any(tag != " " for tag, _ in hunk.lines):
            raise PatchError(f"Hunk {hunk.number} for {patch.new or patch.old} ({header}) changes nothing.")
        patch.hunks.append(hunk)

    def _taken(self, hunk: Hunk, line: str) -> bool:
        """Take `line` into the hunk, or say that the hunk is over."""
        if line.startswith(_NO_NEWLINE) and hunk.lines:
            tag = hunk.lines[-1][0]
            hunk.old_without_newline |= tag in (" ", "-")
            hunk.new_without_newline |= tag in (" ", "+")
            return True
        if self._next_file_here(hunk) or line.startswith(_AFTER_HUNK):
            return False
        blank = line.strip() == ""
        if self._complete(hunk) and (blank or line[0] not in "+- ") and not (blank and self._more_follows()):
            return False
        tag, text = (line[0], line[1:]) if line[:1] in ("+", "-", " ") else (" ", line)
        if blank or tag != line[:1]:
            hunk.doubtful.add(len(hunk.lines))
        hunk.lines.append((tag, text))
        self.taken = (self.taken[0] + (tag != "+"), self.taken[1] + (tag != "-"))
        return True

    def _complete(self, hunk: Hunk, more: int = 0) -> bool:
        """True if the header's counts are met, after `more` further lines on each side."""
        old, new = self.taken
        return (old + more, new + more) == (hunk.old_count, hunk.new_count)

    def _next_file_here(self, hunk: Hunk) -> bool:
        """True if `---` `+++` here open another file. In a hunk they may be a removed and an added line."""
        if not self._header_here():
            return False
        beyond = self.lines[self.at + 2] if self.at + 2 < len(self.lines) else "@@"
        if self._complete(hunk) or hunk.start is None:
            return True
        return beyond.startswith("@@") and not self._complete(hunk, 1)

    def _more_follows(self) -> bool:
        """True if the hunk goes on after blank lines, regardless of its counts."""
        if self.written < self.at:
            rest = (place for place in range(self.at, len(self.lines)) if self.lines[place].strip())
            self.written = next(rest, len(self.lines))
        place = self.written
        if place == len(self.lines):
            return False
        opens_file = self.lines[place].startswith("--- ") and self.lines[place + 1 : place + 2] != []
        if opens_file and self.lines[place + 1].startswith("+++ "):
            return False
        return self.lines[place][0] in "+- "


def git_paths(names: str) -> FilePatch:
    """The two names of a `diff --git` line; a name with spaces is found by its repetition."""
    names = names.rstrip("\r ")
    quoted = re.fullmatch(r'("(?:\\.|[^"\\])*"|\S+) ("(?:\\.|[^"\\])*"|\S+)', names)
    half = len(names) // 2
    old, new = quoted.groups() if quoted else (names[:half], names[half + 1 :])
    old, new = unquoted(old), unquoted(new)
    if old.startswith("a/") and new.startswith("b/"):
        old, new = old[2:], new[2:]
    return FilePatch(old, new)


def _header_path(line: str) -> str | None:
    path = unquoted(line[4:].rstrip("\r").split("\t")[0].strip())
    return None if path == "/dev/null" else path[2:] if path.startswith("./") else path


def unquoted(path: str) -> str:
    """A path as git writes it: odd names are quoted with octal escapes."""
    if len(path) < 2 or path[0] != '"' or path[-1] != '"':
        return path
    escapes = {"n": b"\n", "t": b"\t", "r": b"\r"}
    out = b""
    for part in re.findall(r"\\[0-7]{3}|\\.|[^\\]+", path[1:-1]):
        if part[0] != "\\":
            out += part.encode("utf-8", "surrogateescape")
        elif len(part) == 4:
            out += bytes([int(part[1:], 8) & 0xFF])
        else:
            out += escapes.get(part[1], part[1].encode("utf-8", "surrogateescape"))
    return out.decode("utf-8", "surrogateescape")


# The `*** Begin Patch` form ---------------------------------------------------------------------------


BEGIN = "*** Begin Patch"
_END = "*** End Patch"
_UPDATE, _ADD, _DELETE, _MOVE = "*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: "


def parse_envelope(text: str) -> list[FilePatch]:
    """The files such a patch touches, in order. Its hunks have no line numbers; their text decides."""
    files: list[FilePatch] = []
    hunk: Hunk | None = None
    lines = [line.rstrip("\r") for line in text.split("\n")]
    begin = next(place for place, line in enumerate(lines) if line.startswith(BEGIN))
    for line in lines[begin + 1 :]:
        if line.startswith(_END):
            break
        if line.startswith("*** "):
            _open_file(files, line)
            hunk = None
            continue
        if not files:
            if line.strip():
                raise PatchError(f"{line!r} stands before the first `{_UPDATE}PATH`.")
            continue
        if line.startswith("@@"):
            hunk = _next_hunk(files[-1], line)
            continue
        hunk = hunk or _next_hunk(files[-1], "@@")
        tag, text = (line[0], line[1:]) if line[:1] in ("+", "-", " ") else (" ", line)
        if tag != line[:1]:
            hunk.doubtful.add(len(hunk.lines))
        hunk.lines.append((tag, text))
    for patch in files:
        patch.hunks = _changing(patch)
    if not files:
        raise PatchError(f"The patch names no file (`{_UPDATE}PATH`, `{_ADD}PATH` or `{_DELETE}PATH`).")
    return files


def _open_file(files: list[FilePatch], line: str) -> None:
    if line.startswith(_UPDATE):
        path = line[len(_UPDATE) :].strip()
        files.append(FilePatch(path, path))
    elif line.startswith(_ADD):
        files.append(FilePatch(None, line[len(_ADD) :].strip()))
    elif line.startswith(_DELETE):
        files.append(FilePatch(line[len(_DELETE) :].strip(), None))
    elif line.startswith(_MOVE) and files:
        files[-1].new, files[-1].renamed = line[len(_MOVE) :].strip(), True
    elif not line.startswith("*** End of File"):
        raise PatchError(f"{line!r} is not understood.")


def _next_hunk(patch: FilePatch, header: str) -> Hunk:
    """The next hunk. Headings one after another lead to one place: the last of them counts."""
    heading = header.strip("@ ")
    if patch.hunks and not patch.hunks[-1].lines:
        patch.hunks[-1].heading = heading
        return patch.hunks[-1]
    patch.hunks.append(Hunk(len(patch.hunks) + 1, header, heading=heading))
    return patch.hunks[-1]


def _changing(patch: FilePatch) -> list[Hunk]:
    if patch.new is None:
        return []
    kept = []
    for hunk in patch.hunks:
        if any(tag != " " for tag, _ in hunk.lines):
            kept.append(hunk)
        elif any(text.strip() for _, text in hunk.lines):
            raise PatchError(f"Hunk {hunk.number} for {patch.new} ({hunk.header}) changes nothing.")
    if not kept and patch.old is not None and not patch.renamed:
        raise PatchError(f"The patch names {patch.new} but changes nothing in it.")
    if patch.old is None:
        for hunk in kept:
            hunk.lines = [(tag, text) for tag, text in hunk.lines if tag == "+"]
    return kept
