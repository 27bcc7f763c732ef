"""Clones a repository from a URL, and finds secrets in URLs.

A full clone appears at its destination complete or not at all, and replaces an earlier clone of the same URL only when
it is complete. Clones to one destination take turns. Nothing prompts; no hook, template, submodule or external
transport runs; no message contains the URL's user or password. The user's own credentials and git configuration are
used. Nothing but a clone of the same URL is ever removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import dirfd
from codepilot.workspace.addresses import Pinned, check_public
from codepilot.workspace.git import last_line, start

_POLL_SEC = 0.05
_OPTIONS = (
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "protocol.ext.allow=never"),
    *("-c", "advice.detachedHead=false"),
)

_KEPT = {
    *("GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_SSL_NO_VERIFY"),
    *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_PROXY_SSL_CAINFO"),
}


def clone(
    url: str,
    destination: Path,
    ref: str | None = None,
    timeout_sec: float = 1800.0,
    *,
    public_only: bool = False,
    allowed_hosts: tuple[str, ...] = (),
) -> Path:
    """Clone `url`, with `ref` (a branch, tag or commit) checked out if given. The clone's root.

    With `public_only`, nothing but a public address is connected to, unless the host is one of `allowed_hosts`.

    A clone of the same URL that is there already, finished or not, is replaced with all that is in it.
    """
    if url.startswith("-") or not is_url(url):
        raise CodePilotError(
            FailureKind.REPO_UNREACHABLE,
            f"{shown_url(url)!r} is not a git URL",
            "Use https://, ssh://, git@host:path or file://.",
        )
    pinned = check_public(url, allowed_hosts) if public_only else None
    if pinned is not None:
        _require_pinning()
    destination = destination.absolute()
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = destination.with_name(f"{destination.name}.tmp-{secrets.token_hex(6)}")
    with (
        _taking_turns(destination, timeout_sec),
        dirfd.opened(destination.parent.resolve()) as parent,
        dirfd.disk_full_is_typed(),
    ):
        _discard_leftovers(parent, destination.name)
        if dirfd.status(parent, destination.name) is not None and not _replaceable(destination, url, timeout_sec):
            raise CodePilotError(
                FailureKind.REPO_UNREACHABLE,
                f"{destination} is already there and is no clone of {shown_url(url)}",
                "Move it away, or choose another place.",
            )
        try:
            _download(url, temporary, timeout_sec, pinned)
            _check_out(temporary, url, ref, timeout_sec, pinned)
            _put_in_place(parent, temporary.name, destination.name)
        finally:
            dirfd.remove(parent, temporary.name)
    return destination


@contextlib.contextmanager
def _taking_turns(destination: Path, timeout_sec: float) -> Iterator[None]:
    """Hold the lock file of a destination. Its holder removes it, so a removed file is no lock."""
    path = destination.with_name(f"{destination.name}.lock")
    deadline = time.monotonic() + timeout_sec
    while (fd := _locked(path)) is None:
        if time.monotonic() >= deadline:
            raise CodePilotError(
                FailureKind.TOOL_TIMEOUT, f"another clone to {destination} did not end within {timeout_sec:.0f} s"
            )
        time.sleep(_POLL_SEC)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def _locked(path: Path) -> int | None:
    """The lock file, open and ours; None if someone else has it or just removed it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), path.lstat()):
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _discard_leftovers(parent: int, name: str) -> None:
    """Remove what a killed clone to the same place left in the same directory."""
    leftover = re.compile(re.escape(name) + r"\.tmp-[0-9a-f]{12}(\.[0-9a-f]{12})?")
    for found in dirfd.names(parent):
        if leftover.fullmatch(found):
            dirfd.remove(parent, found)


def _replaceable(place: Path, url: str, timeout_sec: float) -> bool:
    """True if this is a clone of the URL, or one that was begun and holds nothing yet."""
    if place.is_symlink() or not place.is_dir():
        return False
    git_dir = place / ".git"
    done = _git(["config", "--file", str(git_dir / "config"), "-z", "remote.origin.url"], place.parent, timeout_sec)
    if done.returncode == 0:
        return done.stdout == os.fsencode(url) + b"\0"
    if not {path.name for path in place.iterdir()} <= {".git"} or git_dir.is_symlink() or git_dir.is_file():
        return False
    return not any(path.is_file() for kept in ("objects", "refs") for path in (git_dir / kept).rglob("*"))


def _put_in_place(parent: int, made: str, name: str) -> None:
    """Give a finished clone its name. The one that had it is left under the other's name, to be removed."""
    if dirfd.status(parent, name) is None:
        os.rename(made, name, src_dir_fd=parent, dst_dir_fd=parent)
    else:
        dirfd.exchange(parent, made, name)


def _download(url: str, place: Path, timeout_sec: float, pinned: Pinned | None) -> None:
    options = ["--quiet", "--template=", "--origin=origin", "--no-recurse-submodules", "--no-checkout"]
    done = _git(["clone", *options, "--", url, str(place)], place.parent, timeout_sec, pinned)
    if done.returncode != 0:
        raise CodePilotError(
            FailureKind.REPO_UNREACHABLE,
            f"cannot clone {shown_url(url)}: {without_user(last_line(done.stderr), url)}",
            "Check the URL, the network and your credentials (`git ls-remote URL` must work).",
        )


def _check_out(clone_path: Path, url: str, ref: str | None, timeout_sec: float, pinned: Pinned | None) -> None:
    commit = (
        _commit(clone_path, ref, timeout_sec, pinned) if ref is not None else _parsed(clone_path, "HEAD", timeout_sec)
    )
    if commit is None and ref is None:
        raise CodePilotError(
            FailureKind.REPO_UNREACHABLE, f"{shown_url(url)} has no commit yet", "Push a commit to it first."
        )
    if commit is None:
        raise CodePilotError(
            FailureKind.REF_NOT_FOUND, f"there is no commit, branch or tag {ref!r} at {shown_url(url)}"
        )
    where = ["--detach", commit] if ref is not None else []
    done = _git(["checkout", "--quiet", "--no-recurse-submodules", *where], clone_path, timeout_sec)
    if done.returncode != 0:
        message = without_user(last_line(done.stderr), url)
        raise CodePilotError(FailureKind.REPO_UNREACHABLE, f"cannot check out the clone: {message}")


def _commit(clone_path: Path, ref: str, timeout_sec: float, pinned: Pinned | None) -> str | None:
    if ref.startswith("-"):
        return None
    for name in (f"refs/remotes/origin/{ref}", ref):
        found = _parsed(clone_path, name, timeout_sec)
        if found is not None:
            return found
    fetched = _git(["fetch", "--quiet", "--no-recurse-submodules", "origin", ref], clone_path, timeout_sec, pinned)
    return _parsed(clone_path, "FETCH_HEAD", timeout_sec) if fetched.returncode == 0 else None


def _parsed(clone_path: Path, name: str, timeout_sec: float) -> str | None:
    done = _git(["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"], clone_path, timeout_sec)
    return done.stdout.decode().strip() if done.returncode == 0 else None


def _require_pinning() -> None:
    """Git before 2.37 cannot be held to the addresses that were checked."""
    done = _git(["--version"], Path("/"), 10.0)
    found = re.search(rb"(\d+)\.(\d+)", done.stdout)
    if found is None or (int(found[1]), int(found[2])) < (2, 37):
        raise CodePilotError(
            FailureKind.REPO_UNREACHABLE,
            "The repository cannot be fetched: this git cannot be held to public addresses.",
            "Install git 2.37 or newer on the service's machines.",
        )


def _git(
    args: list[str], cwd: Path, timeout_sec: float, pinned: Pinned | None = None
) -> subprocess.CompletedProcess[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or name in _KEPT}
    env = kept | {
        "LC_ALL": "C",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "true",
        "SSH_ASKPASS": "true",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh:git+ssh",
        "GIT_PAGER": "cat",
    }
    env.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    if pinned is not None:
        env |= {"GIT_ALLOW_PROTOCOL": "http:https:ssh:git+ssh", "GIT_SSH_COMMAND": pinned.ssh_command()}
        env.pop("GIT_SSH", None)
    options = (*_OPTIONS, *(pinned.git_options() if pinned else ()))
    return start(["git", *options, *args], env, cwd=cwd, stdin=b"", timeout_sec=timeout_sec)


_SCHEMES = re.compile(r"(?:https?|ssh|git|git\+ssh|file)://[^\s]+", re.IGNORECASE)
_SCP = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:(?!//)\S+")
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::\d*)?")


def is_url(text: str) -> bool:
    """True if this names a repository elsewhere, not a path."""
    return bool(_SCHEMES.fullmatch(text) or _SCP.fullmatch(text))


def has_password(url: str) -> bool:
    """True if the URL itself carries a secret: a password, or over HTTP any user part, since that may be a token."""
    scheme, mark, _ = url.partition("://")
    user = _user_part(url) if mark else ""
    return ":" in unquote(user) or (bool(user) and scheme.lower() in ("http", "https"))


def shown_url(url: str) -> str:
    """The URL as a message may hold it: nothing of what stands before its host."""
    return url.replace(f"{_user_part(url)}@", "", 1)


def without_user(text: str, url: str) -> str:
    """A text about a URL, without its user and password."""
    text = text.replace(url, shown_url(url))
    if user := _user_part(url):
        text = text.replace(f"{user}@", "")
    return re.sub(r"://[^/\s]*@", "://", text)


def _user_part(url: str) -> str:
    """The part before the host. A password with an unescaped slash is recognised too."""
    _, mark, rest = url.partition("://")
    if not mark:
        return url.partition("@")[0] if _SCP.fullmatch(url) else url.rpartition("@")[0]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        return authority.rpartition("@")[0]
    return "" if _HOST.fullmatch(authority) else rest.rpartition("@")[0]
