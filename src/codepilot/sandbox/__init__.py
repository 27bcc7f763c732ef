"""Executes what agents write: isolation, limits, and the kernel that runs code actions."""

from codepilot.sandbox.interpreter import base_prefixes, base_python, own_python, with_own_python
from codepilot.sandbox.json_lines import JsonLinesClient, ProcessEnded, ProtocolError
from codepilot.sandbox.kernel.client import Kernel
from codepilot.sandbox.kernel.host_calls import Answer
from codepilot.sandbox.kernel.replies import CodeError, CodeResult, HostCall
from codepilot.sandbox.levels.probe import Least, LevelReport, Wanted, choose, probe, weaker
from codepilot.sandbox.limits.cgroup import Enforcement, enforcement
from codepilot.sandbox.limits.disk import DiskAccount
from codepilot.sandbox.proxy.bridge import no_proxy
from codepilot.sandbox.proxy.rules import Allowlist, Credential
from codepilot.sandbox.proxy.server import Bounds, Proxy, Seen
from codepilot.sandbox.spec import CommandResult, Level, Limits, Mount, Process, Sandbox, SandboxSpec

__all__ = [
    "Allowlist",
    "Answer",
    "Bounds",
    "CodeError",
    "CodeResult",
    "CommandResult",
    "Credential",
    "DiskAccount",
    "Enforcement",
    "HostCall",
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
    "SandboxSpec",
    "Seen",
    "Wanted",
    "base_prefixes",
    "base_python",
    "choose",
    "enforcement",
    "no_proxy",
    "own_python",
    "probe",
    "weaker",
    "with_own_python",
]
