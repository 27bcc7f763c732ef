"""Who decides the next action: roles, the CodeAct loop, and the embedded repair agent."""

from codepilot.agents.cli.profiles import profile, profile_names
from codepilot.agents.cli.pty import command_name
from codepilot.agents.cli.settings import CliSettings
from codepilot.agents.codeact import CodeActAgent
from codepilot.agents.protocol import Abstained, Agent, RoleArtifact, StepContext, write_file
from codepilot.agents.registry import (
    AgentParts,
    AgentSpec,
    agent_names,
    agent_spec,
    cli_adapter,
    cli_adapters,
    is_cli_agent,
    make_agent,
)
from codepilot.agents.repair_agent import RepairAgent
from codepilot.agents.roles import BUILD_PARTS, PARTS, ROLES, Limits, Names, Role, Sections

__all__ = [
    "BUILD_PARTS",
    "PARTS",
    "ROLES",
    "Abstained",
    "Agent",
    "AgentParts",
    "AgentSpec",
    "CliSettings",
    "CodeActAgent",
    "Limits",
    "Names",
    "RepairAgent",
    "Role",
    "RoleArtifact",
    "Sections",
    "StepContext",
    "agent_names",
    "agent_spec",
    "cli_adapter",
    "cli_adapters",
    "command_name",
    "is_cli_agent",
    "make_agent",
    "profile",
    "profile_names",
    "write_file",
]
