"""Programs that tests run but no interpreter of ours may see: each in an environment of its own, made when wanted."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

_HOME = Path(__file__).resolve().parents[1] / ".venv"
_STAMP = ".requirements"
_INSTALL_SEC = 240.0


class NotInstalled(Exception):
    """An environment that could not be made, with the reason and what to do."""


def interpreter(requirements: Path, home: Path = _HOME) -> Path:
    """The Python that has what a file pins with hashes. Several processes may ask at once: one of them makes it."""
    home.mkdir(exist_ok=True)
    place = home / requirements.stem
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_made(place, requirements):
            _make(place, requirements)
    return place / "bin" / "python"


def _is_made(place: Path, requirements: Path) -> bool:
    stamp = place / _STAMP
    return stamp.is_file() and stamp.read_bytes() == requirements.read_bytes()


def _make(place: Path, requirements: Path) -> None:
    """The stamp comes last, so that what was left half made is made again."""
    shutil.rmtree(place, ignore_errors=True)
    python = place / "bin" / "python"
    pip = ("-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check")
    for command in (("-m", "venv", "--without-pip", str(place)), (*pip, "--require-hashes", "-r", str(requirements))):
        try:
            done = subprocess.run(
                [sys.executable, *command], capture_output=True, text=True, timeout=_INSTALL_SEC, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise NotInstalled(_reported(requirements, f"it took more than {_INSTALL_SEC:.0f} s")) from error
        if done.returncode:
            raise NotInstalled(_reported(requirements, (done.stderr or done.stdout).strip()[-2000:]))
    (place / _STAMP).write_bytes(requirements.read_bytes())


def _reported(requirements: Path, why: str) -> str:
    return f"{requirements.name} cannot be installed: {why}\nIt needs the package index that `scripts/setup` used."
