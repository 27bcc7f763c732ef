"""The base tree as an index: whether a path is tracked, ignored, part of a submodule or copied in.

Every answer comes from the base tree alone, so an agent cannot hide a file by editing `.gitignore`. A file that the
base tracks is never ignored. A tree holds only the commit of a submodule; the files of its work tree are kept next to
the objects, by that commit, and written into every workspace made from the store.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence

from codepilot.workspace.ignore import IgnoreRules
from codepilot.workspace.objects import ObjectStore
from codepilot.workspace.trees import EXECUTABLE, FILE, GITLINK, Entry


class BaseIndex:
    """The base tree, ready to be asked."""

    def __init__(
        self,
        entries: Mapping[str, Entry],
        rules: IgnoreRules,
        submodule_files: Mapping[str, Entry] | None = None,
        carried: Iterable[str] = (),
    ) -> None:
        self.entries = entries
        self.submodule_files = submodule_files or {}
        self.gitlinks = {path: entry for path, entry in entries.items() if entry.mode == GITLINK}
        self.carried = frozenset(carried)
        self._gitlinks_in: dict[str, list[tuple[str, str]]] = {}
        for path, entry in self.gitlinks.items():
            parent, slash, name = path.rpartition("/")
            self._gitlinks_in.setdefault(parent + slash, []).append((name, entry.oid))
        self._rules = rules
        self._verdicts: dict[tuple[str, bool], bool] = {}
        self._directories = _directories(entries)

    @classmethod
    def of(cls, objects: ObjectStore, tree: str, carried: Iterable[str] = ()) -> BaseIndex:
        """Read a base tree, its ignore files, and what was kept of its submodules."""
        entries = objects.read_tree(tree)
        ignore_files = {
            path.rpartition("/")[0]: objects.read_blob(entry.oid)
            for path, entry in entries.items()
            if path.rpartition("/")[2] == ".gitignore" and entry.mode in (FILE, EXECUTABLE)
        }
        inside: dict[str, Entry] = {}
        for path, entry in entries.items():
            if entry.mode == GITLINK and (files := carried_tree(objects, entry.oid)):
                inside |= {f"{path}/{name}": found for name, found in objects.read_tree(files).items()}
        return cls(entries, IgnoreRules.read(ignore_files), inside, carried)

    def holds_tracked(self, directory: str) -> bool:
        """True if the base has a file below this directory."""
        return directory in self._directories

    def gitlinks_in(self, prefix: str) -> Sequence[tuple[str, str]]:
        """Name and commit of the submodules directly in a directory, given as `""` or with a trailing slash."""
        return self._gitlinks_in.get(prefix, ())

    def ignores(self, path: str, is_directory: bool) -> bool:
        """True if an untracked path is ignored by itself, given that no directory above it is."""
        if path in self.carried:
            return True
        key = (path, is_directory)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = self._rules.matches(path, is_directory)
        return verdict


def _directories(paths: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return frozenset(found)


def keep_tree(objects: ObjectStore, gitlink: str, tree: str) -> None:
    """Remember the files of a submodule at a commit; the latest wins."""
    directory = objects.path / "submodules"
    directory.mkdir(exist_ok=True)
    temporary = directory / f"tmp-{secrets.token_hex(6)}"
    temporary.write_text(tree)
    temporary.rename(directory / gitlink)


def carried_tree(objects: ObjectStore, gitlink: str) -> str | None:
    """The tree of files kept for a submodule's commit, if any were."""
    try:
        tree = (objects.path / "submodules" / gitlink).read_text()
    except FileNotFoundError:
        return None
    return tree if re.fullmatch("[0-9a-f]{64}", tree) else None
