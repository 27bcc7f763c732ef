"""The private HOME of a workspace: the agent's own directory, into which files are laid without trusting it."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.executor.protocol import HomeFile

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def prepare(home: Path, files: Iterable[HomeFile]) -> Path:
    """Make the directory if it is not there, and lay the files into it. Links in it are not followed."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    root = os.open(home, _DIRECTORY)
    try:
        for file in files:
            try:
                _lay(root, file)
            except OSError as error:
                raise CodePilotError(
                    FailureKind.POLICY_VIOLATION,
                    f"{file.path} cannot be laid into HOME: something else lies there ({error.strerror})",
                    path=file.path,
                ) from error
    finally:
        os.close(root)
    return home


def remove_secrets(home: Path, files: Iterable[HomeFile]) -> None:
    """Remove the secret ones of the files that were laid. Links that lie there by now are not followed."""
    for file in files:
        if file.secret:
            with contextlib.suppress(OSError):
                _remove(home, file.path)


def _remove(home: Path, path: str) -> None:
    *parents, name = path.split("/")
    directory = os.open(home, _DIRECTORY)
    try:
        for parent in parents:
            deeper = os.open(parent, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = deeper
        os.unlink(name, dir_fd=directory)
    finally:
        os.close(directory)


def _lay(root: int, file: HomeFile) -> None:
    *parents, name = file.path.split("/")
    directory = os.dup(root)
    try:
        for parent in parents:
            with contextlib.suppress(FileExistsError):
                os.mkdir(parent, 0o700, dir_fd=directory)
            deeper = os.open(parent, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = deeper
        _replace(directory, name, file)
    finally:
        os.close(directory)


def _replace(directory: int, name: str, file: HomeFile) -> None:
    """Write in one step: a program that reads the file sees the old or the new content."""
    fresh = f".codepilot-{secrets.token_hex(6)}"
    made = os.open(fresh, _NEW, 0o600, dir_fd=directory)
    try:
        with os.fdopen(made, "wb") as stream:
            stream.write(file.content)
            os.fchmod(stream.fileno(), file.mode)
        os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(fresh, dir_fd=directory)
        raise
