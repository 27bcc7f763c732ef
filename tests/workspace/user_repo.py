"""A user's repository, and what must stay as it is there."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from pathlib import Path

GIT_ENV = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always")


class Repo:
    """A user's repository on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def git(self, *args: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *AUTHOR, *args], cwd=self.path, env=GIT_ENV, capture_output=True, check=False, timeout=300
        )
        assert done.returncode == 0 or not check, done.stderr.decode()
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def write(self, name: str, content: bytes | str = b"", mode: int = 0o644) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path

    def commit(self, message: str = "work") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def fingerprint(self) -> dict[str, str]:
        """Every byte, mode and time below `.git`."""
        return fingerprint(self.path / ".git")


def fingerprint(root: Path) -> dict[str, str]:
    """What lies below a directory: kind, mode, modification time of files, and content."""
    found: dict[str, str] = {}
    for directory, names, files in os.walk(root):
        for name in [*names, *files]:
            path = Path(directory, name)
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                content = str(path.readlink())
            elif stat.S_ISREG(status.st_mode):
                content = f"{status.st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            else:
                content = ""
            found[str(path.relative_to(root))] = f"{status.st_mode:o} {content}"
    return found


def read_state(root: Path) -> dict[str, tuple[object, ...]]:
    """All that a snapshot promises to keep, read in a way of its own."""
    found: dict[str, tuple[object, ...]] = {}
    for directory, names, files in os.walk(root):
        if Path(directory) == root and ".git" in names:
            names.remove(".git")
        for name in [*names, *files]:
            path = Path(directory, name)
            status = path.lstat()
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = ("link", str(path.readlink()))
            elif path.is_dir():
                found[key] = ("dir", status.st_mode & 0o777)
            else:
                found[key] = ("file", status.st_mode & 0o777, status.st_mtime_ns, path.read_bytes())
    return found
