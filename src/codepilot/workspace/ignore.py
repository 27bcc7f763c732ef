"""Git's ignore rules, computed from the bytes of `.gitignore` files.

The answers equal those of `git check-ignore --no-index`. Pure: no file is read, so nothing that happens on disk later
changes an answer. Matching takes bounded time whatever the patterns are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

ALWAYS = b"__pycache__/\n*.pyc\n.pytest_cache/\n.hypothesis/\n.mypy_cache/\n.ruff_cache/\n"
"""Files that common tools leave behind. They are ignored in every repository."""

_CLASSES = {
    b"alnum": rb"a-zA-Z0-9",
    b"alpha": rb"a-zA-Z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": rb"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7e",
    b"space": rb" \t\n\r\f\v",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9a-fA-F",
}

_WILD = b"*?[\\"


class _NeverMatches(Exception):
    """A pattern that git accepts and that matches nothing."""


class Pattern(NamedTuple):
    """One line of a `.gitignore`."""

    matches: re.Pattern[bytes]
    negated: bool
    only_directories: bool
    by_name: bool


@dataclass(frozen=True)
class IgnoreRules:
    """All ignore files of a tree, by the directory that holds them (`""` is the root)."""

    files: Mapping[str, tuple[Pattern, ...]]
    always: tuple[Pattern, ...]

    @classmethod
    def read(cls, files: Mapping[str, bytes], always: bytes = ALWAYS) -> IgnoreRules:
        """`files` maps a directory to the content of its `.gitignore`."""
        parsed = {directory: parse(content) for directory, content in files.items()}
        return cls({directory: rules for directory, rules in parsed.items() if rules}, parse(always))

    def ignores(self, path: str, is_directory: bool = False) -> bool:
        """True if the path, or a directory above it, is ignored."""
        parts = path.split("/")
        above = ("/".join(parts[:end]) for end in range(1, len(parts)))
        return any(self.matches(parent, True) for parent in above) or self.matches(path, is_directory)

    def matches(self, path: str, is_directory: bool) -> bool:
        """True if the path itself is ignored, given that no directory above it is."""
        raw = os.fsencode(path)
        if _decide(self.always, raw, is_directory):
            return True
        directory = path
        while directory:
            directory = directory.rpartition("/")[0]
            rules = self.files.get(directory)
            if rules:
                inside = raw[len(os.fsencode(directory)) + 1 :] if directory else raw
                verdict = _decide(rules, inside, is_directory)
                if verdict is not None:
                    return verdict
        return False


def _decide(rules: Iterable[Pattern], path: bytes, is_directory: bool) -> bool | None:
    """What the last matching pattern says; None if none matches."""
    name = path.rpartition(b"/")[2]
    verdict = None
    for rule in rules:
        if rule.only_directories and not is_directory:
            continue
        if rule.matches.fullmatch(name if rule.by_name else path):
            verdict = not rule.negated
    return verdict


def parse(content: bytes) -> tuple[Pattern, ...]:
    """The patterns of an ignore file, in order."""
    patterns = []
    for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        pattern = _pattern(line)
        if pattern is not None:
            patterns.append(pattern)
    return tuple(patterns)


def _pattern(line: bytes) -> Pattern | None:
    line = _without_trailing_spaces(line.removesuffix(b"\r"))
    if not line or line.startswith(b"#"):
        return None
    negated = line.startswith(b"!")
    line = line.removeprefix(b"!")
    only_directories = line.endswith(b"/")
    line = line.removesuffix(b"/")
    by_name = b"/" not in line
    try:
        expression = translate(line.removeprefix(b"/"))
    except _NeverMatches:
        return None
    return Pattern(re.compile(expression, re.DOTALL), negated, only_directories, by_name)


def _without_trailing_spaces(line: bytes) -> bytes:
    """Trailing spaces do not count unless the first of them is escaped."""
    kept = 0
    position = 0
    while position < len(line):
        if line[position : position + 1] == b"\\":
            position += 2
            kept = position
            continue
        position += 1
        if line[position - 1 : position] != b" ":
            kept = position
    return line[:kept]


def translate(glob: bytes) -> bytes:
    """A wildcard pattern, in which `*` and `?` stop at slashes, as a regular expression.

    Git compares what stands before the first wildcard by itself: to what follows it is as if it were the beginning.
    Matching takes at most quadratic time: a wildcard that is followed by another one takes the first place that fits
    and never tries a second, which changes no answer because the later wildcard can take whatever is left between.
    """
    first = next((at for at, char in enumerate(glob) if char in _WILD), len(glob))
    *deep, last = _parts(glob[first:])
    if not deep:
        return re.escape(glob[:first]) + _between_stars(last)
    middle = b"".join(b"(?>(?:.*?/)??%s)" % _between_stars(part) for part in deep[1:])
    return re.escape(glob[:first]) + _between_stars(deep[0]) + middle + b"(?:.*/)?" + _between_stars(last)


def _between_stars(part: list[list[bytes]]) -> bytes:
    """The regular expression of a part without `**/`, given by what stands between its stars."""
    first, *rest = (b"".join(pieces) for pieces in part)
    if not rest:
        return first
    return first + b"".join(b"(?>[^/]*?%s)" % fixed for fixed in rest[:-1]) + b"[^/]*" + rest[-1]


def _parts(glob: bytes) -> list[list[list[bytes]]]:
    """What stands between the `**/` of a pattern, each split at its stars into expressions of one character."""
    parts: list[list[list[bytes]]] = [[[]]]
    position = 0
    while position < len(glob):
        char = glob[position : position + 1]
        if char == b"*":
            kind, position = _stars(glob, position)
            if kind == "directories":
                parts.append([[]])
            elif kind == "name":
                parts[-1].append([])
            else:
                parts[-1][-1].append(b".*")
            continue
        if char == b"?":
            piece, position = b"[^/]", position + 1
        elif char == b"[":
            piece, position = _bracket(glob, position + 1)
        elif char == b"\\":
            if position + 1 == len(glob):
                raise _NeverMatches
            piece, position = re.escape(glob[position + 1 : position + 2]), position + 2
        else:
            piece, position = re.escape(char), position + 1
        parts[-1][-1].append(piece)
    return parts


def _stars(glob: bytes, start: int) -> tuple[Literal["name", "directories", "everything"], int]:
    """What a row of stars stands for, and where it ends: a part of a name, any directories, or all that follows."""
    end = start
    while glob[end : end + 1] == b"*":
        end += 1
    if end - start >= 2 and (start == 0 or glob[start - 1 : start] == b"/"):
        if end == len(glob):
            return "everything", end
        if glob[end : end + 1] == b"/":
            return "directories", end + 1
        if glob[end : end + 2] == b"\\/":
            return "directories", end + 2
    return "name", end


def _bracket(glob: bytes, position: int) -> tuple[bytes, int]:
    """A character class that starts after its `[`. It never matches a slash."""
    negated = glob[position : position + 1] in (b"!", b"^")
    position += negated
    members = b""
    first = True
    previous: int | None = None
    while True:
        char = glob[position : position + 1]
        if not char:
            raise _NeverMatches
        if char == b"]" and not first:
            break
        first = False
        if char == b"[" and glob[position + 1 : position + 2] == b":":
            end = glob.find(b"]", position + 2)
            if end < 0:
                raise _NeverMatches
            if glob[end - 1 : end] == b":" and end - 1 >= position + 2:
                name = glob[position + 2 : end - 1]
                if name not in _CLASSES:
                    raise _NeverMatches
                members += _CLASSES[name]
                position, previous = end + 1, None
                continue
        if char == b"-" and previous is not None and glob[position + 1 : position + 2] not in (b"]", b""):
            high, position = _member(glob, position + 1)
            if previous <= high:
                members += b"\\x%02x-\\x%02x" % (previous, high)
            previous = None
            continue
        previous, position = _member(glob, position)
        members += b"\\x%02x" % previous
    if not members:
        return (b"[^/]" if negated else b"(?!)"), position + 1
    return (b"[^/%s]" % members if negated else b"(?!/)[%s]" % members), position + 1


def _member(glob: bytes, position: int) -> tuple[int, int]:
    if glob[position : position + 1] == b"\\":
        position += 1
    if position >= len(glob):
        raise _NeverMatches
    return glob[position], position + 1
