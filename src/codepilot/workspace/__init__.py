"""Bases, workspaces, snapshots, diffs and promotion.

The order of work: `find_root` or `clone`, then `pin_base` into an `ObjectStore`, then a `Workspace` made from the
base's tree. While an agent works: `snapshot`, `restore` and `diff`. At the end `promote` writes the accepted tree into
the user's checkout, or `write_commit` puts it on a branch.
"""

from codepilot.workspace.addresses import check_public
from codepilot.workspace.base import Base, pin_base
from codepilot.workspace.clone import clone, has_password, is_url
from codepilot.workspace.commit import Commit, refuse_branch, write_commit
from codepilot.workspace.directory import pin_directory
from codepilot.workspace.git import git_version
from codepilot.workspace.hunks import ChangedFile, Hunk, Piece, changed_files, remaining_tree, selected
from codepilot.workspace.landing import Tip, add_to_branch, branch_tip, landed_before
from codepilot.workspace.materialise import lay_out
from codepilot.workspace.merge import Merge, merge_trees
from codepilot.workspace.objects import ObjectStore, TreeDiff
from codepilot.workspace.patch_parts import Change, split_patch
from codepilot.workspace.promote import promote
from codepilot.workspace.repository import (
    DatedLine,
    default_branch,
    find_repository,
    find_root,
    first_commit,
    fork_point,
    line_ages,
    resolve_commit,
)
from codepilot.workspace.shadow import RunTree
from codepilot.workspace.trees import Entry, shown
from codepilot.workspace.walk import Violation, WalkLimits
from codepilot.workspace.workspace import Scan, Snapshot, Workspace, WorkspaceDiff, remove_workspace

__all__ = [
    "Base",
    "Change",
    "ChangedFile",
    "Commit",
    "DatedLine",
    "Entry",
    "Hunk",
    "Merge",
    "ObjectStore",
    "Piece",
    "RunTree",
    "Scan",
    "Snapshot",
    "Tip",
    "TreeDiff",
    "Violation",
    "WalkLimits",
    "Workspace",
    "WorkspaceDiff",
    "add_to_branch",
    "branch_tip",
    "changed_files",
    "check_public",
    "clone",
    "default_branch",
    "find_repository",
    "find_root",
    "first_commit",
    "fork_point",
    "git_version",
    "has_password",
    "is_url",
    "landed_before",
    "lay_out",
    "line_ages",
    "merge_trees",
    "pin_base",
    "pin_directory",
    "promote",
    "refuse_branch",
    "remaining_tree",
    "remove_workspace",
    "resolve_commit",
    "selected",
    "shown",
    "split_patch",
    "write_commit",
]
