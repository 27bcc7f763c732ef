"""CodePilot's own interpreter, by paths that can be shown inside: those of one started as `../x/python` have dots."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def own_python() -> Path:
    """The interpreter of this process, that of its environment where it has one."""
    return Path(os.path.normpath(sys.executable))


def base_python() -> Path:
    """The interpreter behind it, outside of any environment."""
    return Path(os.path.normpath(getattr(sys, "_base_executable", "") or sys.executable))


def base_prefixes() -> list[Path]:
    """Where the base interpreter has its files, in every spelling; what lies in /usr is seen anyway."""
    prefix = Path(os.path.normpath(sys.base_prefix))
    spelled = dict.fromkeys((prefix, prefix.resolve(), base_python().resolve().parent.parent))
    return [one for one in spelled if not one.is_relative_to("/usr")]
