"""The example project of `codepilot demo`: a small library with a suite of its own and one honest bug."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.resources import as_file, files
from pathlib import Path

_GIT = ("git", "-c", "user.name=CodePilot", "-c", "user.email=demo@codepilot.invalid", "-c", "commit.gpgsign=false")


def prepare_example(directory: Path) -> Path:
    """A fresh git checkout of the example below `directory`; an earlier one is replaced."""
    checkout = directory / "agenda"
    if checkout.exists():
        shutil.rmtree(checkout)
    directory.mkdir(parents=True, exist_ok=True)
    with as_file(files("codepilot.cli") / "example") as example:
        shutil.copytree(example, checkout, ignore=shutil.ignore_patterns("__pycache__"))
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(directory),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    for arguments in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-q", "-m", "Agenda 1.0")):
        subprocess.run([*_GIT, *arguments], cwd=checkout, env=environ, check=True, capture_output=True)
    return checkout
