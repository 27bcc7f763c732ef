"""Who decides the next action: roles, the CodeAct loop, and the embedded repair agent."""

from codepilot.agents.codeact import CodeActAgent
from codepilot.agents.protocol import Agent, Desk, RoleArtifact
from codepilot.agents.registry import make_agent
from codepilot.agents.repair_agent import RepairAgent
from codepilot.agents.roles import ROLES, Role

__all__ = ["ROLES", "Agent", "CodeActAgent", "Desk", "RepairAgent", "Role", "RoleArtifact", "make_agent"]
