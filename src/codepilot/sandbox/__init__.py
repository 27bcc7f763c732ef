"""Where anything an agent wrote is executed: isolation, limits, and the kernel that runs code actions."""

from codepilot.sandbox.probe import LevelReport, choose, probe
from codepilot.sandbox.spec import Completed, Level, Limits, Mount, Process, Sandbox, View

__all__ = ["Completed", "Level", "LevelReport", "Limits", "Mount", "Process", "Sandbox", "View", "choose", "probe"]
