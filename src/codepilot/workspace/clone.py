"""Bringing a repository here from a URL.

Promises: a full clone appears at its destination complete or not at all; nothing prompts; no hook, template or
external transport runs. The user's own credentials and git configuration are used, as for any clone of theirs.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.workspace import beneath
from codepilot.workspace.git import last_line, start

_SCHEMES = re.compile(r"(?:https?|ssh|git|git\+ssh|file)://[^\s]+", re.IGNORECASE)
_SCP = re.compile(r"[A-Za-z0-9_][\w.-]*@[A-Za-z0-9][\w.-]*:(?!//)\S+")
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


def is_url(text: str) -> bool:
    """Whether this names a repository elsewhere, not a path."""
    return bool(_SCHEMES.fullmatch(text) or _SCP.fullmatch(text))


def has_password(url: str) -> bool:
    """Whether the URL itself carries a secret: a password, or over HTTP any user part, since that may be a token."""
    parts = urlsplit(url) if "://" in url else None
    return parts is not None and (
        parts.password is not None or (parts.scheme.startswith("http") and "@" in parts.netloc)
    )


def clone(url: str, destination: Path, ref: str | None = None, timeout_sec: float = 1800.0) -> Path:
    """Clone `url`, with `ref` (a branch, tag or commit) checked out if given. The clone's root."""
    if url.startswith("-") or not is_url(url):
        raise CodePilotError(
            FailureKind.REPO_UNREACHABLE,
            f"{url!r} is not a git URL",
            "Use https://, ssh://, git@host:path or file://.",
        )
    destination = destination.absolute()
    if destination.exists():
        raise CodePilotError(FailureKind.REPO_UNREACHABLE, f"{destination} is already there", "Choose another place.")
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = destination.with_name(f"{destination.name}.tmp-{secrets.token_hex(6)}")
    try:
        options = ["--quiet", "--template=", "--no-recurse-submodules", "--no-checkout"]
        done = _git(["clone", *options, "--", url, str(temporary)], temporary.parent, timeout_sec)
        if done.returncode != 0:
            raise CodePilotError(
                FailureKind.REPO_UNREACHABLE,
                f"cannot clone {_without_password(url)}: {_without_password(last_line(done.stderr))}",
                "Check the URL, the network and your credentials (`git ls-remote URL` must work).",
            )
        _check_out(temporary, url, ref, timeout_sec)
        temporary.rename(destination)
    finally:
        with beneath.opened(destination.parent) as parent:
            beneath.remove(parent, temporary.name)
    return destination


def _check_out(clone_path: Path, url: str, ref: str | None, timeout_sec: float) -> None:
    commit = _commit(clone_path, ref, timeout_sec) if ref is not None else _parsed(clone_path, "HEAD", timeout_sec)
    if commit is None and ref is None:
        raise CodePilotError(
            FailureKind.REPO_UNREACHABLE, f"{_without_password(url)} has no commit yet", "Push a commit to it first."
        )
    if commit is None:
        raise CodePilotError(
            FailureKind.REF_NOT_FOUND, f"there is no commit, branch or tag {ref!r} at {_without_password(url)}"
        )
    where = ["--detach", commit] if ref is not None else []
    done = _git(["checkout", "--quiet", *where], clone_path, timeout_sec)
    if done.returncode != 0:
        raise CodePilotError(FailureKind.REPO_UNREACHABLE, f"cannot check out the clone: {last_line(done.stderr)}")


def _commit(clone_path: Path, ref: str, timeout_sec: float) -> str | None:
    if ref.startswith("-"):
        return None
    for name in (f"refs/remotes/origin/{ref}", ref):
        found = _parsed(clone_path, name, timeout_sec)
        if found is not None:
            return found
    fetched = _git(["fetch", "--quiet", "--no-recurse-submodules", "origin", ref], clone_path, timeout_sec)
    return _parsed(clone_path, "FETCH_HEAD", timeout_sec) if fetched.returncode == 0 else None


def _parsed(clone_path: Path, name: str, timeout_sec: float) -> str | None:
    done = _git(["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"], clone_path, timeout_sec)
    return done.stdout.decode().strip() if done.returncode == 0 else None


def _git(args: list[str], cwd: Path, timeout_sec: float) -> subprocess.CompletedProcess[bytes]:
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
    return start(["git", *_OPTIONS, *args], env, cwd=cwd, stdin=b"", timeout_sec=timeout_sec)


def _without_password(text: str) -> str:
    """A URL may hold a password; messages must not."""
    return re.sub(r"(://[^/:@\s]*):[^/@\s]*@", r"\1:***@", text)
