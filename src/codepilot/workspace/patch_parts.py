"""The parts of patches about single files, kept so that a later patch makes only those that are new.

What git writes about a file follows from its path and from its content and mode on both sides, and from nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Literal, NamedTuple

from codepilot.workspace.trees import Entry

ChangeKind = Literal["added", "modified", "deleted", "mode"]
Pair = tuple[str, Entry | None, Entry | None]
"""A path that differs, with its entry on either side."""

KEPT_BYTES = 16 << 20
"""How much is kept: a run's memory is bounded, however large its change."""
NARROW = 100
"""How many paths git is given to look at; above, making the whole patch costs less than looking for them."""

_PART = re.compile(rb"^(?=diff --git )", re.MULTILINE)
_OVERHEAD = 500


class Change(NamedTuple):
    """How one path differs between two trees; `before` and `after` name its content."""

    path: str
    kind: ChangeKind
    old_mode: str | None
    new_mode: str | None
    binary: bool
    before: str = ""
    after: str = ""
    size: int = 0
    """The size of the content after, in bytes."""


class Part(NamedTuple):
    """One changed file: what differs, and the patch of it."""

    change: Change
    patch: bytes


class PatchParts:
    """See the module. Not for several threads at once."""

    def __init__(self) -> None:
        self._known: dict[Pair, Part] = {}
        self._bytes = 0

    def get(self, pair: Pair) -> Part | None:
        return self._known.get(pair)

    def keep(self, pairs: Sequence[Pair], changes: Sequence[Change], patch: bytes) -> dict[Pair, Part] | None:
        """Keep the parts of a patch about these paths; None if it has others than these."""
        split = split_patch(patch, [(change.old_mode, change.new_mode) for change in changes])
        if split is None:
            return None
        made = dict(zip(pairs, map(Part, changes, split), strict=True))
        added = _OVERHEAD * len(made) + len(patch)
        if added <= KEPT_BYTES:
            if self._bytes + added > KEPT_BYTES:
                self._known, self._bytes = {}, 0
            self._known.update(made)
            self._bytes += added
        return made


def split_patch(patch: bytes, modes: Sequence[tuple[str | None, str | None]]) -> list[bytes] | None:
    """The part of a patch about each changed file, by its modes on both sides; None if it has others than these.

    No line of a hunk begins a part. A file that became a link, or the other way round, is removed and added again.
    """
    found = [part for part in _PART.split(patch) if part]
    parts = iter(found)
    split = [b"".join(islice(parts, 2 if _becomes_another(*pair) else 1)) for pair in modes]
    whole = len(found) == sum(2 if _becomes_another(*pair) else 1 for pair in modes)
    return split if whole else None


def _becomes_another(old_mode: str | None, new_mode: str | None) -> bool:
    return None not in (old_mode, new_mode) and (old_mode or "")[:2] != (new_mode or "")[:2]
