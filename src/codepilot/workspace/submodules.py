"""What is kept of checked-out submodules.

A submodule is left as it is: a tree holds only its recorded commit. So that tests can run, the files found in its work
tree are kept beside the objects, found by that commit, and laid down in every workspace made from the store.
"""

from __future__ import annotations

import re
import secrets

from codepilot.workspace.objects import ObjectStore


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
