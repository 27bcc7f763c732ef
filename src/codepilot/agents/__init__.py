"""Who decides the next action: roles, the CodeAct loop, and the embedded repair agent."""

from codepilot.agents.protocol import Agent, Desk, RoleArtifact

__all__ = ["Agent", "Desk", "RoleArtifact"]
