"""Who decides the next action: roles, the CodeAct loop, and the embedded repair agent."""

from codepilot.agents.codeact import CodeActAgent
from codepilot.agents.protocol import Abstained, Agent, RoleArtifact, StepContext, write_file
from codepilot.agents.registry import AgentParts, AgentSpec, agent_names, agent_spec, make_agent
from codepilot.agents.repair_agent import RepairAgent
from codepilot.agents.roles import PARTS, ROLES, Limits, Names, Role, Sections

__all__ = [
    "PARTS",
    "ROLES",
    "Abstained",
    "Agent",
    "AgentParts",
    "AgentSpec",
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
    "make_agent",
    "write_file",
]
