"""Mount points inside a workspace, made by us and never through a symbolic link.

Something mounted on top of the workspace needs an empty directory or file there. bubblewrap would make it with the
user's rights while following links that an agent may have planted, so it is made here, component by component. An
empty directory is left behind: no tree records it, and removing it would unmount it in commands still running.
"""

from __future__ import annotations

import os
import stat

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.sandbox.spec import Mount, View

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def prepare(view: View) -> None:
    """Make the mount point of every extra mount that lies inside the workspace."""
    for mount in view.mounts:
        if mount.target != view.workspace.target and mount.target.is_relative_to(view.workspace.target):
            _prepare(view, mount)


def _prepare(view: View, mount: Mount) -> None:
    *parents, name = mount.target.relative_to(view.workspace.target).parts
    directory = os.open(view.workspace.source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            deeper = _enter(directory, parent)
            os.close(directory)
            directory = deeper
        _make(directory, name, mount.source.is_dir())
    except OSError as error:
        raise CodePilotError(
            FailureKind.POLICY_VIOLATION,
            f"{mount.target} cannot be shown inside the workspace: something else lies there ({error.strerror})",
            path=str(mount.target),
        ) from error
    finally:
        os.close(directory)


def _enter(directory: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        os.mkdir(name, 0o755, dir_fd=directory)
        return os.open(name, _DIRECTORY, dir_fd=directory)


def _make(directory: int, name: str, is_directory: bool) -> None:
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        if is_directory:
            os.mkdir(name, 0o755, dir_fd=directory)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=directory))
        return
    fits = stat.S_ISDIR(mode) if is_directory else stat.S_ISREG(mode)
    if not fits:
        raise FileExistsError(17, "a link or a file of another kind")
