"""Parts of a patch."""

from __future__ import annotations

import re
from itertools import pairwise

from codepilot.skills.patch_formats import git_paths, unquoted

_HEAD = re.compile(rb"^diff --git ", re.MULTILINE)


def only_path(patch: bytes, path: str) -> bytes | None:
    """The part of a git patch that changes the file at `path`; None if there is none."""
    starts = [match.start() for match in _HEAD.finditer(patch)]
    for begin, end in pairwise([*starts, len(patch)]):
        part = patch[begin:end]
        head = part.partition(b"\n@@")[0].decode("utf-8", "surrogateescape").split("\n")
        names = git_paths(head[0].removeprefix("diff --git "))
        if path == names.new == names.old or path in map(_named, head[1:]):
            return part
    return None


def _named(line: str) -> str:
    """The path that a line of a file's head names, if it names one."""
    for start in ("--- ", "+++ ", "rename from ", "rename to "):
        if line.startswith(start):
            name = unquoted(line.removeprefix(start).split("\t")[0])
            return name.partition("/")[2] if start in ("--- ", "+++ ") else name
    return ""
