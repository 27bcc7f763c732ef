"""Processes that outlive their bug: whoever still has its directory mounted, as its own, or in its command line."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

GRACE_SEC = 5.0
"""How long those that were killed may take to be gone."""
EVERY_SEC = 0.1
_PROC = Path("/proc")
_END = rb"(?![\w.-])"
"""Where the name of a bug's directory ends: not in the middle of another's."""


def survivors(place: Path, grace: float = GRACE_SEC) -> tuple[str, ...]:
    """What lives on in a bug's directory after its process has ended; where there is no /proc, nothing is known."""
    end = time.monotonic() + grace
    while found := tuple(_living(place)):
        if time.monotonic() >= end:
            return found
        time.sleep(EVERY_SEC)
    return ()


def _living(place: Path) -> Iterator[str]:
    mounts = _read(_PROC / "self" / "mountinfo")
    if not mounts:
        return
    named, real = os.fsencode(place.absolute()), os.fsencode(place.resolve())
    here = re.compile(b"(?:%s|%s)%s" % (re.escape(named), re.escape(real), _END))
    mounted = re.compile(re.escape(_source(real, mounts)) + _END)
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        command = _read(entry / "cmdline")
        if here.search(command) or here.match(_directory(entry)) or _mounts(entry, mounted):
            yield f"process {entry.name} lives on: {_printable(command)}"


def _mounts(entry: Path, mounted: re.Pattern[bytes]) -> bool:
    """The fourth field of a mount is the directory that was mounted, as its own file system names it."""
    lines = (line.split() for line in _read(entry / "mountinfo").splitlines())
    return any(len(fields) > 4 and mounted.match(fields[3]) for fields in lines)


def _source(place: bytes, mounts: bytes) -> bytes:
    """How the file system that holds a directory names it."""
    wanted = _escaped(place)
    best, found = -1, wanted
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 5:
            continue
        root, point = fields[3].rstrip(b"/"), fields[4].rstrip(b"/")
        if len(point) >= best and wanted.startswith(point + b"/"):
            best, found = len(point), root + wanted[len(point) :]
    return found


def _escaped(path: bytes) -> bytes:
    return re.sub(rb"[ \t\n\\]", lambda match: b"\\%03o" % match[0][0], path)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""  # It ended meanwhile, or is not ours to read.


def _directory(entry: Path) -> bytes:
    try:
        return os.fsencode((entry / "cwd").readlink())
    except OSError:
        return b""


def _printable(command: bytes) -> str:
    text = command.replace(b"\0", b" ").decode("utf-8", "backslashreplace").strip()
    return "".join(each if each.isprintable() else "?" for each in text)[:200]
