"""Bases, workspaces, snapshots, diffs and promotion.

The order of work: `find_root` or `clone`, then `pin_base` into an `ObjectStore`, then a `Workspace` made from the
base's tree. While an agent works: `snapshot`, `restore` and `diff`. At the end `promote` writes the accepted tree into
the user's checkout, or `write_commit` puts it on a branch.
"""

from codepilot.workspace.base import Base, pin_base
from codepilot.workspace.clone import clone, has_password, is_url
from codepilot.workspace.commit import Commit, refuse_branch, write_commit
from codepilot.workspace.git import git_version
from codepilot.workspace.materialise import lay_out
from codepilot.workspace.objects import Change, ObjectStore, TreeDiff
from codepilot.workspace.promote import promote
from codepilot.workspace.repository import (
    DatedLine,
    find_repository,
    find_root,
    first_commit,
    line_ages,
    resolve_commit,
)
from codepilot.workspace.trees import Entry, shown
from codepilot.workspace.walk import Violation, WalkLimits
from codepilot.workspace.workspace import Scan, Snapshot, Workspace, WorkspaceDiff, remove_workspace

__all__ = [
    "Base",
    "Change",
    "Commit",
    "DatedLine",
    "Entry",
    "ObjectStore",
    "Scan",
    "Snapshot",
    "TreeDiff",
    "Violation",
    "WalkLimits",
    "Workspace",
    "WorkspaceDiff",
    "clone",
    "find_repository",
    "find_root",
    "first_commit",
    "git_version",
    "has_password",
    "is_url",
    "lay_out",
    "line_ages",
    "pin_base",
    "promote",
    "refuse_branch",
    "remove_workspace",
    "resolve_commit",
    "shown",
    "write_commit",
]
