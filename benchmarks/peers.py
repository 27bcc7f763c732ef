"""Installs the peers' pinned packages into an environment of their own on first use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

PINNED = {"smolagents": "1.26.0", "swe-rex": "1.4.0"}
ENGINES = {"dbos": "3.3.0", "procrastinate": "3.10.0"}
MAPS = {"aider-chat": "0.86.2"}
FROM_NPM = {"agentic-orchestrator": "0.2.19"}
_BESIDE = {"procrastinate": ["psycopg[binary]==3.3.8"]}
"""What a package needs and does not ask for by itself."""
_INSTALL_SEC = 600


class PeerMissing(Exception):
    """A peer that cannot be run here, and why."""


def default_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "codepilot-bench"


def interpreter(package: str, directory: Path) -> Path:
    """A Python that has the package, installing it first if need be."""
    wanted = f"{package}=={({**PINNED, **ENGINES, **MAPS})[package]}"
    home = directory / f"{wanted}-py{sys.version_info[0]}.{sys.version_info[1]}"
    python, done = home / "bin" / "python", home / "installed"
    if not done.exists():
        venv.create(home, clear=True, with_pip=True)
        command = [os.fspath(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted]
        command += _BESIDE.get(package, [])
        print(f"installing {wanted} …", file=sys.stderr)
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_SEC)
        except subprocess.TimeoutExpired as error:
            raise PeerMissing(f"{wanted} was not installed within {_INSTALL_SEC} s") from error
        except subprocess.CalledProcessError as error:
            message = re.sub(r"\w+://\S+", "…", error.stderr.strip()).splitlines() or ["pip failed"]
            raise PeerMissing(f"{wanted} cannot be installed: {message[-1]}") from error
        done.touch()
    return python


def from_npm(package: str, directory: Path) -> Path:
    """The directory of a peer's npm package, installing it first if need be; none of its install scripts runs."""
    wanted = f"{package}@{FROM_NPM[package]}"
    home = directory / wanted
    done = home / "installed"
    if not done.exists():
        home.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix", str(home)]
        print(f"installing {wanted} …", file=sys.stderr)
        try:
            subprocess.run([*command, wanted], check=True, capture_output=True, timeout=_INSTALL_SEC)
        except (OSError, subprocess.SubprocessError) as error:
            raise PeerMissing(f"{wanted} cannot be installed ({type(error).__name__})") from error
        done.touch()
    return home / "node_modules" / package
