"""A tree with its map, outline and context: the interface of this room."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from codepilot.context.evidence import Clues, Evidence
from codepilot.context.gathering import Gathered, gather
from codepilot.context.ranking import Graph, graph_of, rank
from codepilot.context.recipes import focus_of
from codepilot.context.rendering import render_ranked
from codepilot.context.repository import Read, RepositoryMap, map_repository
from codepilot.context.symbols import MAX_BYTES
from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.task import TaskKind
from codepilot.workspace import ObjectStore

_REGULAR = "100"
"""The prefix of the modes of regular files."""


@dataclass(frozen=True)
class Files:
    """A tree's regular files: content hashes by path, and a way to their bytes."""

    hashes: Mapping[str, str]
    read: Read

    @classmethod
    def of_tree(cls, objects: ObjectStore, tree: str) -> Files:
        """The files of a tree in an object store."""
        entries = objects.read_tree(tree)
        hashes = {path: entry.oid for path, entry in entries.items() if entry.mode.startswith(_REGULAR)}

        def read(path: str) -> bytes | None:
            header = objects.header(hashes[path]) if path in hashes else None
            return None if header is None or header[1] > MAX_BYTES else objects.read_blob(hashes[path])

        return cls(hashes, read)

    def changed(self, paths: Iterable[str], read_now: Callable[[str], bytes]) -> Files:
        """With some files as they are now, read as an executor reads them; one that is gone is left out."""
        now: dict[str, bytes | None] = {path: _there(read_now, path) for path in paths}
        hashes = {path: oid for path, oid in self.hashes.items() if path not in now}
        hashes.update((path, _name(data)) for path, data in now.items() if data is not None)
        return Files(hashes, lambda path: now[path] if path in now else self.read(path))


@dataclass(frozen=True)
class Survey:
    """A tree, mapped. Everything asked of it is pure."""

    repository: RepositoryMap
    read: Read

    @classmethod
    def of(cls, files: Files, cache: Path | None = None) -> Survey:
        """Map a tree, with what the cache at this path knows of it."""
        return cls(map_repository(files.hashes, files.read, cache), files.read)

    @cached_property
    def graph(self) -> Graph:
        return graph_of(self.repository)

    def outline(self, evidence: Evidence, budget_tokens: int) -> str:
        """The tree's most important signatures for a task, as a model reads them."""
        focus = focus_of(Clues(self.repository, evidence))
        return render_ranked(self.repository, rank(self.repository, self.graph, focus), budget_tokens)

    def gather(self, kind: TaskKind, evidence: Evidence, budget_tokens: int) -> Gathered:
        """The pieces of the tree that a task needs."""
        return gather(kind, self.repository, evidence, self.read, budget_tokens, self.graph)


def _name(data: bytes) -> str:
    """The name that an object store would give to a file's content."""
    return hashlib.sha256(b"blob %d\0" % len(data) + data).hexdigest()


def _there(read_now: Callable[[str], bytes], path: str) -> bytes | None:
    try:
        return read_now(path)
    except CodePilotError as error:
        if error.failure.kind is FailureKind.PATH_NOT_FOUND:
            return None
        raise
