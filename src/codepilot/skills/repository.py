"""The agent's throwaway repository: shows the changes since the step began, and undoes them.

Standard library only: this source is shipped as it is. The repository holds one commit, the tree at the beginning of
the step. It is made and read in the sandbox, and git runs without any setting that could start a program.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from codepilot.skills.places import ROOT
from codepilot.skills.running import CommandOutcome, execute

CAPABILITY = "write_and_run_tests"

GIT_SEC = 60.0
PREPARE_SEC = 25.0
MAX_DIFF = 200_000
PLAIN = "* -text !eol -ident -filter !diff !merge -working-tree-encoding\n"
"""Outranks the attributes in the tree: bytes are kept as they are, and no filter is run."""
OURS = "A throwaway repository of CodePilot.\n"

ENVIRONMENT = {
    "GIT_DIR": str(ROOT / ".git"),
    "GIT_WORK_TREE": str(ROOT),
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ASKPASS": "true",
    "GIT_AUTHOR_NAME": "codepilot",
    "GIT_AUTHOR_EMAIL": "codepilot@localhost",
    "GIT_COMMITTER_NAME": "codepilot",
    "GIT_COMMITTER_EMAIL": "codepilot@localhost",
}
SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.pager=cat",
    "core.editor=true",
    "core.sshCommand=false",
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.fileMode=true",
    "core.untrackedCache=false",
    "core.fsync=none",
    "core.compression=0",
    "core.looseCompression=0",
    "commit.gpgSign=false",
    "credential.helper=",
    "diff.external=",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "status.submoduleSummary=false",
    "advice.detachedHead=false",
)


class GitError(Exception):
    """The repository cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class GitStatus:
    """The differences from the base: changed, added, deleted and untracked files."""

    changed: list[str]
    added: list[str]
    deleted: list[str]
    untracked: list[str]

    @property
    def clean(self) -> bool:
        return not (self.changed or self.added or self.deleted or self.untracked)

    def __str__(self) -> str:
        rows = (("changed", self.changed), ("added", self.added), ("deleted", self.deleted))
        lines = [f"{what} {path}" for what, paths in (*rows, ("untracked", self.untracked)) for path in paths]
        more = [f"… and {len(lines) - 100} more"] if len(lines) > 100 else []
        return "\n".join(lines[:100] + more) or "nothing differs from the base"

    __repr__ = __str__


def git_status() -> GitStatus:
    """What differs from the tree as it was when this step began: changed, added, deleted, untracked."""
    _ready()
    listing = _git("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", "--ignore-submodules=all")
    found: dict[str, list[str]] = {"M": [], "A": [], "D": [], "?": []}
    for row in listing.stdout.split("\0"):
        marks, path = row[:2], row[3:]
        if path:
            mark = next((mark for mark in "?DA" if mark in marks), "M")
            found[mark].append(path)
    return GitStatus(*(sorted(found[mark]) for mark in "MAD?"))


def git_diff(base: str = "HEAD") -> str:
    """The unified diff of the workspace against `base` (HEAD: as it was when this step began), new files included."""
    _ready()
    commit = _commit(base)
    index = Path(ENVIRONMENT["GIT_DIR"]) / "codepilot-index"
    try:
        shutil.copy2(index.with_name("index"), index)  # with its time: git asks which of both is newer
        _git("add", "--all", "--intent-to-add", "--ignore-errors", ".", index=index, fine=(0, 1))
        options = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--ignore-submodules=all")
        return _git("diff", *options, commit, "--", index=index).stdout
    except FileNotFoundError:
        raise GitError("The repository has no index any more. It is made again when the next step begins.") from None
    finally:
        index.unlink(missing_ok=True)


def git_reset(to_ref: str = "HEAD") -> str:
    """Put every tracked file back to `to_ref` (HEAD: as it was when this step began). Untracked files stay."""
    _ready()
    commit = _commit(to_ref)
    before = git_status()
    _git("reset", "--hard", "--quiet", commit, "--")
    remain = git_status().untracked
    back = len(before.changed) + len(before.deleted) + len(before.added)
    parts = [f"{back} file{'' if back == 1 else 's'} put back to {to_ref}."]
    if remain:
        more = f" and {len(remain) - 20} more" if len(remain) > 20 else ""
        parts.append(f"Untracked files remain: {', '.join(remain[:20])}{more}.")
    return " ".join(parts)


def prepare() -> None:
    """Make the tree as it is now the base. An error is reported by the skill that needs the repository."""
    place = Path(ENVIRONMENT["GIT_DIR"])
    with suppress(GitError, OSError):
        if _is_ours(place):
            try:
                _commit_all()
            except GitError:
                shutil.rmtree(place)
                _make()
        else:
            _make()


def _ready() -> None:
    """There is a repository to compare with, or GitError says what to do."""
    place = Path(ENVIRONMENT["GIT_DIR"])
    if _is_ours(place):
        return
    if os.path.lexists(place):
        raise GitError("`.git` is not the repository that was made here; remove it to get another one.")
    _make()
    if CAPABILITY != "read_only":
        raise GitError("There was no base to compare with. The tree as it is now is the base from here on.")


def _is_ours(place: Path) -> bool:
    try:
        return not place.is_symlink() and (place / "description").read_text() == OURS
    except (OSError, ValueError):
        return False


def _make() -> None:
    place = Path(ENVIRONMENT["GIT_DIR"])
    if os.path.lexists(place):
        raise GitError("There is a `.git` already.")
    try:
        _git("init", "--quiet", "--template=", "--initial-branch=base", timeout=PREPARE_SEC)
        (place / "info").mkdir(exist_ok=True)
        (place / "info" / "attributes").write_text(PLAIN)
        (place / "description").write_text(OURS)
        _commit_all()
    except BaseException:  # half of one would hide why
        shutil.rmtree(place, ignore_errors=True)
        raise


def _commit_all() -> None:
    """Everything that can be read, ignored files too: one pack instead of a file for each object."""
    (Path(ENVIRONMENT["GIT_DIR"]) / "index.lock").unlink(missing_ok=True)
    everything = ("add", "--all", "--force", "--ignore-errors", ".")
    _git(*everything, settings=("core.bigFileThreshold=1",), timeout=PREPARE_SEC, fine=(0, 1))
    _git("commit", "--quiet", "--allow-empty", "--no-verify", "-m", "base", timeout=PREPARE_SEC)


def _commit(ref: str) -> str:
    if not ref or ref.startswith("-") or "\0" in ref:
        raise GitError(f"{ref!r} is no commit.")
    try:
        return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}").stdout.strip()
    except GitError:
        raise GitError(
            f"{ref!r} names no commit here. The base is HEAD; there is no other history.{_one(ref)}"
        ) from None


def _one(path: str) -> str:
    """A suggestion for a call that names a file."""
    if not os.path.lexists(ROOT / path):
        return ""
    return f' For one path: run_command(["git", "diff", "--", "{path}"]), or "restore" instead of "diff".'


def _git(
    *arguments: str,
    index: Path | None = None,
    settings: tuple[str, ...] = (),
    timeout: float = GIT_SEC,
    fine: tuple[int, ...] = (0,),
) -> CommandOutcome:
    env = {**ENVIRONMENT, "GIT_INDEX_FILE": str(index)} if index is not None else ENVIRONMENT
    options = [part for setting in (*SETTINGS, *settings) for part in ("-c", setting)]
    done = execute(["git", "--no-pager", *options, *arguments], timeout, env, MAX_DIFF)
    if done.exit_code == 127:
        raise GitError("There is no git here.")
    if done.exit_code not in fine:
        reason = "it took too long" if done.timed_out else done.stderr.strip()[-1_000:] or f"exit code {done.exit_code}"
        denied = "Permission denied" in reason
        todo = "os.chmod or remove that file." if denied else "If `.git` is broken, remove it to get another one."
        raise GitError(f"git {arguments[0]} failed: {reason}. {todo}")
    return done
