"""No confinement at all, only limits and a guardian. Given to nobody who has not asked for it by name.

A proxy is refused here: it would limit nothing.
"""

from __future__ import annotations

from pathlib import Path

from codepilot.sandbox.guarded import Guarded
from codepilot.sandbox.spec import Level, View


class Unconfined(Guarded):
    level = Level.NONE

    def confinement(self, view: View, temp: Path, pinned: bool) -> None:
        return None
