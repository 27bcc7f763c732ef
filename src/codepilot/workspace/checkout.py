"""A tree as plain files for reading, where the user's own checkout is on another machine."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from codepilot.workspace import beneath
from codepilot.workspace.objects import ObjectStore
from codepilot.workspace.restore import lay_down


def lay_out(objects: ObjectStore, tree: str, directory: Path) -> Path:
    """Make `directory` hold the tree, whole or not at all; one that is there already does."""
    if directory.is_dir():
        return directory
    partial = directory.with_name(f"{directory.name}.{secrets.token_hex(4)}.tmp")
    partial.mkdir(mode=0o700, parents=True)
    with beneath.opened(partial.parent) as parent:
        with beneath.opened(partial.name, parent) as root:
            lay_down(objects, tree, root)
        try:
            os.rename(partial.name, directory.name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError:
            beneath.remove(parent, partial.name)
            if not directory.is_dir():
                raise
    return directory
