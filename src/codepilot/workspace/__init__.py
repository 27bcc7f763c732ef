"""Bases, workspaces, snapshots, diffs and promotion: every byte of a change, and nothing that git or an agent decides.

The order of work: `find_root` or `clone` → `pin_base` into an `ObjectStore` → a `Workspace` made from the base's tree →
`snapshot`, `restore`, `diff` while an agent works → `promote` the accepted tree into the user's checkout, or
`write_commit` it to a branch.
"""

from codepilot.workspace.base import Base, pin_base
from codepilot.workspace.checkout import lay_out
from codepilot.workspace.clone import clone
from codepilot.workspace.commit import Commit, refuse_branch, write_commit
from codepilot.workspace.git import git_version
from codepilot.workspace.history import DatedLine, line_ages
from codepilot.workspace.objects import Change, ObjectStore, TreeDiff
from codepilot.workspace.paths import shown
from codepilot.workspace.promote import promote
from codepilot.workspace.repository import find_repository, find_root, first_commit, resolve_commit
from codepilot.workspace.trees import Entry
from codepilot.workspace.url import has_password, is_url
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
