"""Searching the workspace's text. Standard library only: this source travels as it is.

Files are first filtered by a literal that every match contains, by `rg` where it is installed. The expression itself
decides, so the results are the same with and without `rg`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codepilot.core.text import decoded
from codepilot.skills.places import NOISE, PathError, inside, relative, walk

MAX_SEARCHED = 2 << 20
MAX_NAMED = 64 << 20
"""Size limits: for each of many files, and for a file that is named."""
MAX_LINE = 400
RG_SEC = 60.0
RG = ("rg", "--no-config", "--no-ignore", "--hidden", "--text", "--encoding=none", "-l", "-0", "-F")


@dataclass(frozen=True)
class Hit:
    """A line that matched."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"

    __repr__ = __str__


def search_code(pattern: str, path: str = ".", limit: int = 200) -> list[Hit]:
    """The lines that match a Python regular expression, in one file or all files below a directory.

    Each has path, line and text.
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}. Use re.escape for plain text.") from None
    if limit < 1:
        raise ValueError(f"limit is {limit}; it must be 1 or more.")
    base = _base(pattern, path)
    literal = _literal(pattern).encode()
    largest = MAX_SEARCHED if base.is_dir() else MAX_NAMED
    hits: list[Hit] = []
    for file in _candidates(base, literal):
        for number, line in enumerate(_lines(file, literal, largest), 1):
            if wanted.search(line):
                hits.append(Hit(relative(file), number, line[:MAX_LINE]))
                if len(hits) >= limit:
                    return hits
    return hits


def _base(pattern: str, path: str) -> Path:
    """Where to search. A named file that cannot be searched is an error."""
    base = inside(path)
    if base.is_dir():
        return base
    if not base.exists():
        raise PathError(f"There is no {path}.{_meant(pattern, path)}")
    if not base.is_file():
        raise PathError(f"{path} is no ordinary file and cannot be searched.")
    if not os.access(base, os.R_OK):
        raise PathError(f"{path} may not be read.")
    if base.stat().st_size > MAX_NAMED:
        raise PathError(f"{path} is larger than {MAX_NAMED >> 20} MiB; run_command(['grep', '-n', pattern, path]).")
    if _binary(base.read_bytes()):
        raise PathError(f"{path} is binary; its bytes can be read with pathlib.")
    return base


def _meant(pattern: str, path: str) -> str:
    """A suggestion for a call with a path that does not exist."""
    if any(sign in path for sign in "*?["):
        return " Name a directory or a file; list_files(pattern=...) gives the files that match."
    try:
        swapped = bool(pattern) and inside(pattern).exists()
    except PathError:
        swapped = False
    return f" Is it search_code({path!r}, {pattern!r})?" if swapped else ""


def _candidates(base: Path, literal: bytes) -> list[Path]:
    """The files to look into, in order."""
    if not base.is_dir():
        return [base]
    found = _rg(base, literal) if literal else None
    return sorted(walk(base) if found is None else found)


def _rg(base: Path, literal: bytes) -> list[Path] | None:
    """The files that contain the literal; None if `rg` cannot be used."""
    program = shutil.which(RG[0])
    if program is None:
        return None
    skipped = [f"--glob=!**/{name}/**" for name in sorted(NOISE)]
    argv = [program, *RG[1:], f"--max-filesize={MAX_SEARCHED}", *skipped, "-e", literal.decode(), "."]
    try:
        done = subprocess.run(
            argv, cwd=base, stdin=subprocess.DEVNULL, capture_output=True, timeout=RG_SEC, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode not in (0, 1):
        return None
    return [base / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def _lines(file: Path, literal: bytes, largest: int) -> Iterable[str]:
    if file.is_symlink() or not file.is_file() or file.stat().st_size > largest or not os.access(file, os.R_OK):
        return ()
    data = file.read_bytes()
    if not data or _binary(data) or literal not in data:
        return ()
    return decoded(data)[0].replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def _binary(data: bytes) -> bool:
    return b"\0" in data[:8192]


def _literal(pattern: str) -> str:
    """The longest plain ASCII text that every match contains, as far as that is easily seen; else nothing."""
    try:
        from re import _parser as parser  # type: ignore[attr-defined]
    except ImportError:
        import sre_parse as parser
    parsed = parser.parse(pattern)
    if parsed.state.flags & re.IGNORECASE:
        return ""
    return max(_runs(parsed), key=len)


def _runs(parsed: Any) -> list[str]:
    """The runs of literal characters at the top of a parsed expression."""
    runs = [""]
    for kind, value in parsed:
        if str(kind) == "LITERAL" and value < 128 and chr(value).isprintable():
            runs[-1] += chr(value)
        elif str(kind) != "AT":
            if str(kind) == "SUBPATTERN" and not (value[1] or 0) & re.IGNORECASE:
                runs.extend(_runs(value[3]))
            runs.append("")
    return runs
