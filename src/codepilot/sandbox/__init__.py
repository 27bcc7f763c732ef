"""Executes what agents write: isolation, limits, and the kernel that runs code actions."""

from codepilot.sandbox.interpreter import base_prefixes, base_python, own_python, with_own_python
from codepilot.sandbox.json_lines import JsonLinesClient, ProcessEnded, ProtocolError, parse_object, send_all
from codepilot.sandbox.kernel.client import Kernel
from codepilot.sandbox.kernel.host_calls import Answer
from codepilot.sandbox.kernel.replies import CodeError, CodeResult, HostCall
from codepilot.sandbox.levels.probe import Least, LevelReport, Wanted, choose, probe, weaker
from codepilot.sandbox.limits.cgroup import Enforcement, enforcement
from codepilot.sandbox.limits.disk import DiskAccount
from codepilot.sandbox.limits.freezer import Freeze, FreezeMethod, Freezer
from codepilot.sandbox.proxy.bridge import no_proxy
from codepilot.sandbox.proxy.rules import Allowlist, Credential
from codepilot.sandbox.proxy.server import Bounds, Proxy, Seen
from codepilot.sandbox.spec import (
    CommandResult,
    Endpoint,
    Level,
    Limits,
    Mount,
    Process,
    Sandbox,
    SandboxSpec,
    SessionOffer,
    Terminal,
    not_offered,
)

__all__ = [
    "Allowlist",
    "Answer",
    "Bounds",
    "CodeError",
    "CodeResult",
    "CommandResult",
    "Credential",
    "DiskAccount",
    "Endpoint",
    "Enforcement",
    "Freeze",
    "FreezeMethod",
    "Freezer",
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
    "SessionOffer",
    "Terminal",
    "Wanted",
    "base_prefixes",
    "base_python",
    "choose",
    "enforcement",
    "no_proxy",
    "not_offered",
    "own_python",
    "parse_object",
    "probe",
    "send_all",
    "weaker",
    "with_own_python",
]
