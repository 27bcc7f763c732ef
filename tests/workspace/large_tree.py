"""A tree of many files and the changes of one attempt on it, for tests and measurements."""

from __future__ import annotations

import os
import random
from pathlib import Path

from codepilot.workspace import Entry, ObjectStore


def large_tree(objects: ObjectStore, files: int, seed: int = 0) -> str:
    """A tree as projects have it: ten or so small files to a directory, directories in directories."""
    rng = random.Random(seed)
    oids = objects.write_blobs(b"line %d of a module\n" % number * rng.randrange(5, 60) for number in range(files))
    per_directory = 12
    entries: dict[str, Entry] = {}
    for number, oid in enumerate(oids):
        directory = number // per_directory
        path = f"pkg{directory % 20}/sub{directory // 20 % 20}/part{directory // 400}/module_{number}.py"
        entries[path] = Entry("100755" if number % 50 == 0 else "100644", oid)
    return objects.write_tree(entries)


def change(root: Path, seed: int) -> None:
    """Twenty edits, ten new files, ten deletions and five changes of mode, spread over the tree."""
    rng = random.Random(seed)
    paths = sorted(
        os.path.join(directory, name)  # noqa: PTH118 (twenty thousand times)
        for directory, _, names in os.walk(root)
        for name in names
    )
    chosen = [Path(path) for path in rng.sample(paths, 45)]
    for path in chosen[:20]:
        path.write_bytes(b"edited %d\n" % seed + path.read_bytes())
    for path in chosen[20:30]:
        path.with_name(f"new_{seed}_{path.name}").write_bytes(b"new %d\n" % seed * 20)
    for path in chosen[30:40]:
        path.unlink()
    for path in chosen[40:]:
        path.chmod(path.stat().st_mode ^ 0o111)
