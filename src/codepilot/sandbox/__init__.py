"""Where anything an agent wrote is executed: isolation, limits, and the kernel that runs code actions."""

from codepilot.sandbox.kernel_client import ActionError, ActionResult, Kernel
from codepilot.sandbox.probe import LevelReport, choose, probe
from codepilot.sandbox.spec import Completed, Level, Limits, Mount, Process, Sandbox, View

__all__ = [
    "ActionError",
    "ActionResult",
    "Completed",
    "Kernel",
    "Level",
    "LevelReport",
    "Limits",
    "Mount",
    "Process",
    "Sandbox",
    "View",
    "choose",
    "probe",
]
