"""Writes an accepted change into the user's checkout.

Only files that the change touches are written, and only if each still equals the base (or already the result). In any
other case nothing is written and the error names every conflicting file. A journal with the hashes before and after is
synced before the first write. Each file is checked again right before it is replaced atomically; a file edited
meanwhile stops the work. After an interruption the same call completes the work; when all is done it does nothing.
Links are never followed, `.git` is never touched, and permissions change only in the executable bit.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.core.git_names import is_git_name
from codepilot.workspace import dirfd
from codepilot.workspace.objects import ObjectStore
from codepilot.workspace.pack import file_id, object_id
from codepilot.workspace.trees import EXECUTABLE, FILE, GITLINK, SYMLINK, Entry, shown

_OCCUPIED = Entry("occupied", "")
"""Something that no tree can hold, or a place that cannot be reached without following a link."""
_ABSENT = None
_TEMPORARY = ".codepilot-tmp-"


@dataclass(frozen=True)
class _Write:
    """One path of the change, before and after."""

    path: str
    before: Entry | None
    after: Entry | None

    @property
    def parts(self) -> list[str]:
        return self.path.split("/")


def promote(checkout: Path, objects: ObjectStore, base_tree: str, new_tree: str, journal: Path) -> tuple[str, ...]:
    """Bring the checkout from the base to the new tree; the paths that this call wrote."""
    changes = list(objects.changes(base_tree, new_tree))
    refuse_unfit(changes)
    writes = [_Write(*change) for change in changes]
    again = "Make the checkout writable and apply again: what is missing is then written."
    typed = _refusal_is(FailureKind.REPO_UNREACHABLE, f"the change cannot be written to {checkout}", again)
    with typed, dirfd.opened(checkout.resolve()) as root, dirfd.disk_full_is_typed():
        ready = _check(root, writes)
        if ready:
            with _refusal_is(FailureKind.STORE_UNAVAILABLE, f"{journal} cannot be written", "Make it writable."):
                _write_journal(journal, base_tree, new_tree, writes)
        for write in ready:
            if write.after is None:
                with _edits_are_conflicts(write):
                    _delete(root, write)
        for write in reversed(writes):
            if write.after is None:
                _prune(root, write.parts[:-1])
        for write in ready:
            if write.after is not None:
                data = objects.read_blob(write.after.oid)
                with _edits_are_conflicts(write):
                    _put(root, write, write.after.mode, data)
        return tuple(write.path for write in ready)


@contextlib.contextmanager
def _refusal_is(kind: FailureKind, message: str, next_action: str) -> Iterator[None]:
    """Turn a refusal by the system to write into a failure that the user can resolve."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise CodePilotError(kind, f"{message}: {os.strerror(error.errno)}", next_action) from error


class _EditedError(Exception):
    """A file is no longer what it was a moment ago."""


@contextlib.contextmanager
def _edits_are_conflicts(write: _Write) -> Iterator[None]:
    """Raise a conflict if the user edited the path meanwhile, or replaced a directory on the way."""
    try:
        yield
    except (_EditedError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise _edited(write) from error
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.ELOOP):
            raise
        raise _edited(write) from error


def _edited(write: _Write) -> CodePilotError:
    path = shown(write.path)
    return CodePilotError(
        FailureKind.PATCH_CONFLICT,
        f"{path} was changed while the change was being written; files before it may be written already",
        "Undo your own edit of this file and apply again: what is missing is then written.",
        files=[path],
    )


def refuse_unfit(changes: Sequence[tuple[str, Entry | None, Entry | None]]) -> None:
    """No change leads out of the checkout, into a `.git`, or to another commit of a submodule."""
    for path, before, after in changes:
        if any(part in ("", ".", "..") or is_git_name(part) for part in path.split("/")):
            raise CodePilotError(FailureKind.POLICY_VIOLATION, f"a change may not touch {path!r}")
        if GITLINK in {side.mode for side in (before, after) if side}:
            raise CodePilotError(
                FailureKind.POLICY_VIOLATION, f"a change may not touch the submodule {shown(path)}", path=shown(path)
            )


def _check(root: int, writes: Sequence[_Write]) -> list[_Write]:
    """The writes still to be done; a conflict if any file equals neither side of the change."""
    touched = {write.path: write for write in writes}
    ready: list[_Write] = []
    conflicts: list[str] = []
    for write in writes:
        now = _current(root, write, touched)
        if now == write.after:
            continue
        if now == write.before:
            ready.append(write)
        else:
            conflicts.append(shown(write.path))
    if conflicts:
        raise CodePilotError(
            FailureKind.PATCH_CONFLICT,
            f"{len(conflicts)} file(s) changed since the run began: {', '.join(conflicts[:20])}; nothing was written",
            "Undo your own edits of these files, or merge the change by hand: codepilot diff RUN | git apply --3way",
            files=conflicts,
        )
    return ready


def _current(root: int, write: _Write, touched: Mapping[str, _Write]) -> Entry | None:
    """The current entry at a path. Directories that the change itself makes or empties count as none."""
    try:
        with dirfd.descended(root, write.parts[:-1]) as parent:
            return _found(parent, write, touched)
    except FileNotFoundError:
        return _ABSENT
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        above = ("/".join(write.parts[:end]) for end in range(1, len(write.parts)))
        return _ABSENT if any(path in touched for path in above) else _OCCUPIED


def _found(parent: int, write: _Write, touched: Mapping[str, _Write]) -> Entry | None:
    """The current entry at a path whose directory is open."""
    name = write.parts[-1]
    status = dirfd.status(parent, name)
    if status is None:
        return _ABSENT
    if stat.S_ISLNK(status.st_mode):
        return Entry(SYMLINK, object_id("blob", os.fsencode(os.readlink(name, dir_fd=parent))))
    if stat.S_ISREG(status.st_mode):
        return _regular(parent, name)
    if stat.S_ISDIR(status.st_mode):
        with dirfd.opened(name, parent) as below:
            return _ABSENT if _only_holds(below, write.path + "/", touched) else _OCCUPIED
    return _OCCUPIED


def _regular(parent: int, name: str) -> Entry:
    fd = dirfd.open_regular(parent, name)
    if fd is None:
        return _OCCUPIED
    try:
        status = os.fstat(fd)
        oid = file_id(fd, status.st_size)
    finally:
        os.close(fd)
    return Entry(EXECUTABLE if status.st_mode & 0o100 else FILE, oid)


def _only_holds(fd: int, prefix: str, touched: Mapping[str, _Write]) -> bool:
    """True if a directory holds nothing but paths of the change."""
    for name in dirfd.names(fd):
        status = dirfd.status(fd, name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            with dirfd.opened(name, fd) as below:
                if not _only_holds(below, f"{prefix}{name}/", touched):
                    return False
        elif prefix + name not in touched and not name.startswith(_TEMPORARY):
            return False
    return True


def _write_journal(journal: Path, base_tree: str, new_tree: str, writes: Sequence[_Write]) -> None:
    """Say what will be done, durably, before doing any of it."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    files = [{"path": write.path, "before": write.before, "after": write.after} for write in writes]
    content = json.dumps({"base_tree": base_tree, "new_tree": new_tree, "files": files}, indent=1)
    temporary = journal.with_name(journal.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(journal)
    with dirfd.opened(journal.parent.resolve()) as directory:
        os.fsync(directory)


def _delete(root: int, write: _Write) -> None:
    with dirfd.descended(root, write.parts[:-1]) as parent:
        if _found(parent, write, {}) != write.before:
            raise _EditedError
        os.unlink(write.parts[-1], dir_fd=parent)
        os.fsync(parent)


def _prune(root: int, directory: Sequence[str]) -> None:
    """Remove the directories that a deletion left empty."""
    for end in range(len(directory), 0, -1):
        try:
            with dirfd.descended(root, directory[: end - 1]) as above:
                os.rmdir(directory[end - 1], dir_fd=above)
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.ELOOP):
                raise
            return


def _put(root: int, write: _Write, mode: str, data: bytes) -> None:
    """Write a file under a temporary name in its directory, then rename."""
    name = write.parts[-1]
    temporary = f"{_TEMPORARY}{hashlib.sha256(os.fsencode(write.path)).hexdigest()[:16]}"
    with _directories(root, write.parts[:-1]) as parent:
        dirfd.remove(parent, temporary)
        try:
            if mode == SYMLINK:
                os.symlink(data, os.fsencode(temporary), dir_fd=parent)
            else:
                _write_file(parent, temporary, data, mode == EXECUTABLE, dirfd.status(parent, name))
            _own(parent, temporary, dirfd.status(parent, name) or os.fstat(parent))
            if _found(parent, write, {}) != write.before:
                raise _EditedError
            _remove_empty(parent, name)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            dirfd.remove(parent, temporary)
        os.fsync(parent)


def _write_file(parent: int, name: str, data: bytes, executable: bool, old: os.stat_result | None) -> None:
    """A new file with the permissions of the one it replaces, or those that the user's umask gives."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o777 if executable else 0o666, dir_fd=parent)
    try:
        if old is not None and stat.S_ISREG(old.st_mode):
            mode = old.st_mode & 0o777
            readers = (mode & 0o444) >> 2
            os.fchmod(fd, mode | readers if executable else mode & ~0o111)
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _own(parent: int, name: str, like: os.stat_result) -> None:
    """Run by root, leave the file to whom it belonged."""
    if os.geteuid() == 0:
        os.chown(name, like.st_uid, like.st_gid, dir_fd=parent, follow_symlinks=False)


def _remove_empty(parent: int, name: str) -> None:
    """Empty directories that stand where a file is to be."""
    status = dirfd.status(parent, name)
    if status is None or not stat.S_ISDIR(status.st_mode):
        return
    with dirfd.opened(name, parent) as below:
        for child in dirfd.names(below):
            _remove_empty(below, child)
    os.rmdir(name, dir_fd=parent)


@contextlib.contextmanager
def _directories(root: int, parts: Sequence[str]) -> Iterator[int]:
    """The directory at `parts`, made where it is missing."""
    fd = os.dup(root)
    try:
        for part in parts:
            try:
                os.mkdir(part, 0o777, dir_fd=fd)
            except FileExistsError:
                pass
            else:
                _own(fd, part, os.fstat(fd))
            below = os.open(part, dirfd.DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)
