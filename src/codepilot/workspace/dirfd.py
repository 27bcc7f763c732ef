"""File operations relative to open directories, which no rename or link can redirect.

Every step opens the next component from an open directory and refuses symbolic links. Pipes and devices are never
opened for reading. Removal works on trees of any depth and any modes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_REGULAR = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HANDLE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
_renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
_RENAME_EXCHANGE = 2
_THREADS, _FEW, _REFUSALS = 8, 8, 1000
_STEP = 1 << 20
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened(path: Path | str, parent: int | None = None) -> Iterator[int]:
    """An open directory, closed afterwards."""
    fd = os.open(path, DIRECTORY, dir_fd=parent)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def descended(root: int, parts: Sequence[str]) -> Iterator[int]:
    """The directory at `parts` below an open one. Raises as `os.open` does if it is not a plain directory."""
    fd = os.dup(root)
    try:
        for part in parts:
            below = os.open(part, DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


class Descent:
    """Opens many directories below a root; cheap when they are asked for in sorted order."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._stack: list[tuple[str, int]] = []

    def directory(self, path: str) -> int | None:
        """The open directory at `path` (`""` is the root), or None if it is no plain directory. Do not close it."""
        parts = path.split("/") if path else []
        shared = 0
        while shared < min(len(parts), len(self._stack)) and self._stack[shared][0] == parts[shared]:
            shared += 1
        while len(self._stack) > shared:
            os.close(self._stack.pop()[1])
        for part in parts[shared:]:
            try:
                fd = os.open(part, DIRECTORY, dir_fd=self._stack[-1][1] if self._stack else self._root)
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:
                if error.errno == errno.ELOOP:
                    return None
                raise
            self._stack.append((part, fd))
        return self._stack[-1][1] if self._stack else self._root

    def close(self) -> None:
        while self._stack:
            os.close(self._stack.pop()[1])


def status(parent: int, name: str) -> os.stat_result | None:
    """What is at a name, not following links; None if nothing is."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def names(directory: int) -> list[str]:
    """The names in an open directory, sorted."""
    with os.scandir(directory) as listing:
        return sorted(entry.name for entry in listing)


def open_regular(parent: int, name: str) -> int | None:
    """A descriptor of a regular file; None if it is anything else."""
    try:
        fd = os.open(name, _REGULAR, dir_fd=parent)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    return fd


def read_all(fd: int, size: int) -> bytes:
    """The whole content of a file expected to hold `size` bytes."""
    first = os.read(fd, size + 1)
    if len(first) <= size and (len(first) == size or not first):
        return first
    parts = [first]
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def read_chunks(fd: int, size: int) -> Iterator[bytes]:
    """Exactly `size` bytes of a file in pieces. If the file shrinks, zeros fill the rest."""
    left = size
    while left > 0:
        chunk = os.read(fd, min(left, _STEP)) or bytes(min(left, _STEP))
        left -= len(chunk)
        yield chunk


def create_file(parent: int, name: str, data: Iterable[bytes], mode: int, mtime_ns: int) -> os.stat_result:
    """A new file with exactly this content, mode and time; its final status."""
    fd = os.open(name, _NEW, 0o600, dir_fd=parent)
    try:
        for chunk in data:
            view = memoryview(chunk)
            while view:
                view = view[os.write(fd, view) :]
        os.fchmod(fd, mode)
        os.utime(fd, ns=(mtime_ns, mtime_ns))
        return os.fstat(fd)
    finally:
        os.close(fd)


def open_for_change(parent: int, name: str) -> int:
    """Open a subdirectory, and make it writable for its owner."""
    try:
        fd = os.open(name, DIRECTORY, dir_fd=parent)
    except PermissionError:
        handle = os.open(name, _HANDLE, dir_fd=parent)
        try:
            if not stat.S_ISDIR(os.fstat(handle).st_mode):
                raise
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101 (the only way to change a mode by handle)
        finally:
            os.close(handle)
        fd = os.open(name, DIRECTORY, dir_fd=parent)
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & 0o700 != 0o700:
        os.fchmod(fd, mode | 0o700)
    return fd


def exchange(parent: int, one: str, other: str) -> None:
    """Swap what is at two names: in one step if the file system can, else by way of a third name."""
    if _swap(parent, one, parent, other):
        return
    third = f"{one}.{secrets.token_hex(6)}"
    os.rename(other, third, src_dir_fd=parent, dst_dir_fd=parent)
    os.rename(one, other, src_dir_fd=parent, dst_dir_fd=parent)
    os.rename(third, one, src_dir_fd=parent, dst_dir_fd=parent)


def exchange_between(parent: int, name: str, other_parent: int, other: str) -> None:
    """Swap what is at two names of two directories, in one step or not at all."""
    if not _swap(parent, name, other_parent, other):
        raise CodePilotError(
            FailureKind.SANDBOX_UNAVAILABLE,
            f"the file system below {other!r} cannot exchange two directories in one step",
            "Put the home and the worktree on ext4, xfs, btrfs or tmpfs, or use --strategy direct.",
        )


def put(staging: int, made: str, parent: int, name: str) -> None:
    """Move a new file or link into place. What it replaces is left in `staging` if the file system can swap.

    Freeing a replaced file's room may wait for the disk; there many are freed at once.
    """
    if not _swap(staging, made, parent, name):
        os.rename(made, name, src_dir_fd=staging, dst_dir_fd=parent)


def _swap(parent: int, name: str, other_parent: int, other: str) -> bool:
    """Exchange two names in one step; false if there is only one, or the file system cannot."""
    if _renameat2 is None:
        return False
    if _renameat2(parent, os.fsencode(name), other_parent, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code not in (errno.ENOENT, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        raise OSError(code, os.strerror(code), other)
    return False


def remove(parent: int, name: str) -> None:
    """Remove a file or a tree of any depth without following links. A missing one is no error."""
    found = status(parent, name)
    if found is None:
        return
    if not stat.S_ISDIR(found.st_mode):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        return
    top = open_for_change(parent, name)
    try:
        empty(top)
    finally:
        os.close(top)
    os.rmdir(name, dir_fd=parent)


def empty(top: int) -> None:
    """Empty a directory by lifting every subdirectory to its top level, so that depth costs neither stack nor files.

    Where there is much to do several threads do it: removing a file that is on the disk is mostly waiting.
    """
    label = secrets.token_hex(6)
    numbers = itertools.count()
    refusals = 0
    while found := names(top):
        shares = [found[start::_THREADS] for start in range(_THREADS if len(found) > _FEW else 1)]
        if len(shares) == 1:
            refusals += _clear(top, found, label, numbers)
        else:
            with ThreadPoolExecutor(_THREADS) as pool:
                refusals += sum(pool.map(lambda share: _clear(top, share, label, numbers), shares))
        if refusals > _REFUSALS:
            raise OSError(errno.ENOTEMPTY, "a directory is filled as fast as it is emptied")


def _clear(top: int, share: Sequence[str], label: str, numbers: Iterator[int]) -> int:
    """Remove some entries of a directory, and lift what is two levels down. Returns how many were refilled."""
    refusals = 0
    for name in share:
        found = status(top, name)
        if found is None:
            continue
        if not stat.S_ISDIR(found.st_mode):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=top)
            continue
        below = open_for_change(top, name)
        try:
            for child in names(below):
                inside = status(below, child)
                if inside is None:
                    continue
                if stat.S_ISDIR(inside.st_mode):
                    os.close(open_for_change(below, child))
                    os.rename(child, f".{label}-{next(numbers)}", src_dir_fd=below, dst_dir_fd=top)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(child, dir_fd=below)
        finally:
            os.close(below)
        try:
            os.rmdir(name, dir_fd=top)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            refusals += 1
    return refusals


@contextlib.contextmanager
def disk_full_is_typed() -> Iterator[None]:
    """Report a full disk as the failure it is."""
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise CodePilotError(FailureKind.DISK_FULL, f"no space left on the disk: {error}") from error
        raise
