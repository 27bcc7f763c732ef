"""A bug as what a user would have: a git checkout, committed."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from codepilot.bench.bugs import Bug, missing_repository
from codepilot.core.failures import CodePilotError, FailureKind

_GIT = ("git", "-c", "user.name=CodePilot", "-c", "user.email=bench@codepilot.invalid", "-c", "commit.gpgsign=false")

_VERSION_FILES = (
    ("hatch", "build", "hooks", "vcs", "version-file"),
    ("setuptools_scm", "version_file"),
    ("setuptools_scm", "write_to"),
    ("pdm", "version", "write_to"),
)
"""The settings that name the file to which a build writes the version."""


def prepare(directory: Path, bug: Bug) -> Path:
    """The bug's checkout in an empty directory."""
    if bug.origin is None:
        return commit_files(directory, bug.files)
    origin = bug.origin
    if not origin.repository.is_dir():
        raise missing_repository(origin.repository)
    _export(origin.repository, origin.parent, directory)
    _export(origin.repository, origin.fix, directory, *origin.test_files)
    write_version(directory)
    commit(directory)
    return directory


def _export(repository: Path, revision: str, directory: Path, *paths: str) -> None:
    data = git(repository, "archive", "--format=tar", revision, *paths)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(directory, filter="data")


def write_version(directory: Path) -> None:
    """Make the file with the version that an installation would have made, where the project imports one."""
    try:
        tool = tomllib.loads((directory / "pyproject.toml").read_text("utf-8")).get("tool", {})
    except (OSError, ValueError):
        return
    for keys in _VERSION_FILES:
        found: object = tool
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        file = (directory / found).resolve() if isinstance(found, str) else directory
        if file.is_relative_to(directory.resolve()) and not file.exists() and file.parent.is_dir():
            file.write_text('__version__ = version = "0.0.0"\n__version_tuple__ = version_tuple = (0, 0, 0)\n', "utf-8")


def show(repository: Path, revision: str, path: str) -> bytes:
    """One file of a commit."""
    return git(repository, "show", f"{revision}:{path}")


def commit_files(directory: Path, files: Mapping[str, str]) -> Path:
    """Write the files into an empty directory and commit them."""
    for name, text in files.items():
        place = directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8", newline="")
    commit(directory)
    return directory


def commit(directory: Path) -> None:
    for arguments in (("init", "-q", "-b", "main"), ("add", "-A", "-f"), ("commit", "-q", "-m", "The bug")):
        git(directory, *arguments)


def git(directory: Path, *arguments: str, text: bytes | None = None) -> bytes:
    """Run git on a repository of the set, with nobody's configuration."""
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(directory),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    done = subprocess.run([*_GIT, *arguments], cwd=directory, env=environ, capture_output=True, input=text)
    if done.returncode != 0:
        errors = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise CodePilotError(FailureKind.TOOL_FAILED, f"git {arguments[0]} failed in {directory}: {errors}")
    return done.stdout
