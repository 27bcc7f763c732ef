"""CodePilot's home on this machine: where everything durable lies."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from codepilot.core.failures import CodePilotError, FailureKind
from codepilot.store.faults import disk_is_full

NAMES = "stores"
"""The directory in which each store that keeps something in a place leaves its name: none removes another's things."""


@dataclass(frozen=True)
class Home:
    """One directory that holds the database, artifacts, workspaces, bundles and logs."""

    path: Path

    @classmethod
    def default(cls, environ: Mapping[str, str]) -> Home:
        """`$CODEPILOT_HOME`, else the XDG data directory."""
        if chosen := environ.get("CODEPILOT_HOME"):
            return cls(Path(chosen).expanduser().absolute())
        data = environ.get("XDG_DATA_HOME", "")
        if Path(data).is_absolute():
            return cls(Path(data) / "codepilot")
        user = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
        return cls(user.absolute() / ".local" / "share" / "codepilot")

    @property
    def database(self) -> Path:
        return self.path / "codepilot.db"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def repos(self) -> Path:
        return self.path / "repos"

    @property
    def workspaces(self) -> Path:
        return self.path / "workspaces"

    @property
    def envs(self) -> Path:
        return self.path / "envs"

    @property
    def vectors(self) -> Path:
        """The vectors of texts that were compared by meaning."""
        return self.path / "vectors.db"

    @property
    def bundles(self) -> Path:
        return self.path / "bundles"

    @property
    def builds(self) -> Path:
        """Programs and modules that tasks of a service made without naming a directory."""
        return self.path / "builds"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def locks(self) -> Path:
        return self.path / "locks"

    def ensure(self) -> Home:
        """Make every directory, for the owner alone; refuse a home that cannot be written."""
        self._refuse_other_bytes()
        work = (self.artifacts, self.repos, self.workspaces, self.envs, self.bundles, self.builds)
        rooms = (*work, self.logs, self.locks)
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for room in rooms:
                room.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise self._refusal(error) from error
        for directory in (self.path, *rooms):
            if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
                raise self._refusal(PermissionError(13, "Permission denied", str(directory)))
        return self

    def leave_name(self, store_id: str, place: str) -> None:
        """Say that runs of that store, which is at `place`, are worked on here."""
        try:
            leave_name(self.path, store_id, place)
        except OSError as error:
            raise self._refusal(error) from error

    def names(self) -> dict[str, str]:
        """The stores whose runs were worked on here, and where each was then."""
        try:
            return names_in(self.path)
        except OSError as error:
            raise self._refusal(error) from error

    def disk_use(self, deadline_sec: float = 3.0) -> dict[str, tuple[int, bool]]:
        """The disk usage of each part of the home in bytes, and whether all of it was counted in time."""
        deadline = time.monotonic() + deadline_sec
        parts: dict[str, list[Path]] = {"database": []}
        for path in sorted(self.path.iterdir()) if self.path.is_dir() else ():
            kind = "database" if path.name.startswith(self.database.name) else path.name
            parts.setdefault(kind, []).append(path)
        return {kind: _disk_use(paths, deadline) for kind, paths in parts.items()}

    def _refuse_other_bytes(self) -> None:
        """Paths of the home are recorded, and what is not UTF-8 cannot be."""
        try:
            str(self.path).encode()
        except UnicodeEncodeError as error:
            shown = os.fsencode(self.path).decode("utf-8", "backslashreplace")
            raise CodePilotError(
                FailureKind.INVALID_SPEC,
                f"The path of CodePilot's home, {shown}, is not UTF-8.",
                next_action="Point CODEPILOT_HOME at a directory whose path is.",
            ) from error

    def _refusal(self, error: OSError) -> CodePilotError:
        where = error.filename or self.path
        if disk_is_full(error):
            return CodePilotError(FailureKind.DISK_FULL, f"The disk is full: {where} cannot be made.", path=where)
        return CodePilotError(
            FailureKind.STORE_UNAVAILABLE,
            f"CodePilot's home {self.path} cannot be used: {error.strerror or error} ({where}).",
            next_action="Make it writable, or point CODEPILOT_HOME at a directory that is.",
            path=where,
        )


def _disk_use(paths: list[Path], deadline: float) -> tuple[int, bool]:
    """Blocks on disk, a file with several names once; links are not followed."""
    total, seen, left = 0, set[tuple[int, int]](), [str(path) for path in paths]
    while left:
        if time.monotonic() > deadline:
            return total, False
        here = left.pop()
        with contextlib.suppress(OSError):
            found = os.lstat(here)
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * 512
            if stat.S_ISDIR(found.st_mode):
                left += [entry.path for entry in os.scandir(here)]
    return total, True


def leave_name(directory: Path, store_id: str, place: str) -> None:
    """Record in `directory` that the store of that id, which is at `place`, keeps something there."""
    (directory / NAMES).mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / NAMES / store_id).write_text(f"{place}\n", encoding="utf-8")


def names_in(directory: Path) -> dict[str, str]:
    """The stores that did, and where each was then."""
    if not (directory / NAMES).is_dir():
        return {}
    return {path.name: path.read_text(encoding="utf-8").strip() for path in (directory / NAMES).iterdir()}
