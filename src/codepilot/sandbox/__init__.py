"""Where anything an agent wrote is executed: isolation, limits, and the kernel that runs code actions."""

from codepilot.sandbox.allowlist import Allowlist
from codepilot.sandbox.asking import Answer
from codepilot.sandbox.bridged import no_proxy
from codepilot.sandbox.cgroup import Enforcement, enforcement
from codepilot.sandbox.credentials import Credential
from codepilot.sandbox.held import Held
from codepilot.sandbox.json_lines import JsonLinesClient, ProcessEnded, ProtocolError
from codepilot.sandbox.kernel_client import Kernel
from codepilot.sandbox.own import base_prefixes, base_python, own_python
from codepilot.sandbox.probe import Least, LevelReport, Wanted, choose, probe, weaker
from codepilot.sandbox.proxy import Bounds, Proxy, Seen
from codepilot.sandbox.replies import ActionError, ActionResult
from codepilot.sandbox.spec import Completed, Level, Limits, Mount, Process, Sandbox, View

__all__ = [
    "ActionError",
    "ActionResult",
    "Allowlist",
    "Answer",
    "Bounds",
    "Completed",
    "Credential",
    "Enforcement",
    "Held",
    "JsonLinesClient",
    "Kernel",
    "Least",
    "Level",
    "LevelReport",
    "Limits",
    "Mount",
    "Process",
    "ProcessEnded",
    "ProtocolError",
    "Proxy",
    "Sandbox",
    "Seen",
    "View",
    "Wanted",
    "base_prefixes",
    "base_python",
    "choose",
    "enforcement",
    "no_proxy",
    "own_python",
    "probe",
    "weaker",
]
